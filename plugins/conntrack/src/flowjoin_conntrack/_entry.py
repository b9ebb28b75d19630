"""A connection as packed octets: what every dumper makes and the store compares.

Most connections of a poll have not changed since the last one. As octets of fixed layout they are compared in one
step, and one hundred thousand of them cost milliseconds; objects with attributes would cost seconds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Self

__all__ = [
    "IDENTITY",
    "ID_AT",
    "IPS_DYING",
    "NO_TCP_STATE",
    "OVER",
    "ROW",
    "START_AT",
    "STATE_AT",
    "TAIL",
    "TAIL_AT",
    "TCP_STATES",
    "ZONE",
    "Connection",
    "is_dying",
    "tcp_state_name",
]

# What tells connections apart. The kernel's id is part of it: a 5-tuple that is used again is another connection.
IDENTITY: Final = struct.Struct(">BBHI16s16sHH")
_REST: Final = "16s16sHHI16sQQIBQQQQ"
ROW: Final = struct.Struct(IDENTITY.format + _REST)
ZONE: Final = struct.Struct(">H")  # at octet 2
ID_AT: Final = 4
START_AT: Final = struct.calcsize(IDENTITY.format + "16s16sHHI16s")
TAIL: Final = struct.Struct(">IBQQQQ")  # status, TCP state, packets, octets, and both of the reply
TAIL_AT: Final = ROW.size - TAIL.size
STATE_AT: Final = TAIL_AT + 4

TCP_STATES: Final = (
    "NONE",
    "SYN_SENT",
    "SYN_RECV",
    "ESTABLISHED",
    "FIN_WAIT",
    "CLOSE_WAIT",
    "LAST_ACK",
    "TIME_WAIT",
    "CLOSE",
    "SYN_SENT2",
)
NO_TCP_STATE: Final = 255
OVER: Final = frozenset({TCP_STATES.index("TIME_WAIT"), TCP_STATES.index("CLOSE")})  # nothing more comes of it
IPS_DYING: Final = 0x200  # linux/netfilter/nf_conntrack_common.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One entry of the connection tracking table, unpacked.

    The source is the one of the original direction, the destination the source of the *reply*: the endpoint after
    destination NAT. Addresses are 16 octets, IPv4 in the last four.

    Attributes:
        family: 4 or 6.
        zone: conntrack zone.
        connection_id: the kernel's; 0 where the dumper has none.
        original_destination: destination of the original direction, before destination NAT.
        reply_destination: destination of the reply: where replies really go, after source NAT.
        mark: ``CTA_MARK``.
        labels: 16 octets, most significant first.
        start: nanoseconds since 1970; 0 when the kernel does not keep it.
        stop: nanoseconds since 1970; 0 while the connection lives.
        status: ``IPS_*`` bits.
        tcp_state: ``enum tcp_conntrack``; 255 for other protocols.
    """

    family: int
    protocol: int
    zone: int = 0
    connection_id: int = 0
    source: bytes
    destination: bytes
    source_port: int = 0
    destination_port: int = 0
    original_destination: bytes
    reply_destination: bytes
    original_destination_port: int = 0
    reply_destination_port: int = 0
    mark: int = 0
    labels: bytes = bytes(16)
    start: int = 0
    stop: int = 0
    status: int = 0
    tcp_state: int = NO_TCP_STATE
    packets: int = 0
    octets: int = 0
    reverse_packets: int = 0
    reverse_octets: int = 0

    def pack(self) -> bytes:
        """As a row of ``ROW``."""
        return ROW.pack(*(getattr(self, name) for name in self.__slots__))

    @classmethod
    def unpack(cls, row: bytes) -> Self:
        """Of a row."""
        return cls(**dict(zip(cls.__slots__, ROW.unpack(row), strict=True)))


def tcp_state_name(number: int) -> str:
    """As the kernel's tools write it; empty for other protocols and numbers that are not known."""
    return TCP_STATES[number] if number < len(TCP_STATES) else ""


def is_dying(tcp_state: int, status: int, *, is_present: bool) -> bool:
    """Whether nothing more will come of a connection."""
    if not is_present:
        return True
    if tcp_state_name(tcp_state):
        return tcp_state in OVER
    return bool(status & IPS_DYING)
