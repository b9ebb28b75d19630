"""Runs the lanes of a pipeline, and those that a reload adds or takes out."""

from __future__ import annotations

import trio

from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.lane import Lane
from flowjoin._pipeline.outlets import Outlets
from flowjoin.api._types import Logger

__all__ = ["LaneKeeper"]


class LaneKeeper:
    """Starts lanes in a nursery; one that is taken out ends within a grace time, the others never notice."""

    def __init__(self, nursery: trio.Nursery, outlets: Outlets, health: HealthTable, log: Logger) -> None:
        self._nursery = nursery
        self._outlets = outlets
        self._health = health
        self._log = log
        self._leaving: dict[str, trio.Event] = {}

    def start(self) -> None:
        """Run the lanes that are there."""
        for lane in self._outlets.lanes:
            self._nursery.start_soon(lane.run, name=f"lane {lane.name}")

    def add(self, lane: Lane) -> None:
        """Deliver to one more."""
        self._outlets.add(lane)
        self._nursery.start_soon(lane.run, name=f"lane {lane.name}")

    def lane(self, name: str) -> Lane:
        """The lane of an exporter."""
        return next(lane for lane in self._outlets.lanes if lane.name == name)

    def take_out(self, name: str, grace_seconds: float) -> None:
        """Give it nothing more, and the grace time to deliver what it holds; what is left stays in its spool."""
        lane = self.lane(name)
        self._outlets.take_out(lane)
        lane.close()
        lane.end_within(grace_seconds)
        self._leaving[name] = trio.Event()
        self._nursery.start_soon(self._see_off, lane, self._leaving[name], name=f"leaving lane {name}")

    async def wait_gone(self, name: str) -> None:
        """Wait until no lane of that name is on its way out."""
        await trio.lowlevel.checkpoint()
        while name in self._leaving:
            await self._leaving[name].wait()

    async def _see_off(self, lane: Lane, gone: trio.Event) -> None:
        await lane.wait_ended()
        books = self._outlets.forget(lane)
        self._health.remove(lane.name)
        if books.left:
            problem = "no exporter has this name any more; flowjoin spool resend sends it to another"
            self._log.warning("spool_orphaned", spool=lane.name, rows=books.left, problem=problem)
        self._log.info("exporter_taken_out", name=lane.name, rows_delivered=books.delivered, rows_dropped=books.dropped)
        del self._leaving[lane.name]
        gone.set()
