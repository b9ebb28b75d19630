"""The rows a lane holds, and its books; pure.

Invariant, after every call: ``rows_in == delivered + dead_lettered + dropped + held``, where held is counted anew
from what is really there.

Rows wait in three places: the batcher (open batches), the queue (closed ones, each with its id), and the head, the
batch that is being delivered. A head that failed for an unknown reason is cut into parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.batcher import Batcher
from flowjoin.api._types import Batching

__all__ = ["LaneBooks", "LaneBounds", "LaneQueue", "Part"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneBounds:
    """How much a lane holds in memory.

    Attributes:
        rows: with all parts together.
        octets: estimated size.
    """

    rows: int = 1_000_000
    octets: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneBooks:
    """Where a lane's rows are: ``rows_in == delivered + dead_lettered + dropped + held``.

    Attributes:
        rows_in: rows given to the lane.
        delivered: rows that the destination accepted.
        dead_lettered: rows that it will never accept, or that fail even alone.
        dropped: rows of the oldest batches, given up for lack of room.
        held: rows that wait.
        batches: batches that were settled, in one part or several.
        failures: calls of ``export`` that failed and left their rows unsettled.
    """

    rows_in: int
    delivered: int
    dead_lettered: int
    dropped: int
    held: int
    batches: int
    failures: int


@dataclass(frozen=True, slots=True)
class Part:
    """Rows ``start`` to ``stop`` of a closed batch: all of it, unless it had to be cut."""

    batch: FlowBatch
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def is_whole(self) -> bool:
        return len(self) == len(self.batch)

    @property
    def id(self) -> str:
        """The batch's id, with the range of rows where it is a cut."""
        return self.batch.id if self.is_whole else f"{self.batch.id}[{self.start}:{self.stop}]"

    def rows(self) -> FlowBatch:
        """What ``export`` gets."""
        return self.batch if self.is_whole else self.batch.slice(self.start, self.stop).with_id(self.id)

    def halves(self) -> tuple[Part, Part]:
        """The first half and the second."""
        middle = (self.start + self.stop) // 2
        return Part(self.batch, self.start, middle), Part(self.batch, middle, self.stop)


class LaneQueue:
    """Bounded: where there is no room, the oldest batch that is not being exported goes."""

    def __init__(self, batching: Batching, bounds: LaneBounds, id_of: Callable[[int], str]) -> None:
        """Take a function that makes a batch's id from its sequence number."""
        self._batcher = Batcher(batching)
        self._bounds = bounds
        self._id_of = id_of
        self._sequence = 0
        self._closed: deque[FlowBatch] = deque()
        self._parts: deque[Part] = deque()  # of the head, in row order
        self._head_octets = 0
        self._closed_rows = 0
        self._closed_octets = 0
        self.is_exporting = False
        self._rows_in = self._delivered = self._dead_lettered = self._dropped = 0
        self._batches = self._failures = 0

    @property
    def held(self) -> int:
        """Rows that wait, or are being exported."""
        return self._batcher.rows + self._closed_rows + sum(map(len, self._parts))

    @property
    def is_full(self) -> bool:
        """Whether the next batch would cost the oldest one."""
        octets = self._batcher.octets + self._closed_octets + self._head_octets
        return self.held > self._bounds.rows or octets > self._bounds.octets

    @property
    def deadline(self) -> float | None:
        """When ``begin`` gives something although it gives nothing now."""
        return self._batcher.deadline

    def books(self) -> LaneBooks:
        """A snapshot."""
        held = self._batcher.rows + sum(map(len, self._closed)) + sum(map(len, self._parts))
        return LaneBooks(
            rows_in=self._rows_in,
            delivered=self._delivered,
            dead_lettered=self._dead_lettered,
            dropped=self._dropped,
            held=held,
            batches=self._batches,
            failures=self._failures,
        )

    def put(self, batch: FlowBatch, now: float, *, may_drop: bool = True) -> int:
        """Take a batch; gives the number of rows that were dropped to make room."""
        self._rows_in += len(batch)
        for closed in self._batcher.add(batch, now):
            self._close(closed)
        return self._make_room() if may_drop else 0

    def begin(self, now: float, *, flush: bool = False) -> Part | None:
        """The next part to export; None when nothing is due. It stays the next until it is settled."""
        assert not self.is_exporting, "one call of export at a time"
        if not self._parts:
            if not self._closed:
                opened = self._batcher.take(now, flush=flush)
                if opened is None:
                    return None
                self._close(opened)
            batch = self._closed.popleft()
            self._closed_rows -= len(batch)
            self._closed_octets -= batch.octets
            self._head_octets = batch.octets
            self._parts.append(Part(batch, 0, len(batch)))
        self.is_exporting = True
        return self._parts[0]

    @property
    def current(self) -> Part:
        """The part that is being exported."""
        assert self.is_exporting
        return self._parts[0]

    def settle(self, refused: Collection[int] = ()) -> None:
        """The part is done: these rows of it are dead letters, the others delivered."""
        part = self._parts[0]
        self._delivered += len(part) - len(refused)
        self._dead_lettered += len(refused)
        self._leave_part()

    def keep(self) -> None:
        """The part failed and stays the next."""
        assert self.is_exporting
        self.is_exporting = False
        self._failures += 1

    def cut(self) -> None:
        """The part, which failed, becomes its two halves."""
        assert not self.is_exporting
        self._parts.extendleft(reversed(self._parts.popleft().halves()))

    def bury(self) -> None:
        """The part, which failed, is dead letters."""
        assert not self.is_exporting
        self._dead_lettered += len(self._parts[0])
        self._leave_part()

    def _leave_part(self) -> None:
        self.is_exporting = False
        self._parts.popleft()
        if not self._parts:
            self._batches += 1
            self._head_octets = 0

    def _close(self, batch: FlowBatch) -> None:
        self._sequence += 1
        self._closed.append(batch.with_id(self._id_of(self._sequence)))
        self._closed_rows += len(batch)
        self._closed_octets += batch.octets

    def _make_room(self) -> int:
        dropped = 0
        while self.is_full:
            head_may_go = bool(self._parts) and not self.is_exporting
            if head_may_go + len(self._closed) + bool(self._batcher.rows) <= 1:
                break  # the newest batch always finds room
            if head_may_go:
                dropped += sum(map(len, self._parts))
                self._parts.clear()
                self._head_octets = 0
            else:
                batch = self._closed.popleft()
                self._closed_rows -= len(batch)
                self._closed_octets -= batch.octets
                dropped += len(batch)
        self._dropped += dropped
        return dropped
