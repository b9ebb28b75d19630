"""What the collector's system took and the collector perhaps did not."""

from __future__ import annotations

from flowjoin_ipfix._resend import ResendBuffer
from flowjoin_ipfix._rows import Unit


def unit(name: bytes, rows: int = 1) -> Unit:
    return Unit(template_id=256, octets=name, rows=rows)


def names(buffer: ResendBuffer) -> bytes:
    return b"".join(each.octets for each in buffer.units)


def test_time_passes_by_acknowledgements_only() -> None:
    buffer = ResendBuffer(interval=5, max_octets=100)
    for moment, name in enumerate((b"a", b"b", b"c")):
        buffer.acknowledged([unit(name)], 2.5 * moment)
    assert names(buffer) == b"abc"
    buffer.acknowledged([unit(b"d")], 7.6)
    assert names(buffer) == b"cd"


def test_an_orderly_end_is_a_sign_of_life_until_then() -> None:
    buffer = ResendBuffer(interval=5, max_octets=100)
    buffer.acknowledged([unit(b"a")], 0)
    buffer.acknowledged([unit(b"b")], 4)
    buffer.lost(6)
    assert names(buffer) == b"b"


def test_what_is_owed_waits_as_long_as_it_takes() -> None:
    """Something in front of a collector that is away accepts and closes: that carried nothing."""
    buffer = ResendBuffer(interval=5, max_octets=100)
    buffer.acknowledged([unit(b"a")], 0)
    buffer.lost(1)
    for attempt in range(1, 100):
        buffer.lost(60.0 * attempt if attempt % 2 else None)
    assert names(buffer) == b"a"
    buffer.clear()
    buffer.acknowledged([unit(b"a")], 6000)
    buffer.lost(6010)
    assert names(buffer) == b""


def test_a_connection_that_left_nothing_owes_nothing() -> None:
    buffer = ResendBuffer(interval=5, max_octets=100)
    buffer.lost(None)
    buffer.acknowledged([unit(b"a")], 0)
    buffer.lost(6)
    assert names(buffer) == b""


def test_the_oldest_goes_for_want_of_room_and_is_counted() -> None:
    buffer = ResendBuffer(interval=5, max_octets=4)
    assert buffer.acknowledged([unit(b"aa", 2), unit(b"bb", 3)], 0) == 0
    assert buffer.acknowledged([unit(b"cc", 4)], 0) == 2
    assert names(buffer) == b"bbcc"
    assert ResendBuffer(interval=0, max_octets=4).acknowledged([unit(b"aa")], 0) == 0
