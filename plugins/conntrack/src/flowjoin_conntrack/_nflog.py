"""nfnetlink_log without a socket: how a group is asked for, and what its packets say.

The layout is that of ``linux/netfilter/nfnetlink_log.h``. Rules with ``log group N`` give a copy of each packet's
first octets to whoever bound the group, with a prefix, marks, interfaces, and what connection tracking knows of it.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from flowjoin_conntrack._entry import ROW, Connection
from flowjoin_conntrack._forms import read
from flowjoin_conntrack._netlink import NetlinkError, attributes
from flowjoin_conntrack._packet import Packet, packet_of

__all__ = ["Acknowledged", "LoggedPacket", "bind_request", "logged_packets"]

_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_NFGEN: Final = struct.Struct(">BBH")  # family, version, group
_SUBSYSTEM: Final = 4 << 8  # NFNL_SUBSYS_ULOG
_PACKET: Final = _SUBSYSTEM | 0
_TRACKED: Final = 1 << 8  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW
_CONFIG: Final = _SUBSYSTEM | 1
_NLMSG_ERROR: Final = 2
_NLM_F_REQUEST_ACK: Final = 0x01 | 0x04
_COMMAND_BIND: Final = 1
_COPY_PACKET: Final = 2
_WITH_SEQUENCE: Final = 0x1
_WITH_CONNECTION: Final = 0x4

# enum nfulnl_attr_config
_CFG_COMMAND, _CFG_MODE, _CFG_BUFFER, _CFG_TIMEOUT, _CFG_THRESHOLD, _CFG_FLAGS = 1, 2, 3, 4, 5, 6
# enum nfulnl_attr_type
_HDR, _MARK, _TIMESTAMP, _INDEV, _OUTDEV, _PAYLOAD, _PREFIX, _SEQUENCE, _CT = 1, 2, 3, 4, 5, 9, 10, 12, 18


class Acknowledged:
    """The kernel did what it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedPacket:
    """One packet that a rule logged.

    Attributes:
        packet: None where it is no IP packet.
        prefix: what the rule says.
        mark: the packet's.
        hook: where it was: 0 prerouting, 1 input, 2 forward, 3 output, 4 postrouting; 5 and more have no direction.
        input_device: index of the interface it came by; 0 for what this host sends.
        output_device: index of the interface it was to leave by; 0 where that was not decided.
        at: nanoseconds since 1970, when it arrived; 0 where the kernel does not tell.
        sequence: counts the group's packets, lost ones too; None where the kernel does not.
        connection: what connection tracking knows of it; counters are not told.
    """

    packet: Packet | None
    prefix: str = ""
    mark: int = 0
    hook: int = 255
    input_device: int = 0
    output_device: int = 0
    at: int = 0
    sequence: int | None = None
    connection: Connection | None = None


def bind_request(
    group: int, *, copy_octets: int, batch: int, flush_seconds: float, with_connection: bool, sequence: int
) -> bytes:
    """Ask for a group; answered by ``Acknowledged``, or an error where somebody else has it.

    Args:
        copy_octets: of each packet, from its IP header.
        batch: packets that the kernel gathers before it gives them.
        flush_seconds: and how long it waits for as many.
        sequence: of the request.
    """
    body = _NFGEN.pack(socket.AF_UNSPEC, 0, group)
    for kind, value in (
        (_CFG_COMMAND, struct.pack("B", _COMMAND_BIND)),
        (_CFG_MODE, struct.pack(">IBx", copy_octets, _COPY_PACKET)),
        (_CFG_TIMEOUT, struct.pack(">I", max(1, round(flush_seconds * 100)))),
        (_CFG_THRESHOLD, struct.pack(">I", batch)),
        (_CFG_FLAGS, struct.pack(">H", _WITH_SEQUENCE | (_WITH_CONNECTION if with_connection else 0))),
    ):
        body += (struct.pack("=HH", 4 + len(value), kind) + value).ljust(8 + (len(value) - 1) // 4 * 4, b"\0")
    return _HEADER.pack(_HEADER.size + len(body), _CONFIG, _NLM_F_REQUEST_ACK, sequence, 0) + body


def logged_packets(buffer: bytes) -> Iterator[LoggedPacket | Acknowledged]:
    """The packets of one datagram.

    Raises:
        NetlinkError: the kernel answered with an error, or the datagram is cut short.
    """
    offset = 0
    while offset < len(buffer):
        if len(buffer) - offset < _HEADER.size:
            raise NetlinkError(f"a netlink message of {len(buffer) - offset} octets")
        length, kind, _, _, _ = _HEADER.unpack_from(buffer, offset)
        body, end = offset + _HEADER.size, offset + length
        if length < _HEADER.size or end > len(buffer):
            raise NetlinkError(f"a netlink message that says {length} octets, of {len(buffer) - offset}")
        if kind == _PACKET:
            yield _logged_packet(buffer, body + _NFGEN.size, end)
        elif kind == _NLMSG_ERROR:
            (number,) = struct.unpack_from("=i", buffer, body) if end - body >= 4 else (0,)
            if number < 0:
                raise NetlinkError(-number, os.strerror(-number))
            yield Acknowledged()
        offset += (length + 3) & ~3


def _logged_packet(buffer: bytes, start: int, end: int) -> LoggedPacket:
    found = {kind: (at, to) for kind, at, to in attributes(buffer, start, end)}

    def octets(kind: int) -> bytes:
        at, to = found.get(kind, (0, 0))
        return buffer[at:to]

    def number(kind: int) -> int:
        return int.from_bytes(octets(kind), "big")

    header, stamp = octets(_HDR), octets(_TIMESTAMP)
    seconds, microseconds = struct.unpack(">QQ", stamp) if len(stamp) == 16 else (0, 0)
    return LoggedPacket(
        packet=packet_of(octets(_PAYLOAD)),
        prefix=octets(_PREFIX).partition(b"\0")[0].decode("utf-8", "replace"),
        mark=number(_MARK),
        hook=header[2] if len(header) >= 3 else 255,
        input_device=number(_INDEV),
        output_device=number(_OUTDEV),
        at=seconds * 1_000_000_000 + microseconds * 1000,
        sequence=number(_SEQUENCE) if _SEQUENCE in found else None,
        connection=_connection(octets(_CT)),
    )


def _connection(told: bytes) -> Connection | None:
    """What connection tracking tells in a packet's message is what it tells in messages of its own."""
    if not told:
        return None
    body = _NFGEN.pack(socket.AF_UNSPEC, 0, 0) + told
    rows = read(_HEADER.pack(_HEADER.size + len(body), _TRACKED, 0, 0, 0) + body, frozenset()).rows
    return Connection.unpack(rows) if len(rows) == ROW.size else None
