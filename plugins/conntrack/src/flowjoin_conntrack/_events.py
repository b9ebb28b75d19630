"""What begins and ends, as the kernel tells it."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Final

from flowjoin_conntrack._dumper import NetlinkReceiver, open_netlink
from flowjoin_conntrack._forms import read
from flowjoin_conntrack._netlink import EVENT_GROUPS, Reading

__all__ = ["EventSource", "open_events"]

_RECEIVE_BUFFER: Final = 32 * 1024 * 1024  # of some ten thousand events, where a moment brings as many
_MEMORY: Final = (errno.ENOBUFS, errno.ENOMEM)


class EventSource:
    """A socket that hears of every connection's beginning and end."""

    def __init__(self, netlink: socket.socket, zones: frozenset[int]) -> None:
        self._receiver = NetlinkReceiver(netlink)
        self._zones = zones

    async def wait_emptied(self) -> None:
        """Wait until everything that had been told by then has been taken."""
        await self._receiver.wait_emptied()

    async def readings(self) -> AsyncGenerator[Reading | None, None]:
        """What was told, in order; None where the kernel had more to tell than was read, and told no more of it.

        Raises:
            OSError: the socket is of no use any more.
        """
        while True:
            try:
                told = await self._receiver.some()
            except OSError as exc:
                if exc.errno not in _MEMORY:
                    raise
                yield None
            else:
                yield read(told, self._zones)


@contextmanager
def open_events(zones: tuple[int, ...]) -> Iterator[EventSource]:
    """From now on nothing that begins or ends is missed, but for what ``readings`` says.

    Raises:
        OSError: no such kernel, or this process may not.
    """
    with open_netlink(EVENT_GROUPS["new"] | EVENT_GROUPS["destroy"], _RECEIVE_BUFFER) as netlink:
        yield EventSource(netlink, frozenset(zones))
