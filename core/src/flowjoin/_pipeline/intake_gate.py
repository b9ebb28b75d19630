"""Slows down what can be slowed: TCP connections wait here while too many rows wait beside the table.

At the limit of stored flows, and in Proxy mode always, records make rows faster than a tick may take them out; the
kernel refuses records (``table_full``) rather than hold rows without bound. Over TCP nothing need be refused: while
the gate is closed nothing is read, TCP's own flow control reaches the peer, and memory stays bounded.
What does not close it: flows that leave late are not lost, and no lane ever holds up the table.
"""

from __future__ import annotations

import trio

__all__ = ["IntakeGate"]


class IntakeGate:
    """Open or closed; begins open."""

    def __init__(self) -> None:
        self._is_open = True
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def is_open(self) -> bool:
        return self._is_open

    def close(self) -> None:
        """Let nobody pass any more."""
        self._is_open = False

    def open(self) -> None:
        """Let everybody pass, one after the other, until the next ``close``."""
        self._is_open = True
        self._waiting.unpark_all()

    async def wait_open(self) -> None:
        """Return while it is open: what the caller does before its next checkpoint happens with an open gate."""
        await trio.lowlevel.checkpoint()
        while not self._is_open:
            await self._waiting.park()
