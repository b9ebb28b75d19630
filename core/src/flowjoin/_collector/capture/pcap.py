"""pcap files (draft-ietf-opsawg-pcap): both byte orders, microseconds and nanoseconds.

Strategy: a file header of 24 octets, then records of a 16-octet header and the frame.
Invariant: any octets give frames or DecodeError; a file cut anywhere gives the whole frames before the cut.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from flowjoin._collector.capture.frame import MAX_FRAME_OCTETS, Frame
from flowjoin._collector.capture.octet_source import OctetSource
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason

__all__ = ["PCAP_MAGICS", "read_pcap"]

_MICROSECOND: Final = 1e-6
_NANOSECOND: Final = 1e-9

# The magic number tells the byte order of the machine that wrote the file, and the unit of the fractions.
PCAP_MAGICS: Final = {
    bytes.fromhex("a1b2c3d4"): (">", _MICROSECOND),
    bytes.fromhex("d4c3b2a1"): ("<", _MICROSECOND),
    bytes.fromhex("a1b23c4d"): (">", _NANOSECOND),
    bytes.fromhex("4d3cb2a1"): ("<", _NANOSECOND),
}

_LINK_TYPE_MASK: Final = 0xFFFF  # the upper half of the field tells whether frames end with a checksum


def read_pcap(magic: bytes, source: OctetSource) -> Iterator[Frame]:
    """The frames of a file whose first four octets, one of ``PCAP_MAGICS``, have been taken from ``source``.

    Raises:
        DecodeError: the file is cut short, or a length in it cannot be true.
    """
    byte_order, unit = PCAP_MAGICS[magic]
    link_type = struct.unpack(byte_order + "16xI", source.read_exactly(20))[0] & _LINK_TYPE_MASK
    record_header = struct.Struct(byte_order + "IIII")
    while header := source.read(record_header.size):
        if len(header) < record_header.size:
            raise DecodeError(Reason.FILE_TRUNCATED, offset=source.offset)
        seconds, fraction, captured_length, _original_length = record_header.unpack(header)
        # Nothing but zeros is room that was set aside, or lost in a crash: it would read as gigabytes of empty frames.
        if captured_length > MAX_FRAME_OCTETS or not any(header):
            raise DecodeError(Reason.STREAM_DESYNCHRONISED, offset=source.offset - record_header.size)
        yield Frame(seconds + fraction * unit, link_type, source.read_exactly(captured_length))
