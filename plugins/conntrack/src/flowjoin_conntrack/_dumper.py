"""Where rows come from: what a dumper promises, and the kernel's own by netlink."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import trio

from flowjoin_conntrack._forms import READ_OCTETS, read
from flowjoin_conntrack._netlink import dump_request

__all__ = [
    "DefaultZoneFirst",
    "DumpInterruptedError",
    "Dumper",
    "NetlinkDumper",
    "NetlinkReceiver",
    "Portion",
    "open_netlink",
    "read_number",
    "unset_sysctls",
]

_NETLINK_NETFILTER: Final = 12
_SO_RCVBUFFORCE: Final = 33
_RECEIVE_BUFFER: Final = 8 * 1024 * 1024
LARGEST_DATAGRAM: Final = 32 * 1024  # the kernel makes none larger (netlink_dump)
_DIRECTORY: Final = Path("/proc/sys/net/netfilter")
_SYSCTLS: Final = ("nf_conntrack_acct", "nf_conntrack_timestamp")
_ZONES_IN_KERNEL: Final = (6, 8)  # Linux releases from this one on leave out other zones by themselves


class DumpInterruptedError(OSError):
    """The table changed so much while it was read that entries may be missing."""


class Portion(NamedTuple):
    """Entries that arrived together: no more than are handled in one go.

    Attributes:
        rows: those that are wanted, as ``ROW`` packs them, one after the other.
        entries: how many there were, of whatever zone.
        unreadable: lines that made no sense.
    """

    rows: bytes
    entries: int
    unreadable: int = 0


class Dumper(Protocol):
    """Reads the table."""

    @property
    def has_counters(self) -> bool:
        """Whether its data path counts packets and octets."""
        ...

    def dump(self) -> AsyncGenerator[Portion, None]:
        """All entries; whoever leaves early closes it.

        Raises:
            OSError: the table cannot be read, or not be read whole.
        """
        ...

    async def max_connections(self) -> int:
        """The table's size; 0 where it is not told."""
        ...

    async def count(self) -> int:
        """How many it holds, of whatever zone; 0 where that is told by the entries that a dump gives alone."""
        ...


def open_netlink(groups: int, receive_octets: int = _RECEIVE_BUFFER) -> socket.socket:
    """A socket that does not block.

    Raises:
        OSError: no such kernel, or this process may not.
    """
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
    try:
        with suppress(PermissionError):  # without CAP_NET_ADMIN of the root namespace the default must do
            made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, receive_octets)
        made.bind((0, groups))
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


class NetlinkReceiver:
    """Takes what a socket has, many datagrams at once."""

    def __init__(self, netlink: socket.socket) -> None:
        self._netlink = netlink
        self._buffer = memoryview(bytearray(READ_OCTETS))
        self._failure: OSError | None = None
        self._is_waiting = False
        self._was_emptied = trio.Event()

    async def wait_emptied(self) -> None:
        """Wait until all that came has been taken, and whoever took it asks for more."""
        await trio.lowlevel.checkpoint()
        if not self._is_waiting:
            await self._was_emptied.wait()

    async def some(self) -> memoryview:
        """Whole datagrams, at least one; good until the next call.

        Raises:
            OSError: of the socket, after what came before; ENOBUFS says that something was lost.
        """
        await trio.lowlevel.checkpoint()
        filled = 0
        while not filled:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            try:
                while len(self._buffer) - filled >= LARGEST_DATAGRAM:
                    filled += self._netlink.recv_into(self._buffer[filled:])
            except BlockingIOError:
                if not filled:
                    await self._wait_readable()
            except OSError as exc:
                self._failure = exc
        return self._buffer[:filled]

    async def _wait_readable(self) -> None:
        self._was_emptied.set()
        self._was_emptied = trio.Event()
        self._is_waiting = True
        try:
            await trio.lowlevel.wait_readable(self._netlink)
        finally:
            self._is_waiting = False


class NetlinkDumper:
    """The kernel's table, by ctnetlink; needs CAP_NET_ADMIN."""

    has_counters = True

    def __init__(self, zones: tuple[int, ...]) -> None:
        self._zones = frozenset(zones)

    async def dump(self) -> AsyncGenerator[Portion, None]:
        asked: tuple[int | None, ...] = (None,)
        if self._zones and (len(self._zones) == 1 or _release() >= _ZONES_IN_KERNEL):
            asked = tuple(sorted(self._zones))
        for zone in asked:
            request = dump_request(socket.AF_UNSPEC, zone=zone, sequence=1)
            is_done = is_interrupted = False
            with open_netlink(0) as netlink:
                receiver = NetlinkReceiver(netlink)
                netlink.send(request)
                while not is_done:
                    found = read(await receiver.some(), self._zones)
                    is_done, is_interrupted = found.is_done, is_interrupted or found.is_interrupted
                    yield Portion(found.rows, found.entries)
            if is_interrupted:
                raise DumpInterruptedError(errno.EINTR, "the table changed while it was read")

    async def max_connections(self) -> int:
        await trio.lowlevel.checkpoint()
        return read_number("nf_conntrack_max")

    async def count(self) -> int:
        await trio.lowlevel.checkpoint()
        return read_number("nf_conntrack_count")


class DefaultZoneFirst:
    """Two dumpers of one table, of which the first gives what the second's entries are understood by."""

    def __init__(self, first: Dumper, second: Dumper) -> None:
        self._first = first
        self._second = second
        self._entries = 0
        self.has_counters = second.has_counters

    async def dump(self) -> AsyncGenerator[Portion, None]:
        for dumper in (self._first, self._second):
            self._entries = 0
            async with aclosing(dumper.dump()) as portions:
                async for portion in portions:
                    self._entries += portion.entries
                    yield portion

    async def max_connections(self) -> int:
        return await self._second.max_connections()

    async def count(self) -> int:
        # A dumper that does not leave out other zones reads every entry twice; the table holds it once.
        return await self._second.count() or self._entries


def _release() -> tuple[int, ...]:
    numbers = os.uname().release.split("-")[0].split(".")[:2]
    return tuple(map(int, numbers)) if all(map(str.isdecimal, numbers)) else ()


def unset_sysctls() -> list[str]:
    """Switch on counters and timestamps; the names of those that could not be."""
    missing = []
    for name in _SYSCTLS:
        path = _DIRECTORY / name
        with suppress(OSError):
            if path.read_text(encoding="ascii").strip() != "1":
                path.write_text("1", encoding="ascii")
        if read_number(name) != 1:
            missing.append(f"net.netfilter.{name}")
    return missing


def read_number(name: str) -> int:
    """Of ``/proc/sys/net/netfilter``; 0 where there is none."""
    try:
        return int((_DIRECTORY / name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
