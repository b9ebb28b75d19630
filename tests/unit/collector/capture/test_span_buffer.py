from __future__ import annotations

from flowjoin._collector.capture.span_buffer import SpanBuffer


def contents(buffer: SpanBuffer) -> list[tuple[int, bytes]]:
    spans = []
    while (span := buffer.take(1000)) is not None:
        spans.append(span)
    return spans


def filled(*spans: tuple[int, bytes]) -> SpanBuffer:
    buffer = SpanBuffer()
    for at, octets in spans:
        buffer.add(at, memoryview(octets))
    return buffer


def test_spans_are_taken_in_order_when_their_place_has_come() -> None:
    buffer = filled((20, b"b"), (10, b"a"))
    assert buffer.take(9) is None
    assert buffer.take(10) == (10, b"a")
    assert buffer.take(19) is None
    assert buffer.take(25) == (20, b"b")
    assert (len(buffer), buffer.octets) == (0, 0)


def test_of_octets_given_twice_the_first_to_come_counts() -> None:
    assert contents(filled((10, b"aaaa"), (8, b"bbbb"))) == [(8, b"bb"), (10, b"aaaa")]
    assert contents(filled((10, b"aaaa"), (12, b"bbbb"))) == [(10, b"aaaa"), (14, b"bb")]
    assert contents(filled((10, b"aaaa"), (11, b"bb"))) == [(10, b"aaaa")]
    assert contents(filled((10, b"aaaa"), (10, b"bbbb"))) == [(10, b"aaaa")]


def test_a_span_over_others_fills_the_holes_between_them() -> None:
    buffer = filled((10, b"aa"), (14, b"cc"), (8, b"xxxxxxxxxx"))
    assert buffer.octets == 10
    assert contents(buffer) == [(8, b"xx"), (10, b"aa"), (12, b"xx"), (14, b"cc"), (16, b"xx")]


def test_what_is_kept_is_a_copy() -> None:
    octets = bytearray(b"a")
    buffer = SpanBuffer()
    buffer.add(0, memoryview(octets))
    octets[0] = 0
    assert contents(buffer) == [(0, b"a")]


def test_cleared_it_is_empty() -> None:
    buffer = filled((1, b"a"))
    buffer.clear()
    assert (len(buffer), buffer.octets, contents(buffer)) == (0, 0, [])
