"""Keeps the flow table over a restart: a file written at an interval and at the end, read at the start.

After an orderly stop nothing is lost or doubled: every ready flow was exported as far as it went, and the flows go on
from there. After a kill what was exported since is not known, so each flow begins anew with deltas of 0 and keeps its
totals: nothing is doubled, and what is lost is bounded by the interval and the active timeout.

The time in which nobody could be heard does not count: a flow has as long to say something as it had when it was kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Final, TypeVar

import trio
import trio.lowlevel
from prometheus_client.core import Metric

from flowjoin import __version__
from flowjoin._kernel.checkpoint import BLOCK_VERSION
from flowjoin._kernel.interface import KeepsFlows
from flowjoin._pipeline.checkpoint_file import (
    CheckpointError,
    CheckpointReader,
    CheckpointWriter,
    Closing,
    Opening,
    open_checkpoint,
)
from flowjoin._pipeline.health import Component
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.threads import InThread, in_thread
from flowjoin._pipeline.state_directory import State
from flowjoin._telemetry.metrics import gauge_family
from flowjoin.api._types import Logger

__all__ = ["Checkpoint"]

T = TypeVar("T")

_FILE: Final = "checkpoint"


class Checkpoint:
    """Reads the file at the start, writes it at an interval and at the end."""

    def __init__(
        self,
        state: State,
        kernel: KeepsFlows,
        *,
        flows_per_slice: int,
        interval: float,
        max_age: float,
        restored: Callable[[], int],
        lanes: Callable[[], Mapping[str, str]],
        component: Component,
        log: Logger,
        clock: Callable[[], float],
        wall: Callable[[], float],
        run: InThread = in_thread,
        disk: Disk | None = None,
    ) -> None:
        """Connect the parts; nothing is read.

        Args:
            state: whose directory has the file.
            kernel: the table.
            flows_per_slice: at which the kernel may look in one go.
            interval: seconds between two writings.
            max_age: seconds; the flows of an older file are over.
            restored: the flows that the table has got back so far.
            lanes: by name, the id of the last batch of each.
            component: is told how it goes.
            log: says what was found and what failed.
            clock: the kernel's, monotonic.
            wall: seconds since the Unix epoch.
            run: runs what blocks.
            disk: the file system.
        """
        assert state.directory is not None, "who has no directory keeps nothing"
        self._state = state
        self._path: Path = state.directory / _FILE
        self._kernel = kernel
        self._limit = flows_per_slice
        self._interval = interval
        self._max_age = max_age
        self._restored = restored
        self._lanes = lanes
        self._component = component
        self._log = log
        self._clock = clock
        self._wall = wall
        self._run = run
        self._disk = disk or Disk()
        self._limiter = trio.CapacityLimiter(1)
        self._written: Closing | None = None
        self._octets = 0

    async def restore(self) -> None:
        """Give the kernel, which is empty, what an earlier run left, as far as that can be used."""
        try:
            found = await self._in_thread(partial(open_checkpoint, self._path, self._disk))
            age = max(0.0, self._wall() - found.closing.wall)
            self._check(found, age)
            refused = await self._restore(found)
        except FileNotFoundError:
            self._log.info("checkpoint_absent")
            self._component.opened()
            return
        except (OSError, CheckpointError, ValueError) as exc:
            self._component.failed(exc)
            self._component.opened()  # it is counted, and what is not there any more needs no mending
            flows = self._restored()  # a file may break while it is read: what came before goes on
            rest = f"its first {flows} flows are restored, the others are not" if flows else "no flow is restored"
            self._log.error("checkpoint_refused", file=str(self._path), problem=str(exc), consequence=rest)
            return
        self._component.opened()
        self._log.info(
            "checkpoint_restored",
            flows=self._restored(),
            without_room=refused,
            age_seconds=round(age, 1),
            is_continued=self._is_continued(found),
            lanes=dict(found.closing.lanes),
        )

    async def keep(self) -> None:
        """Write the file at an interval, until cancelled."""
        while True:
            await trio.sleep(self._interval)
            await self.save()

    async def save(self, *, is_last: bool = False) -> None:
        """Write the file.

        Args:
            is_last: all that is ready was exported, and nothing is taken in or exported any more.

        Cancellation: the file before stays.
        """
        opening = Opening(
            version=__version__,
            block_version=BLOCK_VERSION,
            layout=tuple(tuple(group) for group in self._kernel.kept_layout),
        )
        writer: CheckpointWriter | None = None
        try:
            writer = await self._in_thread(partial(CheckpointWriter, self._path, opening, self._disk))
            flows = 0
            cursor: int | None = 0
            while cursor is not None:
                block, cursor = self._kernel.dump(cursor, self._limit)
                flows += int.from_bytes(block[:4], "little")
                await self._in_thread(partial(writer.append, block))
            closing = Closing(
                flows=flows,
                clock=self._clock(),
                wall=self._wall(),
                epoch=await self._in_thread(self._state.last_epoch),
                is_last=is_last,
                lanes=self._lanes(),
            )
            await self._in_thread(partial(writer.finish, closing))
        except (OSError, ValueError) as exc:
            self._component.failed(exc)
            problem = os.strerror(exc.errno) if isinstance(exc, OSError) and exc.errno else str(exc)
            self._log.error("checkpoint_failed", problem=problem, consequence="the one before stays, if there is one")
            return
        finally:
            if writer is not None:
                writer.abandon()
        self._written, self._octets = closing, writer.octets
        self._component.recovered()
        self._log.info("checkpoint_written", flows=flows, octets=writer.octets, is_last=is_last)

    def metrics(self) -> Iterator[Metric]:
        """Of the last file that was written."""
        if self._written is None:
            return
        yield gauge_family("checkpoint", "flows", "Flows in the last checkpoint.", self._written.flows)
        yield gauge_family("checkpoint", "octets", "Size of the last checkpoint on the disk.", self._octets)
        written_at = "When the last checkpoint was written, in seconds since the Unix epoch."
        yield gauge_family("checkpoint", "written_timestamp_seconds", written_at, self._written.wall)

    def _check(self, found: CheckpointReader, age: float) -> None:
        """Whether its flows can be ours.

        Raises:
            CheckpointError: they cannot.
        """
        if age > self._max_age:
            raise CheckpointError(f"it is {age:.0f} s old, and maxAge is {self._max_age:.0f} s: its flows are over")
        opening = found.opening
        if opening.block_version != BLOCK_VERSION:
            raise CheckpointError(
                f"flowjoin {opening.version} wrote blocks of version {opening.block_version}, "
                f"and this one reads version {BLOCK_VERSION}"
            )
        difference = _difference(opening.layout, self._kernel.kept_layout)
        if difference is not None:
            raise CheckpointError(f"its flows consist of other elements: {difference}")

    async def _restore(self, found: CheckpointReader) -> int:
        """Give it to the kernel; gives how many flows there was no room for."""
        offset = self._clock() - found.closing.clock
        is_continued = self._is_continued(found)
        refused = 0
        try:
            for place in found.places:
                block = await self._in_thread(partial(found.block, place))
                refused += self._kernel.restore(block, offset, is_continued=is_continued)[1]
        finally:
            while self._kernel.order_restored(self._limit):
                await trio.lowlevel.checkpoint()
        return refused

    def _is_continued(self, found: CheckpointReader) -> bool:
        """Whether nobody did anything between its writing and our start: then no other start took an epoch."""
        return found.closing.is_last and found.closing.epoch + 1 == self._state.epoch

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await self._run(function, limiter=self._limiter)


def _difference(theirs: Sequence[Sequence[str]], ours: Sequence[Sequence[str]]) -> str | None:
    """The first one, in words; None if there is none."""
    for their_group, our_group in zip_longest(theirs, ours, fillvalue=()):
        if list(their_group) == list(our_group):
            continue
        name = (*our_group, *their_group)[0]
        gone = [line.split()[0] for line in their_group if line not in our_group]
        new = [line.split()[0] for line in our_group if line not in their_group]
        parts = [
            f"{what} {', '.join(names[:5])}" for what, names in (("only it has", gone), ("it lacks", new)) if names
        ]
        return f"{name}: {'; '.join(parts) or 'in another order'}"
    return None
