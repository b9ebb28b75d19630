"""Reads segments back for a lane, in a thread and in short steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import trio

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.health import Component
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.index import Index
from flowjoin._pipeline.spool.row_layout import DamagedError
from flowjoin._pipeline.spool.segments import SegmentFiles, decode_slowly, load_index, read_octets
from flowjoin._pipeline.spool.shelf import Taken
from flowjoin._pipeline.spool.threads import InThread
from flowjoin.api._types import Logger

__all__ = ["SegmentReader"]

T = TypeVar("T")

_ATTEMPTS: Final = 5
_AGAIN_SECONDS: Final = 1.0


class SegmentReader:
    """Reads batches and indices; a momentary lack (of descriptors, of a network) passes, a bad disk does not."""

    def __init__(
        self, disk: Disk, registry: ElementRegistry, *, run: InThread, component: Component, log: Logger
    ) -> None:
        """Take what it works with; the component is told of failures."""
        self._disk = disk
        self._registry = registry
        self._run = run
        self._component = component
        self._log = log
        self._limiter = trio.CapacityLimiter(1)

    async def batch(self, files: SegmentFiles, taken: Taken) -> FlowBatch:
        """A batch's rows, without id.

        Raises:
            DamagedError: they are not what was written.
            OSError: they cannot be read, again and again.
        """
        if not taken.batch.is_whole:
            raise DamagedError("a line of its index is damaged")
        octets = await self._retried(partial(read_octets, self._disk, files, taken.batch.pieces))
        decoding = decode_slowly(octets, taken.batch.pieces, taken.segment.schemas)
        while True:
            try:
                next(decoding)
            except StopIteration as stop:
                batch: FlowBatch = stop.value
                return batch
            await trio.lowlevel.checkpoint()

    async def index(self, files: SegmentFiles) -> Index:
        """What a segment's index says.

        Raises:
            OSError: it cannot be read, again and again.
        """
        return await self._retried(partial(load_index, self._disk, files, self._registry))

    async def _retried(self, read: Callable[[], T]) -> T:
        for attempt in range(_ATTEMPTS):
            try:
                return await self._run(read, limiter=self._limiter)
            except OSError as exc:
                self._component.failed(exc)
                if attempt == _ATTEMPTS - 1:
                    raise
                self._log.warning("spool_not_read", problem=str(exc), seconds=_AGAIN_SECONDS)
            await trio.sleep(_AGAIN_SECONDS)
        raise AssertionError("it returned or raised")
