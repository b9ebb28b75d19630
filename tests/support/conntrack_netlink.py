"""Messages of ctnetlink as a kernel makes them, of connections that tests choose."""

from __future__ import annotations

import struct
import sys

from flowjoin_conntrack._entry import NO_TCP_STATE, Connection

__all__ = ["datagram", "message"]

NEW, DELETE, DONE = 0x100, 0x102, 3
_NESTED = 0x8000


def attribute(kind: int, value: bytes) -> bytes:
    made = struct.pack("=HH", 4 + len(value), kind) + value
    return made + bytes(-len(made) % 4)


def _tuple(kind: int, family: int, protocol: int, ends: tuple[bytes, int, bytes, int]) -> bytes:
    source, source_port, destination, destination_port = ends
    size, first = (4, 1) if family == 4 else (16, 3)
    addresses = attribute(first, source[-size:]) + attribute(first + 1, destination[-size:])
    numbers = attribute(1, bytes([protocol]))
    if protocol not in (1, 58):
        numbers += attribute(2, struct.pack(">H", source_port)) + attribute(3, struct.pack(">H", destination_port))
    return attribute(kind | _NESTED, attribute(1 | _NESTED, addresses) + attribute(2 | _NESTED, numbers))


def _pair(kind: int, first: int, second: int) -> bytes:
    return attribute(kind | _NESTED, attribute(1, struct.pack(">Q", first)) + attribute(2, struct.pack(">Q", second)))


def message(one: Connection, *, kind: int = NEW, flags: int = 0) -> bytes:
    """One entry."""
    original = (one.source, one.source_port, one.original_destination, one.original_destination_port)
    reply = (one.destination, one.destination_port, one.reply_destination, one.reply_destination_port)
    body = struct.pack(">BBH", 2 if one.family == 4 else 10, 0, 0)
    body += _tuple(1, one.family, one.protocol, original) + _tuple(2, one.family, one.protocol, reply)
    body += attribute(3, struct.pack(">I", one.status)) + attribute(7, struct.pack(">I", 123))  # CTA_TIMEOUT
    if one.tcp_state != NO_TCP_STATE:
        body += attribute(4 | _NESTED, attribute(1 | _NESTED, attribute(1, bytes([one.tcp_state]))))
    body += attribute(8, struct.pack(">I", one.mark)) + attribute(12, struct.pack(">I", one.connection_id))
    body += _pair(9, one.packets, one.octets) + _pair(10, one.reverse_packets, one.reverse_octets)
    body += _pair(20, one.start, one.stop)
    if one.zone:
        body += attribute(18, struct.pack(">H", one.zone))
    if any(one.labels):
        body += attribute(22, one.labels[::-1] if sys.byteorder == "little" else one.labels)
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body


def datagram(*connections: Connection) -> bytes:
    """A whole dump."""
    return b"".join(map(message, connections)) + struct.pack("=IHHIIi", 20, DONE, 2, 1, 0, 0)
