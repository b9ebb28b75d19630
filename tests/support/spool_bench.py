"""A lane with a spool, its clock trio's, its jitter none, and a disk that fails when it is told to."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import trio
from pipeline_fakes import MemoryLog, Opener

from flowjoin._pipeline.health import HealthTable, State
from flowjoin._pipeline.lane import Lane
from flowjoin._pipeline.lane_identity import LaneIdentity
from flowjoin._pipeline.lane_queue import LaneBooks
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.settings import SpoolSettings
from flowjoin._pipeline.spool.store import SpoolStore
from flowjoin._pipeline.spool.threads import InThread
from flowjoin.api import Batching
from flowjoin.wire.registry import default_registry

T = TypeVar("T")


async def at_once(function: Callable[[], T], /, *, limiter: trio.CapacityLimiter, abandon_on_cancel: bool = False) -> T:
    """What blocks runs on trio's thread, because the clock of a test does not wait for other threads."""
    async with limiter:
        return function()


class FaultyDisk(Disk):
    """The real disk with faults.

    Attributes:
        room: octets that can still be written; None for no limit. A write that does not fit is cut short first.
        fault: raised by each write.
        sync_fault: raised by each sync, but for the next ``good_syncs``.
        read_fault: raised by each read.
    """

    def __init__(self) -> None:
        self.room: int | None = None
        self.fault: OSError | None = None
        self.sync_fault: OSError | None = None
        self.good_syncs = 0
        self.read_fault: OSError | None = None
        self.reads = 0
        self.syncs = 0
        self.written = 0
        self.before_write: Callable[[], None] = lambda: None

    def write_some(self, descriptor: int, data: memoryview) -> int:
        self.before_write()
        if self.fault is not None:
            raise self.fault
        if self.room is not None:
            if self.room == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[: self.room]
            self.room -= len(data)
        self.written += len(data)
        return super().write_some(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        if self.sync_fault is not None:
            if not self.good_syncs:
                raise self.sync_fault
            self.good_syncs -= 1
        super().sync(descriptor)

    def read(self, path: Path, offset: int, length: int) -> bytes:
        self.reads += 1
        if self.read_fault is not None and path.suffix == ".ipfix":
            raise self.read_fault
        return super().read(path, offset, length)


class SpoolBench:
    """Start it again on the same directory for another run."""

    def __init__(
        self,
        opener: Opener,
        directory: Path,
        *,
        epoch: int = 1,
        batching: Batching | None = None,
        max_octets: int = 1024 * 1024 * 1024,
        max_age: float = 86_400.0,
        sync: str | float = "never",
        memory_octets: int = 64 * 1024 * 1024,
        disk: Disk | None = None,
        run: InThread = at_once,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.wall_shift = 0.0  # somebody set the clock
        self.log = MemoryLog()
        self.health = HealthTable(lambda: 1.0)
        self.store = SpoolStore(
            SpoolSettings(
                directory=directory, max_octets=max_octets, max_age=max_age, sync=sync, memory_octets=memory_octets
            ),
            batching or Batching(),
            instance_id="here",
            lane="audit",
            epoch=epoch,
            registry=default_registry(),
            component=self.health.add("spools", "audit"),
            log=self.log,
            clock=trio.current_time,
            wall=lambda: 1_790_000_000.0 + self.wall_shift + trio.current_time(),
            disk=disk,
            run=run,
        )
        self.lane = Lane(
            opener,
            batching or Batching(),
            identity=LaneIdentity(instance_id="here", lane="audit", epoch=epoch),
            component=self.health.add("exporters", "audit"),
            log=self.log,
            store=self.store,
        )

    @property
    def spool_state(self) -> State:
        return self.health.snapshot()[0].state

    @property
    def books(self) -> LaneBooks:
        books = self.lane.books()
        assert books.is_balanced, books
        return books

    async def finish(self) -> None:
        """Deliver everything and end."""
        self.lane.close()
        await self.lane.run()

    async def run_for(self, seconds: float) -> None:
        """Run, then be cancelled."""
        with trio.move_on_after(seconds):
            await self.lane.run()

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir() if path.suffix in (".ipfix", ".index"))
