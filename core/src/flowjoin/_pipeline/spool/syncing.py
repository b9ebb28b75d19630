"""Has the disk make safe, at an interval, what was written to a spool."""

from __future__ import annotations

from math import inf

import trio

from flowjoin._pipeline.spool.settling import Settlement
from flowjoin._pipeline.spool.threads import InThread
from flowjoin._pipeline.spool.writer import SpoolWriter

__all__ = ["Syncing"]


class Syncing:
    """Syncs the segment that is written to, then the cursor; nothing where nothing was written."""

    def __init__(self, sync: str | float, writer: SpoolWriter, settlement: Settlement, *, run: InThread) -> None:
        """Connect the parts; ``sync`` is of the settings."""
        self._sync = sync
        self._writer = writer
        self._settlement = settlement
        self._run = run
        self._limiter = trio.CapacityLimiter(1)
        self._has_changed = trio.Event()

    def change(self, sync: str | float) -> None:
        """From now on at another interval, or never."""
        self._sync = sync
        self._has_changed.set()

    async def run(self) -> None:
        """Sync again and again, until cancelled."""
        looked_at = trio.current_time()
        while True:
            self._has_changed = trio.Event()
            # Counted from the last look, so that changes one after another put off nothing.
            with trio.move_on_at(looked_at + (self._sync if isinstance(self._sync, float) else inf)):
                await self._has_changed.wait()
                continue
            looked_at = trio.current_time()
            if self._writer.is_unsynced:
                await self._sync_now()

    async def _sync_now(self) -> None:
        self._writer.is_unsynced = False
        try:
            await self._writer.sync(self._limiter)
            await self._run(self._settlement.sync, limiter=self._limiter)
        except OSError as exc:
            self._writer.must_roll(exc)
