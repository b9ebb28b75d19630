from __future__ import annotations

from flowjoin_conntrack._gateway import addresses_of


def test_an_interface_has_its_addresses_of_both_families() -> None:
    assert addresses_of("lo") >= {"127.0.0.1"}
    assert addresses_of("lo") <= {"127.0.0.1", "::1"}


def test_an_interface_that_is_not_there_has_none() -> None:
    assert addresses_of("no-such-if0") == frozenset()
    assert addresses_of("a-name-longer-than-any-interface-has") == frozenset()
