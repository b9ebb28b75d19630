"""The segments of a lane in their order, on disk and in memory, and how far they are settled; pure.

Invariant: ``rows`` is the number of rows of closed batches that are neither settled nor given up, and that are not the
batch that was taken last; batches are taken in the order in which they were closed, each once.

What a segment holds is known as long as it is the one written to or the one read from. Of those between only the sums
are kept: an outage costs memory by the segment, not by the batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import FlowSchema
from flowjoin._pipeline.spool.cursor import Cursor
from flowjoin._pipeline.spool.index import Batch
from flowjoin._pipeline.spool.segments import SegmentFiles

__all__ = ["Segment", "Shelf", "Taken", "batches_from"]


class Totals:
    """Sums over the segments of a shelf, kept up to date: there may be ten thousand of them."""

    __slots__ = ("memory_octets", "memory_rows", "spooled_octets", "spooled_rows")

    def __init__(self) -> None:
        self.spooled_rows = self.spooled_octets = self.memory_rows = self.memory_octets = 0

    def add(self, rows: int, octets: int, *, is_spooled: bool) -> None:
        if is_spooled:
            self.spooled_rows += rows
            self.spooled_octets += octets
        else:
            self.memory_rows += rows
            self.memory_octets += octets


class Segment:
    """One segment.

    Attributes:
        files: None for one in memory, made while the disk takes nothing.
        octets: on the disk, or in memory.
        rows: of batches not yet taken.
        instance_id: who closed its batches, and
        lane: in which lane; parts of their ids.
        first_at: when it was written to first, and
        last_at: last; on the clock that nobody sets.
        is_open: it is still written to.
        published: batches of ordinals below it count; what else its index may name does not.
        batches: not yet taken; None: on the disk only.
        held: of a segment in memory, the rows by ordinal.
    """

    def __init__(
        self,
        number: int,
        files: SegmentFiles | None,
        instance_id: str,
        lane: str,
        *,
        first_at: float = 0.0,
        last_at: float = 0.0,
        octets: int = 0,
        rows: int = 0,
        batches: deque[Batch] | None,
    ) -> None:
        self.number = number
        self.files = files
        self.instance_id = instance_id
        self.lane = lane
        self.first_at = first_at
        self.last_at = last_at
        self.is_open = False
        self.published: float = inf
        self.batches = batches
        self.schemas: dict[int, FlowSchema] = {}
        self.held: dict[int, FlowBatch] = {}
        self._octets = octets
        self._rows = rows
        self._totals = Totals()  # of its shelf, once it is on one
        self._ordinal = 0

    @property
    def rows(self) -> int:
        return self._rows

    @rows.setter
    def rows(self, rows: int) -> None:
        self._totals.add(rows - self._rows, 0, is_spooled=self.files is not None)
        self._rows = rows

    @property
    def octets(self) -> int:
        return self._octets

    @octets.setter
    def octets(self, octets: int) -> None:
        self._totals.add(0, octets - self._octets, is_spooled=self.files is not None)
        self._octets = octets

    def count_in(self, totals: Totals) -> None:
        """It is on a shelf with these sums."""
        self._totals = totals
        totals.add(self._rows, self._octets, is_spooled=self.files is not None)

    def count_out(self) -> None:
        """It is on no shelf any more."""
        self._totals.add(-self._rows, -self._octets, is_spooled=self.files is not None)
        self._totals = Totals()

    def keep(self, batch: FlowBatch, epoch: int, sequence: int) -> None:
        """Append a batch to a segment in memory."""
        assert self.batches is not None, "those in memory are known"
        self.batches.append(Batch(self._ordinal, epoch, sequence, len(batch), ()))
        self.held[self._ordinal] = batch
        self._ordinal += 1
        self.octets += batch.octets
        self.rows += len(batch)


@dataclass(frozen=True, slots=True)
class Taken:
    """The batch that is next."""

    segment: Segment
    batch: Batch

    @property
    def id(self) -> str:
        return f"{self.segment.instance_id}/{self.segment.lane}/{self.batch.epoch}/{self.batch.sequence}"

    @property
    def after(self) -> Cursor:
        """The cursor once it is settled."""
        return Cursor(self.segment.number, self.batch.ordinal + 1)


class Shelf:
    """Segments, oldest first."""

    def __init__(self) -> None:
        self._segments: deque[Segment] = deque()
        self._totals = Totals()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def rows(self) -> int:
        """Of batches not yet taken."""
        return self._totals.spooled_rows + self._totals.memory_rows

    @property
    def spooled_rows(self) -> int:
        """Of them, on the disk."""
        return self._totals.spooled_rows

    @property
    def octets(self) -> int:
        """On the disk."""
        return self._totals.spooled_octets

    @property
    def memory_octets(self) -> int:
        """Of rows that are only in memory."""
        return self._totals.memory_octets

    def append(self, segment: Segment) -> None:
        """A new segment, at the end."""
        segment.count_in(self._totals)
        self._segments.append(segment)

    def first(self) -> Segment | None:
        """The segment to read from: the first with a batch not yet taken."""
        return next((segment for segment in self._segments if segment.rows), None)

    def last(self) -> Segment | None:
        """The newest segment."""
        return self._segments[-1] if self._segments else None

    def peek(self, segment: Segment) -> Taken:
        """The next batch of the first segment, whose batches are known."""
        assert segment.batches, "a segment with rows has batches"
        return Taken(segment, segment.batches[0])

    def take(self, taken: Taken) -> FlowBatch | None:
        """Take what was peeked at; gives its rows if they are only in memory."""
        segment = taken.segment
        assert segment.batches is not None
        segment.batches.popleft()
        segment.rows -= taken.batch.rows
        batch = segment.held.pop(taken.batch.ordinal, None)
        if batch is not None:
            segment.octets -= batch.octets
        return batch

    def is_next(self, taken: Taken) -> bool:
        """Whether it is still there and still the next of its segment."""
        batches = taken.segment.batches
        return taken.segment in self and bool(batches) and batches is not None and batches[0] is taken.batch

    def __contains__(self, segment: object) -> bool:
        return any(each is segment for each in self._segments)

    def forget_batches(self, reading: Segment | None) -> None:
        """Keep sums only, of segments that are neither written to nor read from."""
        for segment in self._segments:
            if segment is not reading and not segment.is_open and segment.files is not None:
                segment.batches = None
                segment.schemas = {}

    def leave_settled(self, in_hand: Segment | None, newest: Segment | None) -> list[Segment]:
        """Take away, from the front, the segments of which nothing is left.

        Args:
            in_hand: whose batch is being delivered.
            newest: the last one on the disk, which may have rows of open batches.
        """
        left: list[Segment] = []
        while self._segments:
            segment = self._segments[0]
            if segment.rows or segment.is_open or segment is in_hand or segment is newest:
                break
            segment.count_out()
            left.append(self._segments.popleft())
        return left

    def give_up_oldest(self) -> Segment | None:
        """Take away the first segment that is on the disk and takes no more; None if there is none."""
        for segment in self._segments:
            if segment.files is not None and not segment.is_open:
                self._remove(segment)
                return segment
        return None

    def give_up_older(self, moment: float) -> list[Segment]:
        """Take away the closed segments that were written to last before that moment."""
        old = [segment for segment in self._segments if not segment.is_open and segment.last_at < moment]
        if old:
            gone = set(map(id, old))
            self._segments = deque(segment for segment in self._segments if id(segment) not in gone)
            for segment in old:
                segment.count_out()
        return old

    def _remove(self, segment: Segment) -> None:
        if self._segments[0] is segment:
            self._segments.popleft()
        else:
            self._segments = deque(each for each in self._segments if each is not segment)
        segment.count_out()

    def give_up_memory(self, octets: int) -> int:
        """Forget the oldest batches that are only in memory until so many octets are left; gives their rows."""
        rows = 0
        for segment in self._segments:
            while segment.files is None and segment.batches and self.memory_octets > octets:
                batch = segment.batches.popleft()
                segment.octets -= segment.held.pop(batch.ordinal).octets
                segment.rows -= batch.rows
                rows += batch.rows
        return rows


def batches_from(batches: Sequence[Batch], cursor: Cursor, number: int) -> deque[Batch]:
    """Those that are not settled."""
    if number < cursor.segment:
        return deque()
    first = cursor.ordinal if number == cursor.segment else 0
    return deque(batch for batch in batches if batch.ordinal >= first)
