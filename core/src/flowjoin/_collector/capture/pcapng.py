"""pcapng files (draft-ietf-opsawg-pcapng): several sections and interfaces, both byte orders.

Strategy: a file is blocks, each with its length in front and behind. Section Header, Interface Description and
the three kinds of packet blocks are read; every other block is passed over by its length.
Invariant: any octets give frames or DecodeError; a file cut anywhere gives the whole frames before the cut.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from flowjoin._collector.capture.frame import MAX_FRAME_OCTETS, Frame
from flowjoin._collector.capture.octet_source import OctetSource
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason

__all__ = ["SECTION_HEADER_BLOCK", "read_pcapng"]

SECTION_HEADER_BLOCK: Final = bytes.fromhex("0a0d0d0a")  # reads the same in both byte orders
_INTERFACE_DESCRIPTION: Final = 1
_PACKET: Final = 2  # obsolete, still found in old files
_SIMPLE_PACKET: Final = 3
_ENHANCED_PACKET: Final = 6

_BYTE_ORDERS: Final = {bytes.fromhex("1a2b3c4d"): ">", bytes.fromhex("4d3c2b1a"): "<"}
_OPTION_TIME_RESOLUTION: Final = 9
_OPTION_TIME_OFFSET: Final = 14

_BLOCK_OVERHEAD: Final = 12  # type, length, and length again
_PACKET_FIXED_OCTETS: Final = 20  # what stands in front of the frame in a packet block
_MAX_BLOCK_OCTETS: Final = MAX_FRAME_OCTETS + (1 << 20)  # a frame and its comments
_MAX_INTERFACES: Final = 4096  # of one section; a file of nothing but interfaces shall not fill the memory


class _Interface(NamedTuple):
    link_type: int
    snapshot_length: int
    ticks_per_second: int
    offset_seconds: int


_UNTOLD = _Interface(link_type=-1, snapshot_length=0, ticks_per_second=1, offset_seconds=0)


def read_pcapng(source: OctetSource) -> Iterator[Frame]:
    """The frames of a file whose first four octets, ``SECTION_HEADER_BLOCK``, have been taken from ``source``.

    A frame without a time (Simple Packet Block) has the time of the frame before it. A frame of an interface
    that no block described has link type -1, which nothing reads.

    Raises:
        DecodeError: the file is cut short, or a length in it cannot be true.
    """
    byte_order = _read_section_header(source)
    interfaces: list[_Interface] = []
    time = 0.0
    while block_type_octets := source.read(4):
        if block_type_octets == SECTION_HEADER_BLOCK:
            byte_order = _read_section_header(source)
            interfaces.clear()
            continue
        if len(block_type_octets) < 4:
            raise DecodeError(Reason.FILE_TRUNCATED, offset=source.offset)
        (block_type,) = struct.unpack(byte_order + "I", block_type_octets)
        start = source.offset - 4
        (length,) = struct.unpack(byte_order + "I", source.read_exactly(4))
        if length < _BLOCK_OVERHEAD or length % 4:
            raise DecodeError(Reason.STREAM_DESYNCHRONISED, offset=start)
        if block_type not in (_INTERFACE_DESCRIPTION, _PACKET, _SIMPLE_PACKET, _ENHANCED_PACKET):
            source.skip(length - _BLOCK_OVERHEAD)
            _read_trailer(source, byte_order, length)
            continue
        if length > _MAX_BLOCK_OCTETS:
            raise DecodeError(Reason.STREAM_DESYNCHRONISED, offset=start)
        body = source.read_exactly(length - _BLOCK_OVERHEAD)
        _read_trailer(source, byte_order, length)
        try:
            if block_type == _INTERFACE_DESCRIPTION:
                if len(interfaces) < _MAX_INTERFACES:
                    interfaces.append(_interface(body, byte_order))
                continue
            frame = _frame(block_type, body, byte_order, interfaces, time)
        except struct.error as exc:  # the block is shorter than what it must hold
            raise DecodeError(Reason.STREAM_DESYNCHRONISED, offset=start) from exc
        time = frame.time
        yield frame


def _read_section_header(source: OctetSource) -> str:
    """Read a Section Header Block from behind its type on; gives its byte order."""
    start = source.offset - 4
    length_octets, magic = struct.unpack("4s4s", source.read_exactly(8))
    byte_order = _BYTE_ORDERS.get(magic)
    if byte_order is None:
        raise DecodeError(Reason.STREAM_DESYNCHRONISED if start else Reason.FILE_FORMAT_UNKNOWN, offset=start)
    (length,) = struct.unpack(byte_order + "I", length_octets)
    if length < _BLOCK_OVERHEAD + 16 or length % 4:
        raise DecodeError(Reason.STREAM_DESYNCHRONISED, offset=start)
    source.skip(length - _BLOCK_OVERHEAD - 4)
    _read_trailer(source, byte_order, length)
    return byte_order


def _read_trailer(source: OctetSource, byte_order: str, length: int) -> None:
    if struct.unpack(byte_order + "I", source.read_exactly(4))[0] != length:
        raise DecodeError(Reason.STREAM_DESYNCHRONISED, offset=source.offset - 4)


def _interface(body: bytes, byte_order: str) -> _Interface:
    link_type, snapshot_length = struct.unpack_from(byte_order + "H2xI", body)
    ticks_per_second = 1_000_000
    offset_seconds = 0
    option_header = struct.Struct(byte_order + "HH")
    at = 8
    while at + option_header.size <= len(body):
        code, length = option_header.unpack_from(body, at)
        at += option_header.size
        if code == _OPTION_TIME_RESOLUTION and length >= 1 and at < len(body):
            resolution = body[at]
            base = 2 if resolution & 0x80 else 10
            ticks_per_second = base ** (resolution & 0x7F)
        elif code == _OPTION_TIME_OFFSET and length >= 8 and at + 8 <= len(body):
            (offset_seconds,) = struct.unpack_from(byte_order + "q", body, at)
        at += (length + 3) & ~3
    return _Interface(link_type, snapshot_length, ticks_per_second, offset_seconds)


def _frame(block_type: int, body: bytes, byte_order: str, interfaces: list[_Interface], last_time: float) -> Frame:
    if block_type == _SIMPLE_PACKET:
        (original_length,) = struct.unpack_from(byte_order + "I", body)
        interface = interfaces[0] if interfaces else _UNTOLD
        captured_length = min(original_length, interface.snapshot_length or original_length)
        return Frame(last_time, interface.link_type, body[4 : 4 + captured_length])
    layout = "IIII4x" if block_type == _ENHANCED_PACKET else "H2xIII4x"
    number, ticks_high, ticks_low, captured_length = struct.unpack_from(byte_order + layout, body)
    if captured_length > len(body) - _PACKET_FIXED_OCTETS:
        raise struct.error("the packet is longer than its block")
    interface = interfaces[number] if number < len(interfaces) else _UNTOLD
    ticks = ticks_high << 32 | ticks_low
    # Integers until the last division: a float has no room for 64 bits of ticks.
    seconds, rest = divmod(ticks, interface.ticks_per_second)
    time = interface.offset_seconds + seconds + rest / interface.ticks_per_second
    return Frame(time, interface.link_type, body[_PACKET_FIXED_OCTETS : _PACKET_FIXED_OCTETS + captured_length])
