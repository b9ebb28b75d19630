"""The segments of a lane in their order, on disk and in memory, and how far they are settled; pure.

Invariant: ``rows`` is the number of rows of closed batches that are neither settled nor given up, and that are not the
batch that was taken last; batches are taken in the order in which they were closed, each once.

What a segment holds is known as long as it is the one written to or the one read from. Of those between only the sums
are kept: an outage costs memory by the segment, not by the batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import FlowSchema
from flowjoin._pipeline.spool.cursor import Cursor
from flowjoin._pipeline.spool.index import Batch
from flowjoin._pipeline.spool.segments import SegmentFiles

__all__ = ["Segment", "Shelf", "Taken", "batches_from"]


@dataclass(slots=True)
class Segment:
    """One segment.

    Attributes:
        files: None for one in memory, made while the disk takes nothing.
        octets: on the disk, or in memory.
        rows: of batches not yet taken.
        instance_id: who closed its batches, and
        lane: in which lane; parts of their ids.
        last_at: when it was written to last, wall clock.
        is_open: it is still written to.
        published: batches of ordinals below it count; what else its index may name does not.
        batches: not yet taken; None: on the disk only.
        held: of a segment in memory, the rows by ordinal.
    """

    number: int
    files: SegmentFiles | None
    instance_id: str
    lane: str
    first_at: float = 0.0
    last_at: float = 0.0
    octets: int = 0
    rows: int = 0
    is_open: bool = False
    published: float = inf
    batches: deque[Batch] | None = field(default_factory=deque)
    schemas: dict[int, FlowSchema] = field(default_factory=dict)
    held: dict[int, FlowBatch] = field(default_factory=dict)
    _ordinal: int = 0

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

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def rows(self) -> int:
        """Of batches not yet taken."""
        return sum(segment.rows for segment in self._segments)

    @property
    def spooled_rows(self) -> int:
        """Of them, on the disk."""
        return sum(segment.rows for segment in self._segments if segment.files is not None)

    @property
    def octets(self) -> int:
        """On the disk."""
        return sum(segment.octets for segment in self._segments if segment.files is not None)

    @property
    def memory_octets(self) -> int:
        """Of rows that are only in memory."""
        return sum(segment.octets for segment in self._segments if segment.files is None)

    def append(self, segment: Segment) -> None:
        """A new segment, at the end."""
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
            left.append(self._segments.popleft())
        return left

    def give_up_oldest(self) -> Segment | None:
        """Take away the first segment that is on the disk and takes no more; None if there is none."""
        for segment in self._segments:
            if segment.files is not None and not segment.is_open:
                self._remove(segment)
                return segment
        return None

    def give_up_older(self, wall: float) -> list[Segment]:
        """Take away the closed segments that were written to last before that time."""
        old = [segment for segment in self._segments if not segment.is_open and segment.last_at < wall]
        for segment in old:
            self._remove(segment)
        return old

    def _remove(self, segment: Segment) -> None:
        # by identity: two segments may be equal
        self._segments = deque(each for each in self._segments if each is not segment)

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
