"""IPv4 (RFC 791) and IPv6 (RFC 8200) headers: from a packet to what its transport protocol sent.

Strategy: one function reads a header; fragments are told, not joined (``fragments.py``). Checksums are not
looked at: network cards fill them in after the capture.
Invariant: any octets give an IpPacket or None.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = ["TCP", "UDP", "Fragment", "IpPacket", "read_ip_packet", "without_extension_headers"]

TCP: Final = 6
UDP: Final = 17

_HOP_BY_HOP: Final = 0
_ROUTING: Final = 43
_FRAGMENT: Final = 44
_AUTHENTICATION: Final = 51
_DESTINATION_OPTIONS: Final = 60
_MOBILITY: Final = 135
_HIP: Final = 139
_SHIM6: Final = 140
_EXTENSION_HEADERS: Final = frozenset(
    {_HOP_BY_HOP, _ROUTING, _AUTHENTICATION, _DESTINATION_OPTIONS, _MOBILITY, _HIP, _SHIM6}
)

_IPV4_HEADER: Final = struct.Struct(">xxHHHxB2x4s4s")
_IPV6_HEADER: Final = struct.Struct(">4xHBx16s16s")
_FRAGMENT_HEADER: Final = struct.Struct(">BxHI")
_IPV4_MORE_FRAGMENTS: Final = 0x2000


class Fragment(NamedTuple):
    """Where a fragment belongs.

    Attributes:
        identification: equal in all fragments of a packet.
        offset: octets from the beginning of the fragmented part.
        is_last: whether no fragment comes behind it.
    """

    identification: int
    offset: int
    is_last: bool


class IpPacket(NamedTuple):
    """One packet, or one fragment of it.

    Attributes:
        source: packed address, 4 or 16 octets.
        destination: packed address.
        protocol: of the payload; in a fragment of IPv6 what stands in its fragment header.
        payload: as far as it was captured.
        fragment: None when the packet is whole.
    """

    source: bytes
    destination: bytes
    protocol: int
    payload: memoryview
    fragment: Fragment | None = None


def read_ip_packet(packet: memoryview) -> IpPacket | None:
    """Read the headers of a packet; None when they are not those of IPv4 or IPv6, or are cut short."""
    if not packet:
        return None
    version = packet[0] >> 4
    if version == 4:
        return _read_ipv4(packet)
    if version == 6:
        return _read_ipv6(packet)
    return None


def without_extension_headers(protocol: int, payload: memoryview) -> tuple[int, memoryview]:
    """Step over IPv6 extension headers (RFC 8200 section 4); stops at the first that is none, or is cut short."""
    while protocol in _EXTENSION_HEADERS and len(payload) >= 8:
        # RFC 4302 section 2.2: the authentication header counts in units of 4 octets, all others in units of 8.
        length = (payload[1] + 2) * 4 if protocol == _AUTHENTICATION else (payload[1] + 1) * 8
        protocol, payload = payload[0], payload[length:]
    return protocol, payload


def _read_ipv4(packet: memoryview) -> IpPacket | None:
    header_length = (packet[0] & 0x0F) * 4
    if header_length < _IPV4_HEADER.size or len(packet) < header_length:
        return None
    total_length, identification, flags_and_offset, protocol, source, destination = _IPV4_HEADER.unpack_from(packet)
    # Segmentation offload leaves 0 in captures of the sending machine: then the packet is all there is.
    end = total_length or len(packet)
    if end < header_length:
        return None
    payload = packet[header_length:end]
    is_last = not flags_and_offset & _IPV4_MORE_FRAGMENTS
    offset = (flags_and_offset & 0x1FFF) * 8
    fragment = None if is_last and not offset else Fragment(identification, offset, is_last)
    return IpPacket(source, destination, protocol, payload, fragment)


def _read_ipv6(packet: memoryview) -> IpPacket | None:
    if len(packet) < _IPV6_HEADER.size:
        return None
    payload_length, protocol, source, destination = _IPV6_HEADER.unpack_from(packet)
    payload = packet[_IPV6_HEADER.size :]
    if payload_length:  # 0: a jumbogram (RFC 2675) or segmentation offload
        payload = payload[:payload_length]
    protocol, payload = without_extension_headers(protocol, payload)
    if protocol != _FRAGMENT:
        return IpPacket(source, destination, protocol, payload)
    if len(payload) < _FRAGMENT_HEADER.size:
        return None
    protocol, offset_and_flag, identification = _FRAGMENT_HEADER.unpack_from(payload)
    payload = payload[_FRAGMENT_HEADER.size :]
    offset = offset_and_flag & 0xFFF8
    is_last = not offset_and_flag & 1
    if is_last and not offset:  # RFC 6946: an atomic fragment is a whole packet
        protocol, payload = without_extension_headers(protocol, payload)
        return IpPacket(source, destination, protocol, payload)
    return IpPacket(source, destination, protocol, payload, Fragment(identification, offset, is_last))
