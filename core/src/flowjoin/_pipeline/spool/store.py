"""A lane's rows in its spool: the shell between the lane, the writer and the files.

Two tasks share the state, both on trio's thread. The *writing* one takes what was put, and closes batches when they are
full or the exporter is ready for one. The *lane* asks for the next part, which is in memory if there was room (the read
cache) and else read from the disk, and tells what became of it.

Rows are safe once they are written; ``put`` only queues them, so that a slow disk holds nobody up.

Invariant: rows put + rows restored = delivered + dead letters + dropped + held, after every call and at every await.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Final

import trio

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.health import Component
from flowjoin._pipeline.lane_head import Part
from flowjoin._pipeline.lane_queue import LaneBooks
from flowjoin._pipeline.spool.bounds import Bounds
from flowjoin._pipeline.spool.cursor import CursorFile
from flowjoin._pipeline.spool.dead_letters import DEAD_LETTERS, DeadLetters
from flowjoin._pipeline.spool.delivery import Delivery, Ledger
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.index import Head as IndexHead
from flowjoin._pipeline.spool.intake import Intake
from flowjoin._pipeline.spool.read_cache import ReadCache
from flowjoin._pipeline.spool.reader import SegmentReader
from flowjoin._pipeline.spool.restoring import restore
from flowjoin._pipeline.spool.segments import (
    check_format,
    list_segments,
    list_without_index,
    next_number,
    remove_unfinished,
)
from flowjoin._pipeline.spool.settings import SpoolBounds, SpoolSettings
from flowjoin._pipeline.spool.settling import Settlement
from flowjoin._pipeline.spool.shelf import Shelf
from flowjoin._pipeline.spool.syncing import Syncing
from flowjoin._pipeline.spool.threads import InThread, in_thread
from flowjoin._pipeline.spool.writer import SpoolWriter
from flowjoin.api._types import Batching, Logger

__all__ = ["SpoolStore"]

_AGE_CHECK_SECONDS: Final = 30.0
_CLOSING_SECONDS: Final = 10.0
_WRITE_OCTETS: Final = 2 * 1024 * 1024  # in memory, of one write
_WRITE_BATCHES: Final = 64  # to say where their rows go takes a millisecond


class SpoolStore:
    """Keeps a lane's rows on the disk until they are settled."""

    is_durable: Final = True

    def __init__(
        self,
        settings: SpoolSettings,
        batching: Batching,
        *,
        instance_id: str,
        lane: str,
        epoch: int,
        registry: ElementRegistry,
        component: Component,
        log: Logger,
        clock: Callable[[], float],
        wall: Callable[[], float],
        disk: Disk | None = None,
        run: InThread = in_thread,
    ) -> None:
        """Open the cursor and see which segments there are.

        Args:
            settings: where, and the bounds.
            batching: how large batches should be.
            instance_id: with lane, epoch and a number the id of a batch.
            lane: the exporter's name.
            epoch: of this start.
            registry: of the batches read back.
            component: is told how the disk does.
            log: of the lane.
            clock: monotonic seconds.
            wall: seconds since the Unix epoch.
            disk: the file system.
            run: runs what blocks.

        Raises:
            OSError: the directory cannot be used, or a newer flowjoin wrote to it.
        """
        self._settings = settings
        self._registry = registry
        self._component = component
        self._log = log
        self._wall = wall
        self._disk = disk or Disk()
        for folder in (settings.directory.parent, settings.directory.parent.parent):
            self._disk.sync_directory(folder)  # a name that a loss of power takes would take the spool with it
        unremoved = remove_unfinished(self._disk, settings.directory)
        self._found = list_segments(self._disk, settings.directory)
        for newest in self._found[-1:]:
            check_format(self._disk, newest)
        self._without_index = list_without_index(self._disk, settings.directory)
        cursor_file = CursorFile(self._disk, settings.directory)  # when all is found good: it stays open
        cursor = cursor_file.restored
        number = next_number(self._disk, settings.directory, cursor)
        self._own = IndexHead(instance_id, lane, number)
        self._intake = Intake()
        self._shelf = Shelf()
        self._cache = ReadCache()
        self._writer = SpoolWriter(
            settings,
            batching,
            self._shelf,
            self._cache,
            head=self._own,
            epoch=epoch,
            disk=self._disk,
            component=component,
            log=log,
            clock=clock,
            wall=wall,
            run=run,
        )
        self._run = run
        self._clock = clock
        self._letters = DeadLetters(
            self._disk, settings.directory / DEAD_LETTERS, settings.dead_letter_octets, self._own, wall
        )
        self._settlement = Settlement(
            cursor_file, self._letters, self._disk, run=run, component=component, log=log, clock=clock
        )
        self._settlement.doomed += unremoved
        self._syncing = Syncing(settings.sync, self._writer, self._settlement, run=run)
        reader = SegmentReader(self._disk, registry, run=run, component=component, log=log)
        self._ledger = Ledger()
        self._delivery = Delivery(self._shelf, self._cache, reader, self._settlement, self._ledger, log)
        self.restored_since: float | None = None
        self._bounds = Bounds(
            settings,
            intake=self._intake,
            shelf=self._shelf,
            cache=self._cache,
            writer=self._writer,
            delivery=self._delivery,
            settlement=self._settlement,
            ledger=self._ledger,
            log=log,
            clock=clock,
        )
        self._is_wanted = self._is_flushing = self._is_ending = self._is_restored = False
        self._work = trio.Event()
        self._progress = trio.Event()
        self._notify: Callable[[], None] = lambda: None
        self._restoring_limiter = trio.CapacityLimiter(1)
        component.opened()

    # What is asked without waiting.

    @property
    def held(self) -> int:
        """Rows that wait, or are being exported."""
        writer = self._writer
        rows = self._intake.rows + writer.open_rows + writer.closing_rows
        return rows + self._shelf.rows + self._delivery.head.rows

    @property
    def is_full(self) -> bool:
        """Whether the disk is so far behind that the next batch would cost the oldest one."""
        return self._bounds.memory_octets > self._settings.memory_octets

    @property
    def deadline(self) -> float | None:
        """None: the writing task knows when a batch is due, and notifies."""
        return None

    @property
    def current(self) -> Part | None:
        return self._delivery.head.current if self._delivery.head.is_exporting else None

    @property
    def last_batch(self) -> str:
        """The id of the last batch that was closed; before the first of this run, with the number 0."""
        return self._writer.last_batch

    @property
    def can_be_left(self) -> bool:
        """Whether it is known to be empty."""
        return self._is_restored and not self.held

    @property
    def octets(self) -> int:
        """On the disk."""
        return self._shelf.octets

    def books(self) -> LaneBooks:
        """A snapshot."""
        spooled = self._shelf.spooled_rows + self._writer.spooled_open_rows
        spooled += self._intake.restored_rows + self._delivery.spooled_rows
        return LaneBooks(
            rows_in=self._ledger.rows_in,
            delivered=self._delivery.head.delivered,
            dead_lettered=self._delivery.head.dead_lettered,
            dropped=self._ledger.dropped,
            held=self.held,
            batches=self._delivery.head.batches,
            failures=self._delivery.head.failures,
            retried=self._delivery.head.retried,
            restored=self._ledger.restored,
            damaged=self._ledger.damaged,
            spooled=spooled,
            spool_octets=self._shelf.octets,
        )

    def change(self, batching: Batching, bounds: SpoolBounds | None) -> None:
        """Make batches of another size from now on, within other bounds on the disk; what is closed stays as it is."""
        if bounds is not None:
            self._settings = self._settings.within(bounds)
            self._letters.max_octets = self._settings.dead_letter_octets
        self._writer.change(batching, self._settings)
        self._bounds.settings = self._settings
        self._syncing.change(self._settings.sync)
        self._work.set()

    def put(self, batch: FlowBatch, now: float, *, may_drop: bool = True) -> int:
        """Queue a batch for the disk; gives the number of rows that were dropped to make room."""
        was_full = self.is_full  # who waited for room drops nothing, however large the batch
        self._ledger.rows_in += len(batch)
        self._intake.put(batch)
        self._work.set()
        return self._bounds.make_memory_room() if may_drop and was_full else 0

    def settle(self, refused: Collection[int] = (), reason: str = "") -> None:
        """The part is done: these rows of it are dead letters for that reason, the others delivered."""
        self._delivery.settle(refused, reason)
        self._leave_settled()

    def keep(self, *, was_tried: bool = True) -> None:
        """The part failed, or was not even tried, and stays the next."""
        self._delivery.head.keep(was_tried=was_tried)

    def cut(self) -> None:
        """The part, which failed, becomes its two halves."""
        self._delivery.cut()

    def bury(self, reason: str) -> None:
        """The part, which failed, is dead letters."""
        self._delivery.bury(reason)
        self._leave_settled()

    def hand_on(self) -> list[FlowBatch]:
        """Nothing: it is only left when it is empty."""
        assert not self.held, "what is on the disk stays there"
        return []

    # What waits for the disk.

    async def begin(self, now: float, *, flush: bool = False) -> Part | None:
        """The next part to export; None when nothing is due.

        Cancellation: nothing is lost.
        """
        self._is_flushing = flush
        await self.persist()
        while self._delivery.head.is_empty:
            segment = self._shelf.first() if self._is_restored else None
            if segment is not None:
                await self._delivery.load(segment)
                self._leave_settled()
                continue
            self._is_wanted = True
            self._work.set()
            if not (flush and (self.held or not self._is_restored)):
                return None
            self._progress = trio.Event()
            await self._progress.wait()
        self._is_wanted = False
        return self._delivery.head.begin()

    async def persist(self) -> None:
        """Write down what was settled, dead letters first; remove segments of which nothing is left."""
        if await self._settlement.persist():
            self._writer.is_unsynced = True

    @asynccontextmanager
    async def opened(self, notify: Callable[[], None]) -> AsyncIterator[None]:
        """At work. On leaving, all that was put is written, if the disk takes it in time."""
        self._notify = notify
        ended = trio.Event()
        shield = trio.CancelScope(shield=True)

        async def write() -> None:
            with shield:
                await self._write_until_the_end()
            ended.set()

        name = f"spool {self._own.lane}"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, name=name)
            nursery.start_soon(self._keep_age, name=f"{name}, age")
            nursery.start_soon(self._syncing.run, name=f"{name}, sync")
            try:
                yield
            finally:
                self._is_ending = True
                self._work.set()
                with trio.move_on_after(_CLOSING_SECONDS, shield=True) as patience:
                    await ended.wait()
                shield.cancel()
                nursery.cancel_scope.cancel()
        if not patience.cancelled_caught:  # else a thread may still be writing
            self._settlement.close()
        self._component.ended()

    def _leave_settled(self) -> None:
        newest = self._writer.newest if self._intake.has_restored or self._writer.may_need_newest else None
        for segment in self._shelf.leave_settled(self._delivery.segment, newest):
            if segment.files is not None:
                self._settlement.doomed.append(segment.files)

    # The writing side.

    async def _write_until_the_end(self) -> None:
        await self._restore()
        while True:
            await self._wait_for_work()
            is_last = self._is_ending
            await self._give_up_beyond_bounds()
            batches = self._intake.take(_WRITE_OCTETS, _WRITE_BATCHES)
            await self._writer.write(batches, is_wanted=self._is_wanted, flush=self._is_flushing and not is_last)
            self._cache.shrink(max(0, self._settings.memory_octets - self._bounds.memory_octets))
            self._leave_settled()
            self._progress.set()
            self._notify()
            if is_last and not self._intake:
                break
        await self._writer.seal()
        self._leave_settled()
        await self._settlement.persist(is_last=True)

    async def _restore(self) -> None:
        restoring = partial(
            restore,
            self._disk,
            self._found,
            self._settlement.cursor,
            self._registry,
            self._own,
            now=self._clock(),
            wall=self._wall(),
        )
        found = await self._run(restoring, limiter=self._restoring_limiter)
        for segment in found.segments:
            self._shelf.append(segment)
        self._writer.newest = found.open_rows_in
        self._intake.restore(found.open_rows)
        self._settlement.doomed += found.settled
        self._ledger.restored += found.rows + found.damaged_rows
        self._ledger.dropped += found.damaged_rows
        self._ledger.damaged += found.damaged_rows
        self.restored_since = min((segment.first_at for segment in found.segments), default=self._clock())
        self._is_restored = True
        found.tell(self._log)
        for files in self._without_index:
            problem = "its rows are counted nowhere; flowjoin decode shows them"
            self._log.error("spool_index_missing", file=str(files.data), problem=problem)
        self._progress.set()
        self._notify()

    async def _wait_for_work(self) -> None:
        await trio.lowlevel.checkpoint()
        while not (self._intake or self._is_ending):
            due_at = self._writer.due_at if self._is_wanted else inf
            if self._is_flushing and self._writer.open_rows:
                due_at = -inf
            if self._clock() >= due_at:
                return
            self._work = trio.Event()
            with trio.move_on_after(max(0.0, due_at - self._clock())):
                await self._work.wait()

    async def _give_up_beyond_bounds(self) -> None:
        """Their files are removed before anything else is written."""
        if self._bounds.give_up_beyond():
            await self.persist()

    async def _keep_age(self) -> None:
        while True:
            await trio.sleep(min(_AGE_CHECK_SECONDS, self._settings.segment_age))
            await self._give_up_beyond_bounds()
            await self.persist()  # what the disk did not take before
