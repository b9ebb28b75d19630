"""IPFIX Files (RFC 5655 section 5): Messages, one behind the other.

Invariant: any octets give Messages or DecodeError; a file cut anywhere gives the whole Messages before the cut.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from flowjoin._collector.capture.message_start import IPFIX_VERSION
from flowjoin._collector.capture.octet_source import OctetSource
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason

__all__ = ["read_ipfix_file"]

_LENGTH_AND_EXPORT_TIME: Final = struct.Struct(">2xHI")
_HEADER_OCTETS: Final = 16


def read_ipfix_file(start: bytes, source: OctetSource) -> Iterator[tuple[int, memoryview]]:
    """Export time and octets of each Message of a file whose first four octets, ``start``, have been taken.

    Raises:
        DecodeError: the file is cut short, or a Message is followed by something that is none.
    """
    while start:
        at = source.offset - len(start)
        if len(start) < 4:
            raise DecodeError(Reason.FILE_TRUNCATED, offset=source.offset)
        if start[:2] != IPFIX_VERSION:
            raise DecodeError(Reason.STREAM_DESYNCHRONISED, offset=at)
        header = start + source.read_exactly(4)
        length, export_time = _LENGTH_AND_EXPORT_TIME.unpack(header)
        if length < _HEADER_OCTETS:
            raise DecodeError(Reason.MESSAGE_LENGTH_INVALID, offset=at)
        yield export_time, memoryview(header + source.read_exactly(length - len(header)))
        start = source.read(4)
