"""The flow that a packet belongs to, from its first octets: IPv4 (RFC 791) and IPv6 (RFC 8200) headers, then ports.

A packet comes from anywhere, and may be cut anywhere: what is missing is left out, and nothing is raised. Any octets
give a ``Packet`` or None.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

__all__ = ["Packet", "packet_of"]

_IPV4: Final = struct.Struct(">BBHHHBBH4s4s")
_IPV6: Final = struct.Struct(">IHBB16s16s")
_PORTS: Final = struct.Struct(">HH")
_WITH_PORTS: Final = frozenset({6, 17, 33, 132, 136})  # TCP, UDP, DCCP, SCTP, UDP-Lite
_FRAGMENT_OFFSET: Final = 0x1FFF
_FRAGMENT: Final = 44
_AUTHENTICATION: Final = 51
# Hop-by-hop options, routing, destination options, mobility, host identity, shim6: length in the second octet.
_EXTENSIONS: Final = frozenset({0, 43, 60, 135, 139, 140})


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """What the headers say.

    Attributes:
        family: 4 or 6.
        source: 16 octets, IPv4 in the last four.
        destination: as that.
        source_port: 0 for protocols without ports, later fragments, and where the packet is cut before them.
        destination_port: as that.
        octets: length of the whole packet, as its header says.
    """

    family: int
    protocol: int
    source: bytes
    destination: bytes
    source_port: int
    destination_port: int
    octets: int


def packet_of(payload: bytes) -> Packet | None:
    """Read a packet that begins with its IP header; None where there is none."""
    version = payload[0] >> 4 if payload else 0
    if version == 4:
        return _ipv4(payload)
    return _ipv6(payload) if version == 6 else None


def _ipv4(payload: bytes) -> Packet | None:
    if len(payload) < _IPV4.size:
        return None
    first, _, octets, _, fragment, _, protocol, _, source, destination = _IPV4.unpack_from(payload)
    header = 4 * (first & 15)
    if header < _IPV4.size:
        return None
    is_first = not fragment & _FRAGMENT_OFFSET
    source_port, destination_port = _ports(payload, header, protocol) if is_first else (0, 0)
    return Packet(
        family=4,
        protocol=protocol,
        source=source.rjust(16, b"\0"),
        destination=destination.rjust(16, b"\0"),
        source_port=source_port,
        destination_port=destination_port,
        octets=octets,
    )


def _ipv6(payload: bytes) -> Packet | None:
    if len(payload) < _IPV6.size:
        return None
    _, length, protocol, _, source, destination = _IPV6.unpack_from(payload)
    at: int | None = _IPV6.size
    # Each turn passes eight octets at least, so it ends.
    while at is not None and at + 8 <= len(payload):
        if protocol in _EXTENSIONS:
            protocol, at = payload[at], at + 8 * (payload[at + 1] + 1)
        elif protocol == _AUTHENTICATION:  # RFC 4302 section 2.2: its length counts 32-bit words, minus two
            protocol, at = payload[at], at + max(4 * (payload[at + 1] + 2), 8)
        elif protocol == _FRAGMENT:
            is_first = not int.from_bytes(payload[at + 2 : at + 4], "big") >> 3
            protocol, at = payload[at], at + 8 if is_first else None
        else:
            break
    source_port, destination_port = (0, 0) if at is None else _ports(payload, at, protocol)
    return Packet(
        family=6,
        protocol=protocol,
        source=source,
        destination=destination,
        source_port=source_port,
        destination_port=destination_port,
        octets=_IPV6.size + length,
    )


def _ports(payload: bytes, at: int, protocol: int) -> tuple[int, int]:
    if protocol not in _WITH_PORTS or at + _PORTS.size > len(payload):
        return 0, 0
    source, destination = _PORTS.unpack_from(payload, at)
    return source, destination
