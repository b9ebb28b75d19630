"""What goes when there is too much of it, on the disk, in memory or by age: the oldest first, and counted."""

from __future__ import annotations

from collections.abc import Callable

from flowjoin._pipeline.spool.delivery import Delivery, Ledger
from flowjoin._pipeline.spool.intake import Intake
from flowjoin._pipeline.spool.read_cache import ReadCache
from flowjoin._pipeline.spool.settings import SpoolSettings
from flowjoin._pipeline.spool.settling import Settlement
from flowjoin._pipeline.spool.shelf import Segment, Shelf
from flowjoin._pipeline.spool.writer import SpoolWriter
from flowjoin.api._types import Logger

__all__ = ["Bounds"]


class Bounds:
    """Gives up what is beyond the settings.

    Attributes:
        settings: those in force.
    """

    def __init__(
        self,
        settings: SpoolSettings,
        *,
        intake: Intake,
        shelf: Shelf,
        cache: ReadCache,
        writer: SpoolWriter,
        delivery: Delivery,
        settlement: Settlement,
        ledger: Ledger,
        log: Logger,
        clock: Callable[[], float],
    ) -> None:
        """Connect the parts."""
        self.settings = settings
        self._intake = intake
        self._shelf = shelf
        self._cache = cache
        self._writer = writer
        self._delivery = delivery
        self._settlement = settlement
        self._ledger = ledger
        self._log = log
        self._clock = clock

    @property
    def memory_octets(self) -> int:
        """Of rows that are not, or not only, on the disk; without the cache."""
        return self._intake.octets + self._writer.open_octets + self._shelf.memory_octets

    def make_memory_room(self) -> int:
        """Give up the oldest rows in memory; gives how many."""
        limit = self.settings.memory_octets
        if self.memory_octets <= limit:
            return 0
        self._cache.shrink(0)
        waiting = self.memory_octets - self._shelf.memory_octets
        dropped = self._shelf.give_up_memory(max(0, limit - waiting))
        while self.memory_octets > limit and len(self._intake) > 1:
            dropped += len(self._intake.pop())
        self._ledger.dropped += dropped
        return dropped

    def give_up_beyond(self) -> bool:
        """Give up the oldest segments, by size and by age; whether there were any."""
        gone: list[Segment] = []
        while self._shelf.octets > self.settings.max_octets and (oldest := self._shelf.give_up_oldest()) is not None:
            gone.append(oldest)
        too_old = self._clock() - self.settings.max_age  # not by a clock that somebody may set
        self._writer.retire_before(too_old)
        gone += self._shelf.give_up_older(too_old)
        if not gone:
            return False
        rows = sum(segment.rows for segment in gone) + self._delivery.give_up(gone)
        self._cache.forget({segment.number for segment in gone})
        for segment in gone:
            segment.rows = 0
            if segment.files is not None:
                self._settlement.doomed.append(segment.files)
        self._ledger.dropped += rows
        if rows:
            self._log.warning("rows_dropped", rows=rows, cause="the spool's bounds")
        return True
