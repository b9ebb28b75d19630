"""Laws of the capture reader: any octets, any cut, any order."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import pytest
from capture_writer import (
    ETHERNET,
    LINUX_SLL,
    LINUX_SLL2,
    LOOP,
    NULL,
    RAW,
    SYN,
    ByteOrder,
    block,
    enhanced_packet,
    ethernet,
    interface,
    ipv4,
    ipv6,
    ipv6_fragment,
    message,
    option,
    pcap,
    section,
    tcp,
    udp,
)
from hypothesis import given
from hypothesis import strategies as st

from flowjoin._collector.capture import CapturedMessage, CaptureReader
from flowjoin._collector.capture.span_buffer import SpanBuffer
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason

BYTE_ORDERS = st.sampled_from(["<", ">"])
LINK_TYPES = st.sampled_from([ETHERNET, RAW, NULL, LOOP, LINUX_SLL, LINUX_SLL2])
MESSAGES = st.lists(st.binary(max_size=60).map(lambda payload: message(payload)), min_size=1, max_size=5)


def read(file: bytes) -> tuple[list[bytes], DecodeError | None]:
    """The Messages of a file, and why it could not be read to its end."""
    found: list[bytes] = []
    try:
        for item in CaptureReader(io.BytesIO(file)):
            if isinstance(item, CapturedMessage):
                found.append(bytes(item.payload))
    except DecodeError as error:
        return found, error
    return found, None


# ---------------------------------------------------------------- any octets give items or DecodeError


@given(st.binary(max_size=400))
def test_any_octets_give_items_or_the_readers_own_error(octets: bytes) -> None:
    read(octets)


@given(st.lists(st.binary(max_size=120), max_size=6), LINK_TYPES, BYTE_ORDERS)
def test_any_frames_are_read_to_the_end(frames: list[bytes], link_type: int, byte_order: ByteOrder) -> None:
    file = pcap(((1.0, frame) for frame in frames), link_type=link_type, byte_order=byte_order)
    assert read(file)[1] is None


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2, 3, 5, 6, 10, 0xBAD]), st.binary(max_size=80)), max_size=8),
    BYTE_ORDERS,
    st.binary(max_size=20),
)
def test_any_blocks_give_items_or_the_readers_own_error(
    blocks: list[tuple[int, bytes]], byte_order: ByteOrder, rest: bytes
) -> None:
    read(section(byte_order) + b"".join(block(kind, body, byte_order) for kind, body in blocks) + rest)


PACKETS = st.one_of(
    st.builds(
        lambda payload, protocol, offset, more, identification: ipv4(
            payload, protocol=protocol, offset=offset * 8, more=more, identification=identification
        ),
        st.binary(max_size=60),
        st.sampled_from([6, 17]),
        st.integers(0, 8191),
        st.booleans(),
        st.integers(0, 2),
    ),
    st.builds(
        lambda payload, protocol: ipv6(payload, protocol=protocol),
        st.binary(max_size=60),
        st.sampled_from([0, 6, 17, 43, 44, 51, 60]),
    ),
    st.builds(
        lambda payload, sequence, flags, port: ipv4(
            tcp(payload, sequence=sequence, flags=flags, source_port=port), protocol=6
        ),
        st.one_of(st.binary(max_size=40), st.just(message(b"1234"))),
        st.integers(0, 2**32 - 1),
        st.integers(0, 63),
        st.integers(1, 2),
    ),
)


@given(st.lists(PACKETS, max_size=12))
def test_any_packets_are_read_to_the_end(packets: list[bytes]) -> None:
    assert read(pcap(((1.0, packet) for packet in packets), link_type=RAW))[1] is None


# ---------------------------------------------------------------- what was written is read


@given(MESSAGES, BYTE_ORDERS, st.booleans())
def test_a_pcap_gives_the_messages_written(payloads: list[bytes], byte_order: ByteOrder, nanoseconds: bool) -> None:
    frames = [(float(time), ethernet(ipv4(udp(payload)))) for time, payload in enumerate(payloads)]
    assert read(pcap(frames, byte_order=byte_order, nanoseconds=nanoseconds)) == (payloads, None)


@given(MESSAGES, BYTE_ORDERS, st.integers(0, 255), st.binary(max_size=9))
def test_a_pcapng_gives_the_messages_written(
    payloads: list[bytes], byte_order: ByteOrder, resolution: int, comment: bytes
) -> None:
    file = section(byte_order) + interface(
        byte_order=byte_order, options=option(9, bytes([resolution]), byte_order) + option(0, b"", byte_order)
    )
    for ticks, payload in enumerate(payloads):
        file += enhanced_packet(
            ethernet(ipv6(udp(payload))), ticks=ticks, byte_order=byte_order, options=option(1, comment, byte_order)
        )
    assert read(file) == (payloads, None)


# ---------------------------------------------------------------- a file cut anywhere


def as_pcap(payloads: list[bytes]) -> bytes:
    return pcap((0.0, ethernet(ipv4(udp(payload)))) for payload in payloads)


def as_pcapng(payloads: list[bytes]) -> bytes:
    frames = (enhanced_packet(ethernet(ipv4(udp(payload))), ticks=0) for payload in payloads)
    return section() + interface() + b"".join(frames)


@pytest.mark.parametrize("written", [as_pcap, as_pcapng, b"".join])
@given(payloads=MESSAGES, data=st.data())
def test_a_file_cut_anywhere_gives_the_messages_before_the_cut(
    written: Callable[[list[bytes]], bytes], payloads: list[bytes], data: st.DataObject
) -> None:
    file = written(payloads)
    cut = data.draw(st.integers(0, len(file)))
    found, error = read(file[:cut])
    assert found == [payload for index, payload in enumerate(payloads) if len(written(payloads[: index + 1])) <= cut]
    if error is None:
        assert cut in {len(section()), *(len(written(payloads[:count])) for count in range(len(payloads) + 1))}
    else:  # of fewer than four octets nobody can tell the format
        assert error.reason in {Reason.FILE_TRUNCATED} | ({Reason.FILE_FORMAT_UNKNOWN} if cut < 4 else set())


# ---------------------------------------------------------------- fragments and segments


def cut_up(data: st.DataObject, octets: bytes, unit: int) -> list[tuple[int, bytes]]:
    """Pieces at multiples of ``unit``, in any order, some of them twice."""
    places = data.draw(st.sets(st.integers(1, max(1, (len(octets) - 1) // unit)), max_size=8))
    starts = sorted({0, *(place * unit for place in places if place * unit < len(octets))})
    pieces = [(at, octets[at:end]) for at, end in zip(starts, [*starts[1:], len(octets)], strict=True)]
    again = data.draw(st.lists(st.sampled_from(pieces), max_size=3))
    return data.draw(st.permutations(pieces + again))


@given(st.binary(min_size=16, max_size=300), st.data())
def test_fragments_in_any_order_give_the_datagram(payload: bytes, data: st.DataObject) -> None:
    datagram = udp(message(payload))
    for wrap in (ipv4, ipv6_fragment):
        pieces = cut_up(data, datagram, 8)
        packets = [
            wrap(piece, identification=7, offset=at, more=at + len(piece) < len(datagram)) for at, piece in pieces
        ]
        found, error = read(pcap((0.0, ethernet(packet)) for packet in packets))
        # Fragments that are repeated when all have come can give the datagram again, as a network would.
        assert (set(found), error) == ({message(payload)}, None)


@given(MESSAGES, st.integers(0, 2**32 - 1), st.data())
def test_segments_in_any_order_and_overlap_give_the_same_messages(
    payloads: list[bytes], initial: int, data: st.DataObject
) -> None:
    stream = b"".join(payloads)
    pieces = cut_up(data, stream, 1)
    longer = [(at, stream[at : at + len(piece) + data.draw(st.integers(0, 20))]) for at, piece in pieces]
    segments = [tcp(sequence=initial, flags=SYN)]
    segments += [tcp(piece, sequence=initial + 1 + at) for at, piece in longer]
    frames = [(0.0, ethernet(ipv4(segment, protocol=6))) for segment in segments]
    assert read(pcap(frames)) == (payloads, None)


@given(st.integers(0, 2**32 - 1), st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), max_size=30))
def test_what_waits_is_kept_once_and_in_order(start: int, spans: list[tuple[int, int]]) -> None:
    whole = bytes(range(100))
    buffer = SpanBuffer()
    covered: set[int] = set()
    for at, length in spans:
        buffer.add(start + at, memoryview(whole[at : at + length]))
        covered.update(range(at, min(at + length, 100)))
        assert buffer.octets == len(covered)
    taken: set[int] = set()
    while (span := buffer.take(start + 100)) is not None:
        at = span[0] - start
        assert span[1] == whole[at : at + len(span[1])]
        assert not taken & set(range(at, at + len(span[1])))
        taken.update(range(at, at + len(span[1])))
    assert taken == covered


def test_the_reader_tells_a_length_that_lies_without_taking_memory_for_it() -> None:
    file = section() + struct.pack("<II", 6, 0xFFFF_FFFC)
    assert read(file)[1] is not None
