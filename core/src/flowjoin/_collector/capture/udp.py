"""UDP headers (RFC 768)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = ["UdpDatagram", "read_udp_datagram"]

_HEADER: Final = struct.Struct(">HHHxx")


class UdpDatagram(NamedTuple):
    """One datagram.

    Attributes:
        payload: as far as it was captured.
        is_cut: whether the datagram was longer than what was captured.
    """

    source_port: int
    destination_port: int
    payload: memoryview
    is_cut: bool


def read_udp_datagram(segment: memoryview) -> UdpDatagram | None:
    """Read a datagram; None when its header is cut short or its length cannot be true."""
    if len(segment) < _HEADER.size:
        return None
    source_port, destination_port, length = _HEADER.unpack_from(segment)
    if length == 0:  # a jumbogram (RFC 2675 section 4) or segmentation offload
        length = len(segment)
    if length < _HEADER.size:
        return None
    return UdpDatagram(source_port, destination_port, segment[_HEADER.size : length], length > len(segment))
