from __future__ import annotations

from flowjoin._kernel.rows import RowReader, packed_default
from flowjoin.wire import default_registry

REGISTRY = default_registry()
ELEMENTS = [REGISTRY.by_name(n) for n in ("octetDeltaCount", "sourceIPv4Address", "sourcePodName", "sourceMacAddress")]


def test_a_row_has_the_elements_in_its_own_order_and_defaults_for_the_rest() -> None:
    read = RowReader(ELEMENTS, {"sourcePodName": 0, "octetDeltaCount": 2})
    assert read(("pod", "other", 9)) == (9, bytes(4), "pod", bytes(6))


def test_a_default_may_be_given_and_an_element_be_read_twice() -> None:
    twice = [*ELEMENTS[:1], *ELEMENTS]
    read = RowReader(twice, {"octetDeltaCount": 0}, {"sourcePodName": "mine"})
    assert read((1,)) == (1, 1, bytes(4), "mine", bytes(6))


def test_ntp_times_before_1970_are_its_beginning() -> None:
    elements = [REGISTRY.by_name("flowStartMicroseconds"), REGISTRY.by_name("flowEndNanoseconds")]
    assert RowReader(elements, {"flowStartMicroseconds": 0, "flowEndNanoseconds": 1})((-5, 6)) == (0, 6)


def test_defaults_of_addresses_are_packed() -> None:
    assert packed_default(REGISTRY.by_name("sourceIPv6Address")) == bytes(16)
    assert packed_default(REGISTRY.by_name("sourcePodUUID")) == bytes(16)
    assert packed_default(REGISTRY.by_name("sourcePodName")) == ""
