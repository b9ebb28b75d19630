"""A lane without a spool, its clock trio's and its jitter none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf

import trio
import trio.testing
from pipeline_fakes import (
    MemoryLog,
    Opener,
)

from flowjoin._pipeline.health import HealthTable, State
from flowjoin._pipeline.lane import Lane
from flowjoin._pipeline.lane_identity import LaneIdentity
from flowjoin._pipeline.lane_queue import LaneBooks, LaneBounds
from flowjoin.api import Batching


def sleep_for(seconds: float) -> Callable[[object], Awaitable[None]]:
    async def act(_batch: object) -> None:
        await trio.sleep(seconds)

    return act


class LaneBench:
    """A lane with its logger and health, its clock trio's and its jitter none."""

    def __init__(
        self,
        opener: Opener,
        *,
        batching: Batching | None = None,
        bounds: LaneBounds | None = None,
        patience: float = inf,
    ) -> None:
        self.log = MemoryLog()
        self.health = HealthTable(lambda: 1.0)
        self.lane = Lane(
            opener,
            batching or Batching(),
            identity=LaneIdentity(instance_id="here", lane="audit", epoch=3),
            component=self.health.add("exporters", "audit"),
            log=self.log,
            bounds=bounds,
            patience=patience,
        )

    @property
    def state(self) -> State:
        return self.health.snapshot()[0].state

    @property
    def books(self) -> LaneBooks:
        books = self.lane.books()
        assert books.rows_in == books.delivered + books.dead_lettered + books.dropped + books.held
        return books

    async def finish(self) -> None:
        self.lane.close()
        await self.lane.run()
