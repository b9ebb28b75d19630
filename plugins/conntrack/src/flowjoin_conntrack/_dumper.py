"""Where rows come from: the one place with sockets, files and programs."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import trio

from flowjoin_conntrack._netlink import EVENT_GROUPS, Message, MessageKind, dump_request, entry_of, messages

__all__ = ["DumpInterruptedError", "Dumper", "NetlinkDumper", "open_events"]

_NETLINK_NETFILTER: Final = 12
_SO_RCVBUFFORCE: Final = 33
_RECEIVE_BUFFER: Final = 8 * 1024 * 1024
_DATAGRAM: Final = 256 * 1024
_SYSCTLS: Final = ("nf_conntrack_acct", "nf_conntrack_timestamp")


class DumpInterruptedError(OSError):
    """The table changed so much while it was read that entries may be missing."""


class Dumper(Protocol):
    """Reads the table."""

    has_counters: bool

    def dump(self) -> AsyncIterator[list[bytes]]:
        """All entries, in portions that arrive together.

        Raises:
            OSError: the table cannot be read, or not be read whole.
        """
        ...

    def max_connections(self) -> int:
        """The table's size; 0 where it is not told."""
        ...


def _open_socket(groups: int) -> trio.socket.SocketType:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
    try:
        with suppress(PermissionError):  # without CAP_NET_ADMIN of the root namespace the default must do
            made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        made.bind((0, groups))
        return trio.socket.from_stdlib_socket(made)
    except BaseException:
        made.close()
        raise


class NetlinkDumper:
    """The kernel's table, by ctnetlink; needs CAP_NET_ADMIN."""

    has_counters = True

    def __init__(self, zones: tuple[int, ...]) -> None:
        self._zones: tuple[int | None, ...] = zones or (None,)

    async def dump(self) -> AsyncIterator[list[bytes]]:
        for family in (socket.AF_INET, socket.AF_INET6):
            for zone in self._zones:
                async for rows in self._dump(family, zone):
                    yield rows

    async def _dump(self, family: int, zone: int | None) -> AsyncIterator[list[bytes]]:
        is_interrupted = False
        with _open_socket(0) as netlink:
            await netlink.send(dump_request(family, zone=zone, sequence=1))
            while True:
                datagram = await netlink.recv(_DATAGRAM)
                rows: list[bytes] = []
                for message in messages(datagram):
                    is_interrupted |= message.is_interrupted
                    if message.kind is MessageKind.DONE:
                        yield rows
                        if is_interrupted:
                            raise DumpInterruptedError(errno.EINTR, "the table changed while it was read")
                        return
                    row = entry_of(datagram, message.start, message.end)
                    if row is not None:
                        rows.append(row)
                yield rows

    def max_connections(self) -> int:
        return _read_number("nf_conntrack_max")


def unset_sysctls() -> list[str]:
    """Switch on counters and timestamps; the names of those that could not be."""
    missing = []
    for name in _SYSCTLS:
        path = Path("/proc/sys/net/netfilter") / name
        with suppress(OSError):
            if path.read_text(encoding="ascii").strip() != "1":
                path.write_text("1", encoding="ascii")
        if _read_number(name) != 1:
            missing.append(f"net.netfilter.{name}")
    return missing


def _read_number(name: str) -> int:
    try:
        return int((Path("/proc/sys/net/netfilter") / name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


@asynccontextmanager
async def open_events() -> AsyncIterator[AsyncIterator[list[tuple[MessageKind, bytes]]]]:
    """What begins, changes and ends, as it happens.

    Raises:
        OSError: ENOBUFS, more happened than was read: the next poll puts it right.
    """
    with _open_socket(EVENT_GROUPS["new"] | EVENT_GROUPS["destroy"]) as netlink:
        yield _events(netlink)


async def _events(netlink: trio.socket.SocketType) -> AsyncIterator[list[tuple[MessageKind, bytes]]]:
    while True:
        datagram = await netlink.recv(_DATAGRAM)
        seen: list[tuple[MessageKind, bytes]] = []
        message: Message
        for message in messages(datagram):
            row = entry_of(datagram, message.start, message.end)
            if row is not None:
                seen.append((message.kind, row))
        yield seen
