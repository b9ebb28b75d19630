"""Puts a lane's rows on the disk, or, while that takes nothing, keeps them in memory in their place.

A write that failed may have left anything behind it, so its segment takes no more. The next one begins with the rows of
every open batch: what the closed segment had of them counts no longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final, TypeVar

import trio

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.batcher import Batcher, Closed, Gathered
from flowjoin._pipeline.health import Component
from flowjoin._pipeline.spool.composing import Composer
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.index import Batch, Head
from flowjoin._pipeline.spool.read_cache import ReadCache
from flowjoin._pipeline.spool.segments import SegmentFiles, SegmentWriter
from flowjoin._pipeline.spool.settings import SpoolSettings
from flowjoin._pipeline.spool.shelf import Segment, Shelf
from flowjoin._pipeline.spool.threads import InThread
from flowjoin.api._types import Batching, Logger

__all__ = ["SpoolWriter"]

T = TypeVar("T")

_DISK_RETRY_SECONDS: Final = 2.0
_LINES_PER_SEGMENT: Final = 16_384  # known while a segment is written to or read from


class SpoolWriter:
    """Gathers rows into batches and writes them; one call of ``write`` at a time.

    Attributes:
        newest: the last segment on the disk: what it has of open batches counts.
        closing_rows: of batches that are closed and not yet on the shelf.
        is_unsynced: something was written since this was last set to False.
    """

    def __init__(
        self,
        settings: SpoolSettings,
        batching: Batching,
        shelf: Shelf,
        cache: ReadCache,
        *,
        head: Head,
        epoch: int,
        disk: Disk,
        component: Component,
        log: Logger,
        clock: Callable[[], float],
        wall: Callable[[], float],
        run: InThread,
    ) -> None:
        """Connect the parts; ``head`` has the number of the next segment."""
        self._run = run
        self.newest: Segment | None = None
        self.closing_rows = 0
        self.is_unsynced = False
        self._settings = settings
        # The other half is for rows on their way to the disk: an open batch that grows must not cost them.
        self._batcher = Batcher(batching, settings.memory_octets // 2)
        self._shelf = shelf
        self._cache = cache
        self._head = head
        self._epoch = epoch
        self._disk = disk
        self._component = component
        self._log = log
        self._clock = clock
        self._wall = wall
        self._sequence = 0
        self._composer: Composer | None = None
        self._files: SegmentWriter | None = None
        self._segment: Segment | None = None  # that is written to
        self._are_open_rows_written = True
        self._open_rows_on_their_way = 0  # the newest of them, which the write under way is to bring to the disk
        self._retry_at = -inf
        self._is_failing = False
        self._limiter = trio.CapacityLimiter(1)

    def change(self, batching: Batching, settings: SpoolSettings) -> None:
        """Make batches of another size, within other bounds, from now on."""
        self._batcher.change(batching)
        self._settings = settings

    @property
    def last_batch(self) -> str:
        """The id of the last batch that was closed."""
        return f"{self._head.instance_id}/{self._head.lane}/{self._epoch}/{self._sequence}"

    @property
    def open_rows(self) -> int:
        """Rows of batches that are not closed."""
        return self._batcher.rows

    @property
    def open_octets(self) -> int:
        return self._batcher.octets

    @property
    def spooled_open_rows(self) -> int:
        """Of them, on the disk."""
        return self._batcher.rows - self._open_rows_on_their_way if self._are_open_rows_written else 0

    @property
    def may_need_newest(self) -> bool:
        """Whether the last segment on the disk has rows that are nowhere else there."""
        return bool(self._batcher.rows or self.closing_rows or self._is_failing)

    @property
    def due_at(self) -> float:
        """When an open batch is to be closed, if somebody wants one."""
        deadline = self._batcher.deadline
        return inf if deadline is None else deadline

    async def write(self, batches: Sequence[FlowBatch], *, is_wanted: bool, flush: bool) -> None:
        """Take rows; close batches that are full, and those due if one is wanted; all of them with ``flush``.

        Not to be cancelled but at the very end: what was being written is then in memory only.
        """
        now = self._clock()
        steps: list[Gathered | Closed] = []
        for batch in batches:
            steps += self._batcher.feed(batch, now)
        while (is_wanted or flush) and (due := self._batcher.close_due(now, flush=flush)) is not None:
            steps.append(due)
        if not steps:
            return
        closed = [step for step in steps if isinstance(step, Closed)]
        self.closing_rows = sum(step.rows for step in closed)
        over = {step.group for step in closed}
        gathered = [step for step in steps if isinstance(step, Gathered)]
        self._open_rows_on_their_way = sum(len(step.rows) for step in gathered if step.group not in over)
        first_sequence = self._sequence + 1
        self._sequence += len(closed)
        await trio.lowlevel.checkpoint()
        for step in closed:
            await _join(step)
        entries: list[Batch] | None = None
        if now >= self._retry_at:
            try:
                entries = await self._write(steps, first_sequence)
            except OSError as exc:
                await self._failed(exc)
        if entries is None:
            self._are_open_rows_written = False
            self._keep_in_memory([step.batch for step in closed], first_sequence)
        else:
            self._are_open_rows_written = True
            assert self._segment is not None, "it was written to"
            self._publish(self._segment, entries, [step.batch for step in closed])
        self.closing_rows = self._open_rows_on_their_way = 0

    def must_roll(self, exc: OSError) -> None:
        """What was written may not be on the disk: the next write goes to another segment."""
        self._composer = None
        self._degraded(exc)

    def retire_before(self, moment: float) -> None:
        """Write no more to a segment that was written to last before that moment."""
        is_writing = self._composer is None
        if not is_writing and self._segment is not None and self._segment.last_at < moment:
            self._composer = None
            self._segment.is_open = False

    async def sync(self, limiter: trio.CapacityLimiter) -> None:
        """Wait until all that was written is on the disk.

        Raises:
            OSError: it may not be.
        """
        if self._files is not None:
            await self._run(self._files.sync, limiter=limiter)

    async def seal(self) -> None:
        """The segment takes no more."""
        files, self._files = self._files, None
        self._composer = None
        if self._segment is not None:
            self._segment.is_open = False
            self._shelf.forget_batches(self._shelf.first())
            self._segment = None
        if files is not None:
            try:
                await self._in_thread(partial(_finish, files, self._settings.sync != "never"))
            except OSError as exc:
                self._degraded(exc)

    async def _write(self, steps: list[Gathered | Closed], sequence: int) -> list[Batch]:
        wall = self._wall()
        composer = self._composer
        is_new = composer is None or self._is_full(composer)
        if is_new:
            await self.seal()
            opened = self._batcher.open_batches()
            for batch in opened:
                await _join(batch)
            steps = _whole([step for step in steps if isinstance(step, Closed)])
            steps += [Gathered(batch.group, batch.batch) for batch in opened]
            composer = Composer(self._head, wall)
        assert composer is not None
        self._composer = None  # until all is well
        entries: list[Batch] = []
        for step in steps:
            if isinstance(step, Closed):
                entries.append(composer.close(step.group, self._epoch, sequence))
                sequence += 1
            else:
                for _ in composer.add(step.group, step.rows, wall):
                    await trio.lowlevel.checkpoint()
        data, lines = composer.take()
        if is_new:
            await self._create(data, lines)
        else:
            assert self._files is not None, "a composer that is kept has its files"
            await self._in_thread(partial(self._files.append, data, lines, self._settings.is_synced))
        self._composer = composer
        self.is_unsynced = True
        assert self._segment is not None
        self._segment.octets = composer.octets
        self._segment.last_at = self._clock()
        self._segment.schemas = composer.schemas
        if self._is_failing:
            self._is_failing = False
            self._log.info("spool_recovered")
        self._component.recovered()
        return entries

    async def _create(self, data: bytearray, lines: bytes) -> None:
        files = SegmentFiles(self._settings.directory, self._head.segment)
        # If there are open batches their rows leave the segment before: that must not be undone by a loss of power.
        is_synced = self._settings.sync != "never"
        self._files = await self._in_thread(partial(SegmentWriter, self._disk, files, data, lines, is_synced))
        self._segment = self._new_segment(files)
        self._segment.is_open = True
        self._segment.published = 0
        self.newest = self._segment

    def _new_segment(self, files: SegmentFiles | None) -> Segment:
        head, now = self._head, self._clock()
        segment = Segment(head.segment, files, head.instance_id, head.lane, first_at=now, last_at=now, batches=deque())
        self._head = replace(self._head, segment=self._head.segment + 1)
        self._shelf.append(segment)
        return segment

    def _is_full(self, composer: Composer) -> bool:
        assert self._segment is not None
        return (
            composer.octets >= self._settings.segment_octets
            or composer.lines >= _LINES_PER_SEGMENT
            or not composer.has_room_for_schemas
            or self._clock() >= self._segment.first_at + self._settings.segment_age
        )

    def _publish(self, segment: Segment, entries: Sequence[Batch], batches: Sequence[FlowBatch]) -> None:
        for entry, batch in zip(entries, batches, strict=True):
            segment.rows += entry.rows
            assert segment.batches is not None, "known while it is written to"
            segment.batches.append(entry)
            segment.published = entry.ordinal + 1
            room = self._settings.memory_octets - self._batcher.octets - self._shelf.memory_octets
            self._cache.put(segment.number, entry.ordinal, batch, room)

    def _keep_in_memory(self, batches: Sequence[FlowBatch], sequence: int) -> None:
        if not batches:
            return
        segment = self._shelf.last()
        if segment is None or segment.files is not None:
            segment = self._new_segment(None)
        for batch in batches:
            segment.keep(batch, self._epoch, sequence)
            sequence += 1

    async def _failed(self, exc: OSError) -> None:
        self._retry_at = self._clock() + _DISK_RETRY_SECONDS
        self._degraded(exc)
        await self.seal()

    def _degraded(self, exc: OSError) -> None:
        self._component.failed(exc)
        if not self._is_failing:
            self._log.error("spool_failed", problem=str(exc), consequence="batches are kept in memory only")
        self._is_failing = True

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await self._run(function, limiter=self._limiter, abandon_on_cancel=True)


async def _join(rows: Closed) -> None:
    """Make them one batch; others have their turn between two steps, and at the end."""
    for _ in rows.join():
        await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()


def _whole(closed: Sequence[Closed]) -> list[Gathered | Closed]:
    """With all rows of each batch, which an earlier segment may have had in part."""
    whole: list[Gathered | Closed] = []
    for step in closed:
        whole += [Gathered(step.group, step.batch), step]
    return whole


def _finish(files: SegmentWriter, is_synced: bool) -> None:
    try:
        if is_synced:
            files.sync()
    finally:
        files.close()
