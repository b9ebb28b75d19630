"""Who is connected, and who leaves when there is no room for another.

Room is made by the connection that has been without a request for longest, so that nobody keeps a probe out by
connecting and saying nothing. Where every connection is being answered, the next one waits.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

__all__ = ["Places"]


class Places:
    """The connections of a server, at most ``most`` of them."""

    def __init__(self, most: int, made_room: Callable[[], object]) -> None:
        """Take the number, and who is told of each connection that left for another."""
        self._most = most
        self._made_room = made_room
        self._all: dict[trio.SocketStream, trio.CancelScope] = {}
        self._silent: dict[trio.SocketStream, None] = {}  # without a request, the longest first
        self._changed = trio.lowlevel.ParkingLot()

    async def take(self, stream: trio.SocketStream) -> trio.CancelScope:
        """Wait for a place, and make one if that can be; gives what its task runs in, cancelled when it must leave."""
        await trio.lowlevel.checkpoint()
        while len(self._all) >= self._most:
            silent = next(iter(self._silent), None)
            if silent is not None:
                self.end(silent)
                self._made_room()
            await self._changed.park()
        scope = self._all[stream] = trio.CancelScope()
        self._silent[stream] = None
        return scope

    def end(self, stream: trio.SocketStream) -> None:
        """Make it leave."""
        self._silent.pop(stream, None)
        self._all[stream].cancel()

    def leave(self, stream: trio.SocketStream) -> None:
        """It is over."""
        self._all.pop(stream, None)
        self._silent.pop(stream, None)
        self._changed.unpark_all()

    def asks(self, stream: trio.SocketStream) -> None:
        """It has a request that is being answered."""
        self._silent.pop(stream, None)

    def is_answered(self, stream: trio.SocketStream) -> None:
        """It may ask again."""
        if stream in self._all and not self._all[stream].cancel_called:
            self._silent[stream] = None
            self._changed.unpark_all()

    def close(self) -> None:
        """Close all, under whoever waits for them, shielded or not."""
        for stream in self._all:
            stream.socket.close()
