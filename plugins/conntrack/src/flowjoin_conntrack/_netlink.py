"""ctnetlink without a socket: requests as octets, replies as rows.

The layout is that of ``linux/netlink.h``, ``linux/netfilter/nfnetlink.h`` and
``linux/netfilter/nfnetlink_conntrack.h``. Attributes nest; each has a length and a type, padded to four octets.

Invariant: any octets give rows or ``NetlinkError``, never anything else. ``_compiled_netlink`` reads the same, faster.
"""

from __future__ import annotations

import enum
import os
import struct
import sys
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from flowjoin_conntrack._entry import NO_TCP_STATE, ROW, ZONE

__all__ = ["EVENT_GROUPS", "MessageKind", "NetlinkError", "Reading", "attributes", "dump_request", "read"]

_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_NFGEN: Final = struct.Struct(">BBH")  # family, version, resource id
_ATTRIBUTE: Final = struct.Struct("=HH")
_NLMSG_ERROR: Final = 2
_NLMSG_DONE: Final = 3
_NLMSG_OVERRUN: Final = 4
_NLM_F_REQUEST: Final = 0x01
_NLM_F_DUMP_INTR: Final = 0x10
_NLM_F_DUMP: Final = 0x300
_NLM_F_CREATE: Final = 0x400
_SUBSYSTEM: Final = 1  # NFNL_SUBSYS_CTNETLINK
_NEW: Final = _SUBSYSTEM << 8 | 0
_GET: Final = _SUBSYSTEM << 8 | 1
_DELETE: Final = _SUBSYSTEM << 8 | 2
_TYPE: Final = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER

# struct sockaddr_nl's groups: NF_NETLINK_CONNTRACK_NEW, _UPDATE, _DESTROY
EVENT_GROUPS: Final = {"new": 1, "update": 2, "destroy": 4}

_TUPLE_ORIG, _TUPLE_REPLY, _STATUS, _PROTOINFO = 1, 2, 3, 4
_MARK, _COUNTERS_ORIG, _COUNTERS_REPLY, _ID, _ZONE, _TIMESTAMP, _LABELS = 8, 9, 10, 12, 18, 20, 22
# CTA_IP_V4_SRC, _V4_DST, _V6_SRC, _V6_DST: octets, and which end
_ADDRESSES: Final = {1: (4, "source"), 2: (4, "destination"), 3: (16, "source"), 4: (16, "destination")}


class NetlinkError(OSError):
    """The kernel refused, or an answer that is none."""


class MessageKind(enum.IntEnum):
    """What a message says of its entry."""

    ENTRY = 0  # of a dump, or a connection that changed
    NEW = 1
    DESTROYED = 2


class Reading(NamedTuple):
    """What some datagrams said.

    Attributes:
        rows: of the wanted zones, as ``ROW`` packs them, one after the other.
        kinds: one octet a row, a ``MessageKind``.
        entries: how many there were, of whatever zone.
        is_done: the dump is complete.
        is_interrupted: the table changed so much that entries may be missing.
    """

    rows: bytes
    kinds: bytes
    entries: int
    is_done: bool
    is_interrupted: bool


def dump_request(family: int, *, zone: int | None, sequence: int) -> bytes:
    """Ask for the table of one family (``AF_INET``, ``AF_INET6``), or of all (``AF_UNSPEC``).

    Args:
        zone: asked of the kernel, which since Linux 6.8 leaves out the others by itself; older ones send all.
    """
    body = _NFGEN.pack(family, 0, 0)
    if zone is not None:
        body += _ATTRIBUTE.pack(6, _ZONE) + struct.pack(">Hxx", zone)
    return _HEADER.pack(_HEADER.size + len(body), _GET, _NLM_F_REQUEST | _NLM_F_DUMP, sequence, 0) + body


def read(buffer: bytes | memoryview, zones: Collection[int]) -> Reading:
    """The entries of one or several whole datagrams.

    Args:
        zones: keep the entries of these; empty keeps all.

    Raises:
        NetlinkError: the kernel answered with an error, lost messages, or something is cut short.
    """
    octets = bytes(buffer)
    rows: list[bytes] = []
    kinds = bytearray()
    entries, is_done, is_interrupted = 0, False, False
    for kind, flags, start, end in _messages(octets):
        is_interrupted |= bool(flags & _NLM_F_DUMP_INTR)
        if kind == _NLMSG_DONE:
            is_done = True
            continue
        entries += 1
        row = _entry_of(octets, start + _NFGEN.size, end)
        if row is None or (zones and ZONE.unpack_from(row, 2)[0] not in zones):
            continue
        rows.append(row)
        is_new = kind == _NEW and flags & _NLM_F_CREATE
        kinds.append(MessageKind.DESTROYED if kind == _DELETE else MessageKind.NEW if is_new else MessageKind.ENTRY)
    return Reading(b"".join(rows), bytes(kinds), entries, is_done, is_interrupted)


def _messages(buffer: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Type, flags, and where the body stands, of entries and of the end of a dump."""
    offset = 0
    while offset < len(buffer):
        if len(buffer) - offset < _HEADER.size:
            raise NetlinkError(f"a netlink message of {len(buffer) - offset} octets")
        length, kind, flags, _, _ = _HEADER.unpack_from(buffer, offset)
        end = offset + length
        if length < _HEADER.size or end > len(buffer):
            raise NetlinkError(f"a netlink message that says {length} octets, of {len(buffer) - offset}")
        body = offset + _HEADER.size
        if kind in (_NLMSG_ERROR, _NLMSG_DONE):
            (number,) = struct.unpack_from("=i", buffer, body) if end - body >= 4 else (0,)
            if number < 0:
                raise NetlinkError(-number, os.strerror(-number))
            if kind == _NLMSG_DONE:
                yield kind, flags, body, end
        elif kind == _NLMSG_OVERRUN:
            raise NetlinkError("the kernel lost messages")
        elif kind in (_NEW, _DELETE):
            yield kind, flags, body, end
        offset += (length + 3) & ~3


def attributes(buffer: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Type, and where the value begins and ends, of each attribute between two offsets.

    Raises:
        NetlinkError: one is longer than what is there.
    """
    while start + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(buffer, start)
        if length < 4 or start + length > end:
            raise NetlinkError(f"an attribute that says {length} octets, of {end - start}")
        yield kind & _TYPE, start + 4, start + length
        start += (length + 3) & ~3


def _octets(buffer: bytes, start: int, end: int, size: int) -> bytes:
    if end - start != size:
        raise NetlinkError(f"a value of {end - start} octets where {size} belong")
    return buffer[start:end]


def _number(buffer: bytes, start: int, end: int, size: int) -> int:
    return int.from_bytes(_octets(buffer, start, end, size), "big")


class _Direction:
    """A tuple: who sends to whom."""

    __slots__ = ("destination", "destination_port", "family", "protocol", "source", "source_port")

    def __init__(self, buffer: bytes, start: int, end: int) -> None:
        self.family = self.protocol = self.source_port = self.destination_port = 0
        self.source = self.destination = bytes(16)
        for kind, first, last in attributes(buffer, start, end):
            if kind == 1:  # CTA_TUPLE_IP
                for inner, at, to in attributes(buffer, first, last):
                    size, name = _ADDRESSES.get(inner, (0, ""))
                    if size:
                        self.family = 4 if size == 4 else 6
                        setattr(self, name, _octets(buffer, at, to, size).rjust(16, b"\0"))
            elif kind == 2:  # CTA_TUPLE_PROTO
                for inner, at, to in attributes(buffer, first, last):
                    if inner == 1:
                        self.protocol = _number(buffer, at, to, 1)
                    elif inner == 2:
                        self.source_port = _number(buffer, at, to, 2)
                    elif inner == 3:
                        self.destination_port = _number(buffer, at, to, 2)


def _tcp_state(buffer: bytes, start: int, end: int) -> int:
    found = NO_TCP_STATE
    for kind, first, last in attributes(buffer, start, end):
        if kind == 1:  # CTA_PROTOINFO_TCP
            for inner, at, to in attributes(buffer, first, last):
                if inner == 1:  # CTA_PROTOINFO_TCP_STATE
                    found = _number(buffer, at, to, 1)
    return found


def _pair(buffer: bytes, start: int, end: int) -> tuple[int, int]:
    """Attributes 1 and 2: packets and octets, or start and stop."""
    first = second = 0
    for kind, at, to in attributes(buffer, start, end):
        if kind == 1:
            first = _number(buffer, at, to, 8)
        elif kind == 2:
            second = _number(buffer, at, to, 8)
    return first, second


def _entry_of(buffer: bytes, start: int, end: int) -> bytes | None:
    """The row of one message; None where the entry is of no family that has flows, or has no tuples."""
    original = reply = None
    status = mark = identity = zone = began = stopped = 0
    packets = octets = reverse_packets = reverse_octets = 0
    tcp_state = NO_TCP_STATE
    labels = bytes(16)
    for kind, at, to in attributes(buffer, start, end):
        if kind == _TUPLE_ORIG:
            original = _Direction(buffer, at, to)
        elif kind == _TUPLE_REPLY:
            reply = _Direction(buffer, at, to)
        elif kind == _STATUS:
            status = _number(buffer, at, to, 4)
        elif kind == _PROTOINFO:
            tcp_state = _tcp_state(buffer, at, to)
        elif kind == _MARK:
            mark = _number(buffer, at, to, 4)
        elif kind == _COUNTERS_ORIG:
            packets, octets = _pair(buffer, at, to)
        elif kind == _COUNTERS_REPLY:
            reverse_packets, reverse_octets = _pair(buffer, at, to)
        elif kind == _ID:
            identity = _number(buffer, at, to, 4)
        elif kind == _ZONE:
            zone = _number(buffer, at, to, 2)
        elif kind == _TIMESTAMP:
            began, stopped = _pair(buffer, at, to)
        elif kind == _LABELS:
            # 128 bits in the machine's order of long words; here the most significant octet is first.
            given = buffer[at:to][:16].ljust(16, b"\0")
            labels = given[::-1] if sys.byteorder == "little" else given
    if original is None or reply is None or original.family == 0:
        return None
    return ROW.pack(
        original.family,
        original.protocol,
        zone,
        identity,
        original.source,
        reply.source,
        original.source_port,
        reply.source_port,
        original.destination,
        reply.destination,
        original.destination_port,
        reply.destination_port,
        mark,
        labels,
        began,
        stopped,
        status,
        tcp_state,
        packets,
        octets,
        reverse_packets,
        reverse_octets,
    )
