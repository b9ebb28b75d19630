from __future__ import annotations

import pytest

from flowjoin._collector.config import CollectorAddress


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("192.0.2.1:4739", "192.0.2.1", 4739, "192.0.2.1:4739"),
        ("[2001:db8::1]:4739", "2001:db8::1", 4739, "[2001:db8::1]:4739"),
        ("[::]:0", "::", 0, "[::]:0"),
        ("collector.example:65535", "collector.example", 65535, "collector.example:65535"),
        (":4739", "::", 4739, "[::]:4739"),
    ],
)
def test_an_address_is_read_and_shown_in_the_usual_forms(text, host, port, shown):
    address = CollectorAddress.parse(text)
    assert (address.host, address.port) == (host, port)
    assert str(address) == shown


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("192.0.2.1", "has no port"),
        ("", "has no port"),
        ("2001:db8::1:4739", r"in brackets, \[2001:db8::1\]:4739"),
        ("192.0.2.1:", "port '' of"),
        ("192.0.2.1:65536", "not a number from 0 to 65535"),
        ("192.0.2.1:-1", "port '-1'"),
        ("192.0.2.1:\N{ARABIC-INDIC DIGIT FOUR}", "not a number"),
        ("192.0.2.1: 4739", "not a number"),
    ],
)
def test_a_bad_address_is_refused_with_what_would_be_right(text, problem):
    with pytest.raises(ValueError, match=problem):
        CollectorAddress.parse(text)
