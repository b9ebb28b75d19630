from __future__ import annotations

import itertools

import pytest
from capture_writer import ACK, FIN, RST, SYN, message, tcp

from flowjoin._collector.capture.tcp import StreamData, StreamEnded, StreamEvent, TcpStreams

SOURCE, DESTINATION = bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])
STREAM = message(bytes(range(100)))  # 116 octets


def received(streams: TcpStreams, *segments: bytes) -> list[StreamEvent]:
    return [event for segment in segments for event in streams.receive(SOURCE, DESTINATION, memoryview(segment))]


def octets(events: list[StreamEvent]) -> bytes:
    return b"".join(bytes(event.octets) for event in events if isinstance(event, StreamData))


def endings(events: list[StreamEvent]) -> list[bool]:
    """Whether each stream that ended had a gap."""
    return [event.has_gap for event in events if isinstance(event, StreamEnded)]


def segments_of(stream: bytes, *, initial: int = 1000, size: int = 30) -> list[bytes]:
    """A connection's segments without its SYN."""
    return [tcp(stream[at : at + size], sequence=initial + 1 + at) for at in range(0, len(stream), size)]


def test_segments_in_any_order_give_the_stream() -> None:
    for order in itertools.permutations(segments_of(STREAM)):
        events = received(TcpStreams(), tcp(sequence=1000, flags=SYN), *order)
        assert octets(events) == STREAM


def test_sequence_numbers_wrap() -> None:
    initial = 2**32 - 50
    segments = segments_of(STREAM, initial=initial)
    events = received(TcpStreams(), tcp(sequence=initial, flags=SYN), *segments[::-1])
    assert octets(events) == STREAM


def test_a_retransmission_gives_nothing_twice() -> None:
    events = received(
        TcpStreams(),
        tcp(sequence=1000, flags=SYN),
        tcp(sequence=1000, flags=SYN),
        tcp(STREAM[:60], sequence=1001),
        tcp(STREAM[:60], sequence=1001),
        tcp(STREAM[30:90], sequence=1031),
        tcp(STREAM[40:], sequence=1041),
    )
    assert octets(events) == STREAM


def test_segments_that_overlap_while_they_wait_give_the_stream() -> None:
    events = received(
        TcpStreams(),
        tcp(sequence=1000, flags=SYN),
        tcp(STREAM[50:80], sequence=1051),
        tcp(STREAM[60:], sequence=1061),
        tcp(STREAM[40:70], sequence=1041),
        tcp(STREAM[:45], sequence=1001),
    )
    assert octets(events) == STREAM


def test_the_syn_may_carry_data() -> None:
    streams = TcpStreams()
    assert (
        octets(received(streams, tcp(STREAM[:20], sequence=1000, flags=SYN), tcp(STREAM[20:], sequence=1021))) == STREAM
    )


def test_header_options_are_no_data() -> None:
    streams = TcpStreams()
    segment = tcp(STREAM, sequence=1001, options=bytes(12))
    assert octets(received(streams, tcp(sequence=1000, flags=SYN), segment)) == STREAM


def test_without_a_syn_a_stream_begins_at_the_first_segment_that_begins_like_a_message() -> None:
    streams = TcpStreams()
    events = received(
        streams,
        tcp(b"tail of a message", sequence=983),
        tcp(STREAM[:50], sequence=1000),
        tcp(STREAM[50:], sequence=1050),
    )
    assert octets(events) == STREAM
    assert received(streams, tcp(sequence=999, flags=SYN)) == [], "a SYN that comes late is that of the same connection"
    assert streams.end_all() == [StreamEnded(events[0].name, has_gap=False)]


def test_a_stream_of_other_traffic_is_counted_and_ignored() -> None:
    streams = TcpStreams()
    events = received(
        streams,
        tcp(sequence=1000, flags=SYN),
        tcp(b"GET / HTTP/1.1\r\n", sequence=1001),
        tcp(STREAM, sequence=1017),
    )
    assert (events, streams.other, streams.end_all()) == ([], 1, [])


def test_a_stream_ends_at_its_fin_when_all_before_it_has_come() -> None:
    streams = TcpStreams()
    events = received(
        streams,
        tcp(sequence=1000, flags=SYN),
        tcp(STREAM[100:], sequence=1101, flags=FIN | ACK),
        tcp(STREAM[:100], sequence=1001),
    )
    assert (octets(events), endings(events)) == (STREAM, [False])
    assert received(streams, tcp(STREAM, sequence=1001)) == [], "a retransmission behind the end begins nothing"
    assert (streams.gaps, streams.end_all()) == (0, [])


def test_a_reset_ends_a_stream_and_drops_what_waited() -> None:
    streams = TcpStreams()
    events = received(
        streams,
        tcp(sequence=1000, flags=SYN),
        tcp(STREAM[:50], sequence=1001),
        tcp(STREAM[60:], sequence=1061),
        tcp(sequence=1061, flags=RST),
    )
    assert (octets(events), endings(events), streams.gaps) == (STREAM[:50], [True], 1)


def test_a_new_connection_on_the_same_ports_is_a_stream_of_its_own() -> None:
    events = received(
        TcpStreams(),
        tcp(sequence=1000, flags=SYN),
        tcp(STREAM, sequence=1001),
        tcp(sequence=5000, flags=SYN),
        tcp(STREAM, sequence=5001),
    )
    assert [(type(event), event.name.serial) for event in events] == [
        (StreamData, 1),
        (StreamEnded, 1),
        (StreamData, 2),
    ]


def test_both_directions_are_streams_of_their_own() -> None:
    streams = TcpStreams()
    received(streams, tcp(sequence=1000, flags=SYN))
    assert streams.receive(DESTINATION, SOURCE, memoryview(tcp(sequence=7, flags=SYN | ACK))) == []
    assert octets(received(streams, tcp(STREAM, sequence=1001))) == STREAM


@pytest.mark.parametrize(
    "streams",
    [TcpStreams(max_pending_octets=50), TcpStreams(max_pending_segments=1), TcpStreams(max_pending_octets_in_all=50)],
)
def test_a_gap_that_never_fills_ends_the_stream(streams: TcpStreams) -> None:
    events = received(
        streams,
        tcp(sequence=1000, flags=SYN),
        tcp(STREAM[:20], sequence=1001),
        tcp(STREAM[30:70], sequence=1031),
        tcp(STREAM[80:], sequence=1081),
        tcp(STREAM[20:30], sequence=1021),
    )
    assert (octets(events), endings(events), streams.gaps) == (STREAM[:20], [True], 1)


def test_a_gap_at_the_end_of_the_capture_is_told() -> None:
    streams = TcpStreams()
    received(streams, tcp(sequence=1000, flags=SYN), tcp(STREAM[:20], sequence=1001), tcp(STREAM[30:], sequence=1031))
    assert endings(streams.end_all()) == [True]
    assert streams.gaps == 1


def test_a_stream_that_gave_nothing_ends_without_a_word() -> None:
    streams = TcpStreams()
    received(streams, tcp(sequence=1000, flags=SYN), tcp(STREAM[30:], sequence=1031))
    assert (streams.end_all(), streams.gaps) == ([], 1)


def test_of_too_many_streams_the_one_quiet_longest_is_forgotten() -> None:
    streams = TcpStreams(max_streams=2)
    first = received(streams, tcp(STREAM[:50], sequence=1, source_port=1))
    received(streams, tcp(STREAM[:50], sequence=1, source_port=2))
    received(streams, tcp(STREAM[50:60], sequence=51, source_port=1))
    events = received(streams, tcp(STREAM[:50], sequence=1, source_port=3))
    assert [(event.name.source_port, type(event)) for event in events] == [(2, StreamEnded), (3, StreamData)]
    assert (streams.evicted, first[0].name.serial) == (1, 1)


def test_an_abandoned_stream_gives_nothing_more() -> None:
    streams = TcpStreams()
    (event,) = received(streams, tcp(STREAM[:50], sequence=1))
    streams.abandon(event.name)
    assert (received(streams, tcp(STREAM[50:], sequence=51)), streams.end_all()) == ([], [])


def test_abandoning_a_connection_that_is_over_leaves_the_next_one_alone() -> None:
    streams = TcpStreams()
    (event,) = received(streams, tcp(STREAM[:50], sequence=1))
    received(streams, tcp(sequence=5000, flags=SYN))
    streams.abandon(event.name)
    assert octets(received(streams, tcp(STREAM, sequence=5001))) == STREAM


@pytest.mark.parametrize(
    "segment",
    [
        b"",
        tcp(sequence=1)[:19],
        tcp(STREAM, sequence=1)[:12] + b"\x40" + bytes(7),
        tcp(sequence=1)[:12] + b"\xf0" + bytes(7),
    ],
)
def test_headers_that_cannot_be_give_nothing(segment: bytes) -> None:
    assert received(TcpStreams(), segment) == []
