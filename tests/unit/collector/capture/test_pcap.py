from __future__ import annotations

import io
import struct

import pytest
from capture_writer import ByteOrder, pcap

from flowjoin._collector.capture.frame import Frame
from flowjoin._collector.capture.octet_source import OctetSource
from flowjoin._collector.capture.pcap import read_pcap
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason


def frames_of(file: bytes) -> list[Frame]:
    source = OctetSource(io.BytesIO(file))
    return list(read_pcap(source.read(4), source))


@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_microseconds_are_read_in_both_byte_orders(byte_order: ByteOrder) -> None:
    file = pcap([(1_700_000_000.25, b"one"), (1_700_000_001.5, b"")], byte_order=byte_order)
    assert frames_of(file) == [Frame(1_700_000_000.25, 1, b"one"), Frame(1_700_000_001.5, 1, b"")]


@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_nanoseconds_are_read_in_both_byte_orders(byte_order: ByteOrder) -> None:
    (frame,) = frames_of(pcap([(1.000_000_001, b"x")], byte_order=byte_order, nanoseconds=True))
    assert frame.time == pytest.approx(1.000_000_001, abs=1e-12)


def test_the_upper_half_of_the_link_type_is_not_part_of_it() -> None:
    file = bytearray(pcap([(0.0, b"x")], link_type=113))
    file[20:24] = struct.pack("<I", 0x1000_0000 | 113)
    assert frames_of(bytes(file)) == [Frame(0.0, 113, b"x")]


@pytest.mark.parametrize("missing", [1, 3, 4, 17, 18])
def test_a_file_cut_short_gives_the_whole_frames_and_says_where_it_ends(missing: int) -> None:
    file = pcap([(1.0, b"one"), (2.0, b"two")])[:-missing]
    source = OctetSource(io.BytesIO(file))
    frames = read_pcap(source.read(4), source)

    assert next(frames).octets == b"one"
    with pytest.raises(DecodeError) as caught:
        next(frames)
    assert (caught.value.reason, caught.value.offset) == (Reason.FILE_TRUNCATED, len(file))


def test_a_file_header_cut_short_is_truncated() -> None:
    with pytest.raises(DecodeError) as caught:
        frames_of(pcap([])[:20])
    assert caught.value.reason is Reason.FILE_TRUNCATED


def test_a_frame_longer_than_any_means_that_the_place_is_lost() -> None:
    file = pcap([(1.0, b"one")]) + struct.pack("<IIII", 0, 0, 262_145, 262_145)
    with pytest.raises(DecodeError) as caught:
        frames_of(file)
    assert (caught.value.reason, caught.value.offset) == (Reason.STREAM_DESYNCHRONISED, len(file) - 16)


def test_zeros_behind_the_last_frame_are_no_frames() -> None:
    """A file that was made larger before it was filled, or that a crash left so, may end in gigabytes of them."""
    file = pcap([(1.0, b"one")])
    source = OctetSource(io.BytesIO(file + bytes(64)))
    frames = read_pcap(source.read(4), source)

    assert next(frames).octets == b"one"
    with pytest.raises(DecodeError) as caught:
        next(frames)
    assert (caught.value.reason, caught.value.offset) == (Reason.STREAM_DESYNCHRONISED, len(file))
