"""Where batches go: through the enrichers into every lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import trio

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.enrichment import Enrichment
from flowjoin._pipeline.flow_feeds import FlowFeeds
from flowjoin._pipeline.lane import Lane
from flowjoin._pipeline.lane_queue import LaneBooks

__all__ = ["Outlets"]


class Outlets:
    """Delivers each batch to all lanes, without waiting for any of them unless told to be patient.

    Patience is for two occasions: ``replay``, which loses nothing and so waits for the slowest lane, and the end
    of a run, when whole tables leave at once and lanes that work are given time to take them.

    Attributes:
        feeds: of those who watch; in no book, because they may come and go.
    """

    def __init__(
        self,
        enrichment: Enrichment,
        lanes: Sequence[Lane],
        *,
        is_replay: bool = False,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._enrichment = enrichment
        self._lanes = tuple(lanes)
        self._leaving: list[Lane] = []
        self._rows_before = dict.fromkeys(self._lanes, 0)  # that went on before the lane was there
        self._rows_until: dict[Lane, int] = {}  # and when it was taken out
        self._ended: dict[str, tuple[int, LaneBooks]] = {}  # of lanes that are over: rows due to them, and their books
        self._is_replay = is_replay
        self._clock = clock
        self._patient_until = inf if is_replay else -inf
        self._overflowing = frozenset() if is_replay else frozenset(self._lanes)
        self._rows = 0
        self.feeds = FlowFeeds()

    @property
    def rows(self) -> int:
        """Rows delivered to every lane; what each lane's book must begin with, but for those added or taken out."""
        return self._rows

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Those that are delivered to."""
        return self._lanes

    @property
    def all_lanes(self) -> tuple[Lane, ...]:
        """And those that only deliver what they hold."""
        return (*self._lanes, *self._leaving)

    def add(self, lane: Lane) -> None:
        """Deliver to one more, from the next batch on."""
        assert all(lane.name != other.name for other in self.all_lanes), "names are unique"
        self._lanes = (*self._lanes, lane)
        self._rows_before[lane] = self._rows
        self._overflowing |= {lane}

    def take_out(self, lane: Lane) -> None:
        """Deliver to it no more; it may still hold rows."""
        self._lanes = tuple(other for other in self._lanes if other is not lane)
        self._overflowing -= {lane}
        self._leaving.append(lane)
        self._rows_until[lane] = self._rows

    def forget(self, lane: Lane) -> LaneBooks:
        """A lane that was taken out has ended: keep its books, which it gives."""
        self._leaving.remove(lane)
        rows = self._rows_until.pop(lane) - self._rows_before.pop(lane)
        books = lane.books().ended()
        before = self._ended.get(lane.name)
        self._ended[lane.name] = (rows, books) if before is None else (before[0] + rows, before[1] + books)
        return books

    def lane_books(self) -> tuple[dict[str, int], dict[str, LaneBooks]]:
        """By name: the rows that each lane must have got, and where they are."""
        due = {name: rows for name, (rows, _) in self._ended.items()}
        books = {name: ended for name, (_, ended) in self._ended.items()}
        for lane in self.all_lanes:
            rows = self._rows_until.get(lane, self._rows) - self._rows_before[lane]
            due[lane.name] = due.get(lane.name, 0) + rows
            books[lane.name] = books[lane.name] + lane.books() if lane.name in books else lane.books()
        return due, books

    def be_patient_until(self, deadline: float) -> None:
        """Wait for lanes that work, until then."""
        if not self._is_replay:
            self._patient_until = deadline

    async def wait_room(self) -> None:
        """A checkpoint; waits for lanes where there is patience."""
        await trio.lowlevel.checkpoint()
        if self._patient_until <= self._clock():
            self._overflowing = frozenset(self._lanes)
            return
        overflowing: list[Lane] = []
        for lane in self._lanes:
            if lane.is_full and (self._is_replay or not lane.is_degraded):
                with trio.move_on_at(self._patient_until):
                    await lane.wait_room()
            if lane.is_full:
                overflowing.append(lane)
        self._overflowing = frozenset(overflowing)

    def deliver(self, batch: FlowBatch) -> None:
        """Take a batch, at once."""
        self._rows += len(batch)
        enriched = self._enrichment.enrich(batch)
        for lane in self._lanes:
            lane.offer(enriched, may_drop=lane in self._overflowing)
        if self.feeds:
            self.feeds.offer(enriched)
