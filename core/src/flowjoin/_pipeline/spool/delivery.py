"""The lane's side of a spool: which batch is next, where its rows come from, and what became of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.lane_head import Head
from flowjoin._pipeline.spool.cursor import Cursor
from flowjoin._pipeline.spool.dead_letters import DeadLetter
from flowjoin._pipeline.spool.read_cache import ReadCache
from flowjoin._pipeline.spool.reader import SegmentReader
from flowjoin._pipeline.spool.row_layout import DamagedError
from flowjoin._pipeline.spool.settling import Settlement
from flowjoin._pipeline.spool.shelf import Segment, Shelf, Taken, batches_from
from flowjoin.api._types import Logger

__all__ = ["Delivery", "Ledger"]


@dataclass(slots=True)
class Ledger:
    """Rows that came and rows that were given up; what was delivered is in the head's own book."""

    rows_in: int = 0
    restored: int = 0
    dropped: int = 0
    damaged: int = 0

    def lose(self, rows: int) -> None:
        """Rows that are not what was written, or not there."""
        self.dropped += rows
        self.damaged += rows


class Delivery:
    """Takes batches from the shelf, one at a time.

    Attributes:
        head: the batch that is being delivered.
    """

    def __init__(
        self,
        shelf: Shelf,
        cache: ReadCache,
        reader: SegmentReader,
        settlement: Settlement,
        ledger: Ledger,
        log: Logger,
    ) -> None:
        """Connect the parts."""
        self.head = Head()
        self._taken: Taken | None = None  # what the head is made of
        self._shelf = shelf
        self._cache = cache
        self._reader = reader
        self._settlement = settlement
        self._ledger = ledger
        self._log = log

    @property
    def segment(self) -> Segment | None:
        """Where the head lies."""
        return None if self._taken is None else self._taken.segment

    @property
    def spooled_rows(self) -> int:
        """Rows of the head that are on the disk."""
        segment = self.segment
        return self.head.rows if segment is not None and segment.files is not None and segment in self._shelf else 0

    def settle(self, refused: Collection[int], reason: str) -> None:
        """The part is done: these rows of it are dead letters for that reason, the others delivered."""
        if refused:
            self._add_letter(self.head.current.rows().take(sorted(refused)), reason)
        self.head.settle(refused)
        self._move()

    def cut(self) -> None:
        """The part, which failed, becomes its two halves."""
        self.head.cut()
        self._move()

    def bury(self, reason: str) -> None:
        """The part, which failed, is dead letters."""
        self._add_letter(self.head.first.rows(), reason)
        self.head.bury()
        self._move()

    def give_up(self, segments: Sequence[Segment]) -> int:
        """Forget the head if it lies in one of these and is not being exported; gives its rows."""
        if self.head.is_empty or self.head.is_exporting or not any(each is self.segment for each in segments):
            return 0
        rows = self.head.give_up()
        self._move()
        return rows

    async def load(self, segment: Segment) -> None:
        """Make the first batch of the segment the head, or learn that it cannot be; the head is empty.

        Cancellation: nothing is lost.
        """
        if segment.batches is None:
            await self._load_index(segment)
            return
        taken = self._shelf.peek(segment)
        batch = self._cache.pop(segment.number, taken.batch.ordinal)
        if batch is None and segment.files is not None:
            try:
                batch = await self._reader.batch(segment.files, taken)
            except (DamagedError, OSError) as exc:
                if self._shelf.is_next(taken):
                    self._log.error("batch_damaged", batch=taken.id, rows=taken.batch.rows, problem=str(exc))
        if not self._shelf.is_next(taken):
            return  # given up meanwhile, and counted
        held = self._shelf.take(taken)
        batch = batch if held is None else held
        self._taken = taken
        if batch is None:
            self._ledger.lose(taken.batch.rows)
            self._move()
            return
        cursor = self._settlement.cursor
        is_cut = (cursor.segment, cursor.ordinal) == (segment.number, taken.batch.ordinal)
        self.head.load(batch.with_id(taken.id), cursor.parts if is_cut else ())
        self._ledger.restored -= taken.batch.rows - self.head.rows  # an earlier run settled those

    async def _load_index(self, segment: Segment) -> None:
        """Learn again what a segment holds; what it holds no more is given up."""
        assert segment.files is not None, "what is in memory is known"
        try:
            index = await self._reader.index(segment.files)
        except OSError as exc:
            if segment in self._shelf:
                self._log.error("index_unreadable", file=str(segment.files.index), problem=str(exc))
                segment.batches = deque()
                self._ledger.lose(segment.rows)
                segment.rows = 0
            return
        if segment not in self._shelf:
            return
        waiting = batches_from(index.batches, self._settlement.cursor, segment.number)
        # A write that failed may have left lines of batches that are in memory now.
        segment.batches = deque(batch for batch in waiting if batch.ordinal < segment.published)
        segment.schemas = index.schemas
        lost = segment.rows - sum(batch.rows for batch in segment.batches)
        if lost:
            self._log.error("index_damaged", file=str(segment.files.index), rows=lost)
            self._ledger.lose(lost)
            segment.rows -= lost

    def _add_letter(self, rows: FlowBatch, reason: str) -> None:
        assert self._taken is not None, "a part is of a batch"
        batch = self._taken.batch
        self._settlement.letters.append(DeadLetter(rows, batch.epoch, batch.sequence, reason))

    def _move(self) -> None:
        """Something of the head is settled, or nothing of it can be: move the cursor."""
        assert self._taken is not None, "the head is made of something"
        if self.head.is_empty:
            self._settlement.cursor = self._taken.after
            self._taken = None
        else:
            self._settlement.cursor = Cursor(self._taken.segment.number, self._taken.batch.ordinal, self.head.ranges)
