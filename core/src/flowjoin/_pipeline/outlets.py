"""Where batches go: through the enrichers into every lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import trio

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.enrichment import Enrichment
from flowjoin._pipeline.lane import Lane

__all__ = ["Outlets"]


class Outlets:
    """Delivers each batch to all lanes, without waiting for any of them unless told to be patient.

    Patience is for two occasions: ``replay``, which loses nothing and so waits for the slowest lane, and the end
    of a run, when whole tables leave at once and lanes that work are given time to take them.
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
        self._is_replay = is_replay
        self._clock = clock
        self._patient_until = inf if is_replay else -inf
        self._overflowing = frozenset() if is_replay else frozenset(self._lanes)
        self._rows = 0

    @property
    def rows(self) -> int:
        """Rows delivered to every lane; what each lane's book must begin with."""
        return self._rows

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
