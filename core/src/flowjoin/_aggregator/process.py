"""Ticks the kernel, and takes out what is due, in slices short enough for everyone else to have their turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf

import trio

from flowjoin._kernel.interface import KeepsFlows, Kernel
from flowjoin._model.flow_batch import FlowBatch

__all__ = ["Aggregation"]

TICK_SECONDS = 1.0


class Aggregation:
    """Owns the kernel's time: one tick a second, earlier when rows should not wait for it."""

    def __init__(
        self,
        kernel: Kernel,
        deliver: Callable[[FlowBatch], None],
        wait_room: Callable[[], Awaitable[None]],
        *,
        clock: Callable[[], float] = trio.current_time,
        after_slice: Callable[[float], None] | None = None,
    ) -> None:
        """Take a kernel and where its batches go.

        Args:
            kernel: whose time this is.
            deliver: takes each batch at once, so that no cancellation can lose one.
            wait_room: called before batches are made; a checkpoint.
            clock: monotonic seconds.
            after_slice: called with the time when a slice of what is due has been delivered.
        """
        self._kernel = kernel
        self._deliver = deliver
        self._wait_room = wait_room
        self._clock = clock
        self._after_slice = after_slice
        self._wake = trio.Event()

    def wake(self) -> None:
        """Rows should leave before the next tick."""
        self._wake.set()

    async def run(self) -> None:
        """Tick until cancelled."""
        next_tick = self._clock()
        while True:
            now = self._clock()
            if now >= next_tick:
                next_tick = now + TICK_SECONDS
                self._kernel.tick(now)
            self._wake = trio.Event()
            await self.expire(now)
            with trio.move_on_at(next_tick):
                await self._wake.wait()

    async def expire(self, now: float) -> None:
        """Deliver everything that is due.

        Cancellation: what was not delivered is still in the kernel.
        """
        await self._wait_room()
        while (due := self._kernel.next_expiry()) is not None and due <= now:
            for batch in self._kernel.expire(now, self._kernel.flows_per_slice):
                self._deliver(batch)
            if self._after_slice is not None:
                self._after_slice(now)
            await self._wait_room()

    async def flush(self) -> None:
        """Nothing comes in any more: rows of every ready flow are delivered, and all flows stay.

        Cancellation: as for ``expire``.
        """
        assert isinstance(self._kernel, KeepsFlows), "asked for with a checkpoint alone"
        await self.expire(self._clock())
        cursor: int | None = 0
        while cursor is not None:
            batches, cursor = self._kernel.flush(cursor, self._kernel.flows_per_slice)
            for batch in batches:
                self._deliver(batch)
            await self._wait_room()

    async def finish(self) -> None:
        """Nothing comes in any more: every ready flow leaves, halves that wait are given up and counted."""
        await self.expire(inf)
