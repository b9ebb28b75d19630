"""The rows a lane holds, and its books; pure.

Invariant, after every call: ``rows_in == delivered + dead_lettered + dropped + held``, where held is counted anew
from what is really there.

Rows wait in four places: the batcher (open batches), the queue (closed ones, each with its id), the batch that is drawn
(closed, and being joined), and the head, the batch that is being delivered.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.steps import at_once
from flowjoin._pipeline.batcher import Batcher, Closed
from flowjoin._pipeline.lane_head import Head, Part
from flowjoin.api._types import Batching

__all__ = ["LaneBooks", "LaneBounds", "LaneQueue"]


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
    """Where a lane's rows are: ``rows_in + restored == delivered + dead_lettered + dropped + held + left``.

    Attributes:
        rows_in: rows given to the lane.
        restored: rows that its spool held from an earlier run.
        delivered: rows that the destination accepted.
        dead_lettered: rows that it will never accept, or that fail even alone.
        dropped: rows given up: of the oldest batches for lack of room or by age, and of damaged ones.
        damaged: of those dropped, rows whose octets in the spool had changed or were gone.
        held: rows that wait.
        spooled: of those held, rows that are in the spool and outlive the process.
        left: rows that stayed in the spool when the exporter was taken out of the configuration.
        spool_octets: size of the spool.
        batches: batches that were settled, in one part or several.
        failures: calls of ``export`` that failed and left their rows unsettled.
        retried: rows of those calls, which go again: a row counts each time.
        lag: seconds for which the oldest row that is held has waited.
    """

    rows_in: int
    delivered: int
    dead_lettered: int
    dropped: int
    held: int
    batches: int
    failures: int
    restored: int = 0
    damaged: int = 0
    spooled: int = 0
    left: int = 0
    spool_octets: int = 0
    retried: int = 0
    lag: float = 0.0

    @property
    def is_balanced(self) -> bool:
        """Whether every row is accounted for."""
        settled = self.delivered + self.dead_lettered + self.dropped
        return self.rows_in + self.restored == settled + self.held + self.left

    def __add__(self, other: LaneBooks) -> LaneBooks:
        """Of an exporter that was taken out and came back: both times together."""
        names = [item.name for item in dataclasses.fields(self)]
        return LaneBooks(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def ended(self) -> LaneBooks:
        """Once the lane is over: what is in its spool stays there, what is not is gone."""
        lost = self.held - self.spooled
        return dataclasses.replace(
            self, dropped=self.dropped + lost, left=self.left + self.spooled, held=0, spooled=0, spool_octets=0, lag=0.0
        )


class LaneQueue:
    """Bounded: where there is no room, the oldest batch that is not being exported goes."""

    def __init__(self, batching: Batching, bounds: LaneBounds, id_of: Callable[[int], str]) -> None:
        """Take a function that makes a batch's id from its sequence number."""
        self._batcher = Batcher(batching, bounds.octets // 2)
        self._bounds = bounds
        self._id_of = id_of
        self._sequence = 0
        self._closed: deque[tuple[str, Closed]] = deque()  # each with its id
        self._drawn: tuple[str, Closed] | None = None
        self._head = Head()
        self._closed_rows = 0
        self._closed_octets = 0
        self._rows_in = self._dropped = 0

    def change(self, batching: Batching) -> None:
        """Make batches of another size from now on; closed ones stay as they are."""
        self._batcher.change(batching)

    @property
    def last_batch(self) -> str:
        """The id of the last batch that was closed."""
        return self._id_of(self._sequence)

    @property
    def held(self) -> int:
        """Rows that wait, or are being exported."""
        return self._batcher.rows + self._closed_rows + self._drawn_rows + self._head.rows

    @property
    def is_full(self) -> bool:
        """Whether the next batch would cost the oldest one."""
        drawn = 0 if self._drawn is None else self._drawn[1].octets
        octets = self._batcher.octets + self._closed_octets + drawn + self._head.octets
        return self.held > self._bounds.rows or octets > self._bounds.octets

    @property
    def deadline(self) -> float | None:
        """When ``begin`` gives something although it gives nothing now."""
        return self._batcher.deadline

    def books(self) -> LaneBooks:
        """A snapshot."""
        held = self._batcher.rows + sum(closed.rows for _, closed in self._closed) + self._drawn_rows + self._head.rows
        return LaneBooks(
            rows_in=self._rows_in,
            delivered=self._head.delivered,
            dead_lettered=self._head.dead_lettered,
            dropped=self._dropped,
            held=held,
            batches=self._head.batches,
            failures=self._head.failures,
            retried=self._head.retried,
        )

    def put(self, batch: FlowBatch, now: float, *, may_drop: bool = True) -> int:
        """Take a batch; gives the number of rows that were dropped to make room."""
        self._rows_in += len(batch)
        for closed in self._batcher.add(batch, now):
            self._close(closed)
        return self._make_room() if may_drop else 0

    def draw(self, now: float, *, flush: bool = False) -> Generator[None, None, None]:
        """Join the batch that ``begin`` gives next, in steps of a millisecond or two; to be iterated to its end.

        From the first step on there is always room for it. Whoever stops in the middle may call this again.
        """
        if self._head.is_empty and self._drawn is None:
            if not self._closed and (due := self._batcher.close_due(now, flush=flush)) is not None:
                self._close(due)
            if self._closed:
                self._drawn = self._pop()
        if self._drawn is not None:
            yield from self._drawn[1].join()

    def begin(self, now: float, *, flush: bool = False) -> Part | None:
        """The next part to export; None when nothing is due. It stays the next until it is settled."""
        if self._head.is_empty:
            at_once(self.draw(now, flush=flush))
            if self._drawn is None:
                return None
            batch_id, closed = self._drawn
            self._drawn = None
            self._head.load(closed.batch.with_id(batch_id))
        return self._head.begin()

    def hand_on(self) -> list[FlowBatch]:
        """Everything that is not settled, oldest first: it is another store's now, as if it had never come here.

        Batches that nobody has tried to export come in the pieces that were put: they are new batches there.
        """
        batches = self._head.left()
        self._head.give_up()
        if self._drawn is not None:
            batches += self._drawn[1].pieces
            self._drawn = None
        while self._closed:
            batches += self._pop()[1].pieces
        while (opened := self._batcher.close_due(0.0, flush=True)) is not None:
            batches += opened.pieces
        self._rows_in -= sum(map(len, batches))
        return batches

    @property
    def head(self) -> Head:
        """The batch that is being delivered."""
        return self._head

    @property
    def _drawn_rows(self) -> int:
        return 0 if self._drawn is None else self._drawn[1].rows

    def _close(self, closed: Closed) -> None:
        self._sequence += 1
        self._closed.append((self._id_of(self._sequence), closed))
        self._closed_rows += closed.rows
        self._closed_octets += closed.octets

    def _pop(self) -> tuple[str, Closed]:
        batch_id, closed = self._closed.popleft()
        self._closed_rows -= closed.rows
        self._closed_octets -= closed.octets
        return batch_id, closed

    def _make_room(self) -> int:
        dropped = 0
        while self.is_full:
            head_may_go = not self._head.is_empty and not self._head.is_exporting
            if head_may_go + len(self._closed) + bool(self._batcher.rows) <= 1:
                break  # the newest batch always finds room
            if head_may_go:
                dropped += self._head.give_up()
            else:
                dropped += self._pop()[1].rows
        self._dropped += dropped
        return dropped
