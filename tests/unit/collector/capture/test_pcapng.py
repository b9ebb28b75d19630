from __future__ import annotations

import io
import struct

import pytest
from capture_writer import (
    ByteOrder,
    block,
    enhanced_packet,
    interface,
    obsolete_packet,
    option,
    section,
    simple_packet,
)

from flowjoin._collector.capture.frame import Frame
from flowjoin._collector.capture.octet_source import OctetSource
from flowjoin._collector.capture.pcapng import read_pcapng
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason


def frames_of(file: bytes) -> list[Frame]:
    source = OctetSource(io.BytesIO(file))
    source.read(4)
    return list(read_pcapng(source))


def reason_of(file: bytes) -> Reason:
    with pytest.raises(DecodeError) as caught:
        frames_of(file)
    return caught.value.reason


@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_all_three_kinds_of_packet_blocks_are_read_in_both_byte_orders(byte_order: ByteOrder) -> None:
    file = (
        section(byte_order)
        + interface(byte_order=byte_order)
        + enhanced_packet(b"one", ticks=5_000_000, byte_order=byte_order)
        + simple_packet(b"two..", byte_order=byte_order)
        + obsolete_packet(b"three", ticks=7_500_000, byte_order=byte_order)
    )
    assert frames_of(file) == [Frame(5.0, 1, b"one"), Frame(5.0, 1, b"two.."), Frame(7.5, 1, b"three")]


def test_each_interface_has_its_own_link_type_and_clock() -> None:
    file = (
        section()
        + interface(1, options=option(2, b"eth0") + option(9, b"\x09") + option(0, b""))
        + interface(101, options=option(9, b"\x8a") + option(14, struct.pack("<q", 1000)))
        + interface(113)
        + enhanced_packet(b"a", ticks=3_000_000_001, number=0)
        + enhanced_packet(b"b", ticks=1024 + 512, number=1)
        + enhanced_packet(b"c", ticks=2_000_001, number=2)
    )
    nano, binary, micro = frames_of(file)
    assert (nano.link_type, nano.octets) == (1, b"a")
    assert nano.time == pytest.approx(3.000_000_001, abs=1e-12)
    assert binary == Frame(1001.5, 101, b"b")
    assert micro == Frame(2.000_001, 113, b"c")


def test_a_new_section_has_its_own_byte_order_and_interfaces() -> None:
    file = (
        section("<")
        + interface(1)
        + enhanced_packet(b"a", ticks=0)
        + section(">")
        + interface(101, byte_order=">")
        + enhanced_packet(b"b", ticks=1_000_000, byte_order=">")
    )
    assert frames_of(file) == [Frame(0.0, 1, b"a"), Frame(1.0, 101, b"b")]


def test_unknown_blocks_are_passed_over_by_their_length() -> None:
    file = (
        section()
        + block(0xBAD, bytes(3_000_000))
        + interface()
        + block(5, b"statistics..")
        + enhanced_packet(b"a", ticks=0)
    )
    assert [frame.octets for frame in frames_of(file)] == [b"a"]


def test_options_behind_a_packet_are_no_part_of_it() -> None:
    file = section() + interface() + enhanced_packet(b"abc", ticks=0, options=option(1, b"comment"))
    assert [frame.octets for frame in frames_of(file)] == [b"abc"]


def test_a_simple_packet_ends_at_the_snapshot_length() -> None:
    file = section() + interface(snapshot_length=4) + simple_packet(b"abcd", original_length=100)
    assert [frame.octets for frame in frames_of(file)] == [b"abcd"]


def test_a_packet_of_an_interface_that_was_not_described_has_no_link_type() -> None:
    file = section() + enhanced_packet(b"a", ticks=1, number=3) + simple_packet(b"b")
    assert [frame.link_type for frame in frames_of(file)] == [-1, -1]


def test_more_interfaces_than_a_machine_can_have_are_not_kept() -> None:
    file = section() + interface(101) * 4097 + b"".join(enhanced_packet(b"a", ticks=0, number=n) for n in (4095, 4096))
    assert [frame.link_type for frame in frames_of(file)] == [101, -1]


@pytest.mark.parametrize("resolution", [0, 1, 127, 128, 255])
def test_any_resolution_of_the_clock_gives_a_time(resolution: int) -> None:
    file = section() + interface(options=option(9, bytes([resolution]))) + enhanced_packet(b"a", ticks=2**64 - 1)
    assert frames_of(file)[0].time >= 0


@pytest.mark.parametrize(
    ("description", "damage"),
    [
        ("a block shorter than its own lengths", struct.pack("<II", 6, 8)),
        ("a length that is no multiple of four", struct.pack("<II", 6, 33) + bytes(25)),
        ("another length behind than in front", struct.pack("<II", 0xBAD, 16) + bytes(4) + struct.pack("<I", 20)),
        ("a packet block without its fixed part", block(6, bytes(16))),
        ("a packet longer than its block", block(6, struct.pack("<IIIII", 0, 0, 0, 5, 5) + bytes(4))),
        ("an interface without its fixed part", block(1, bytes(4))),
        ("a simple packet without its length", block(3, b"")),
        ("a packet block larger than any packet", struct.pack("<II", 6, 0x7FFF_FFF0)),
        ("a section of an unknown byte order", bytes.fromhex("0a0d0d0a1c000000") + bytes(4)),
        ("a section shorter than its header", bytes.fromhex("0a0d0d0a10000000") + bytes.fromhex("4d3c2b1a")),
    ],
)
def test_a_length_that_cannot_be_means_that_the_place_is_lost(description: str, damage: bytes) -> None:
    assert reason_of(section() + damage) is Reason.STREAM_DESYNCHRONISED, description


def test_a_first_section_of_an_unknown_byte_order_is_no_pcapng() -> None:
    assert reason_of(bytes.fromhex("0a0d0d0a1c000000") + bytes(20)) is Reason.FILE_FORMAT_UNKNOWN


def test_a_file_cut_anywhere_gives_the_whole_frames_before_the_cut() -> None:
    blocks = [
        section(),
        interface(),
        enhanced_packet(b"one", ticks=1),
        block(5, b"x"),
        enhanced_packet(b"two", ticks=2),
    ]
    file = b"".join(blocks)
    ends = {sum(map(len, blocks[:count])) for count in range(1, len(blocks) + 1)}
    for cut in range(4, len(file)):
        frames: list[Frame] = []
        source = OctetSource(io.BytesIO(file[:cut]))
        source.read(4)
        if cut in ends:
            frames.extend(read_pcapng(source))
        else:
            with pytest.raises(DecodeError) as caught:
                frames.extend(read_pcapng(source))
            assert (caught.value.reason, caught.value.offset) == (Reason.FILE_TRUNCATED, cut)
        whole = 1 if cut >= sum(map(len, blocks[:3])) else 0
        assert [frame.octets for frame in frames] == [b"one"][:whole]
