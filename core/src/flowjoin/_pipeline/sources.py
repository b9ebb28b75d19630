"""Source plugins: their batches go straight to enrichers and lanes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from math import inf

import trio

from flowjoin._model.errors import PluginContractError
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.health import Component
from flowjoin._pipeline.supervisor import PluginFailure, keep_open, plugin_code
from flowjoin.api._types import Logger, SupportsLastBatches

__all__ = ["SourceStage"]


class SourceStage:
    """Runs one source; started again with back-off when it raises, over when its iterator ends."""

    def __init__(
        self,
        open_source: Callable[[], AbstractAsyncContextManager[AsyncIterator[FlowBatch]]],
        deliver: Callable[[FlowBatch], None],
        *,
        wait_room: Callable[[], Awaitable[None]],
        component: Component,
        log: Logger,
    ) -> None:
        self._open_source = open_source
        self._deliver = deliver
        self._wait_room = wait_room
        self._component = component
        self._log = log
        self._rows = 0
        self._iterator: AsyncIterator[FlowBatch] | None = None
        self._scope = trio.CancelScope()
        self._finishing = trio.Event()

    @property
    def name(self) -> str:
        return self._component.name

    @property
    def rows(self) -> int:
        """Rows it gave since the start."""
        return self._rows

    async def run(self) -> None:
        """Take its batches until it ends, or has finished."""
        with self._scope:
            await keep_open(
                self._component,
                self._open_source,
                self._take_batches,
                log=self._log,
                pause=self._pause,
                is_finished=self._finishing.is_set,
            )
            self._log.info("source_ended", rows=self._rows)
        if self._scope.cancelled_caught and self._scope.deadline < inf:
            self._log.warning("source_cut_short", rows=self._rows, cause="it still had to tell when its time was over")

    def finish(self, within_seconds: float) -> None:
        """The program ends: where the source has something left to tell it may for so long; else it is cancelled."""
        self._finishing.set()
        if not isinstance(self._iterator, SupportsLastBatches):
            self._scope.cancel()
            return
        self._scope.deadline = trio.current_time() + within_seconds
        try:
            with plugin_code():
                self._iterator.finish()
        except PluginFailure as failure:
            self._log.error("plugin_failed", exc_info=failure.__cause__)
            self._scope.cancel()

    async def _pause(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._finishing.wait()

    async def _take_batches(self, iterator: AsyncIterator[FlowBatch]) -> None:
        self._component.opened()
        self._log.info("source_opened")
        self._iterator = iterator
        try:
            while (batch := await self._next_batch(iterator)) is not None:
                self._component.recovered()
                self._rows += len(batch)
                self._deliver(batch)
        finally:
            self._iterator = None
            close = getattr(iterator, "aclose", None)  # an async generator's; a mere iterator has none
            if close is not None:
                with plugin_code(), self._component.patience.during("close"):
                    await close()

    async def _next_batch(self, iterator: AsyncIterator[FlowBatch]) -> FlowBatch | None:
        await self._wait_room()
        with plugin_code():
            try:
                batch: object = await anext(iterator)
            except StopAsyncIteration:
                return None
            if not isinstance(batch, FlowBatch):
                problem = f"its iterator gave a {type(batch).__name__}, not a FlowBatch"
                raise PluginContractError(problem, plugin=self.name)
        return batch
