"""What a lane keeps its rows in: memory, or a spool."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, Protocol

import trio

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.lane_head import Part
from flowjoin._pipeline.lane_queue import LaneBooks, LaneBounds, LaneQueue
from flowjoin._pipeline.spool.settings import SpoolBounds
from flowjoin.api._types import Batching

__all__ = ["LaneStore", "MemoryStore"]


class LaneStore(Protocol):
    """Takes batches at once, gives parts in order; what becomes of a part is told before the next is asked for."""

    @property
    def is_durable(self) -> bool:
        """Whether what it holds outlives the process."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether the next batch would cost the oldest one."""
        ...

    @property
    def held(self) -> int:
        """Rows that wait, or are being exported."""
        ...

    @property
    def restored_since(self) -> float | None:
        """When the oldest row came that an earlier run has left, on the lane's clock; None before that is known."""
        ...

    @property
    def deadline(self) -> float | None:
        """When ``begin`` gives something although it gives nothing now; None: when ``notify`` is called."""
        ...

    @property
    def current(self) -> Part | None:
        """The part that is being exported."""
        ...

    @property
    def last_batch(self) -> str:
        """The id of the last batch that was closed; before the first, with the number 0."""
        ...

    @property
    def can_be_left(self) -> bool:
        """Whether nothing stays behind when it is closed after ``hand_on``."""
        ...

    def books(self) -> LaneBooks:
        """A snapshot."""
        ...

    def opened(self, notify: Callable[[], None]) -> AbstractAsyncContextManager[object]:
        """Live; calls ``notify`` when there may be a part, or room. On leaving, what can be kept is kept."""
        ...

    def change(self, batching: Batching, bounds: SpoolBounds | None) -> None:
        """Make batches of another size from now on, within other bounds on the disk; what is closed stays as it is."""
        ...

    def put(self, batch: FlowBatch, now: float, *, may_drop: bool = True) -> int:
        """Take a batch; gives the number of rows that were dropped to make room."""
        ...

    async def begin(self, now: float, *, flush: bool = False) -> Part | None:
        """The next part to export; None when nothing is due. With ``flush`` everything held is due.

        Cancellation: nothing is lost.
        """
        ...

    def settle(self, refused: Collection[int] = (), reason: str = "") -> None:
        """The part is done: these rows of it are dead letters for that reason, the others delivered."""
        ...

    def keep(self, *, was_tried: bool = True) -> None:
        """The part failed, or was not even tried, and stays the next."""
        ...

    def cut(self) -> None:
        """The part, which failed, becomes its two halves."""
        ...

    def bury(self, reason: str) -> None:
        """The part, which failed, is dead letters."""
        ...

    async def persist(self) -> None:
        """Write down what was settled."""
        ...

    def hand_on(self) -> list[FlowBatch]:
        """What it holds, to be put elsewhere; of a durable one nothing, which is only left when it is empty."""
        ...


class MemoryStore:
    """Keeps rows in memory: it promises nothing across a restart."""

    restored_since: Final = None
    is_durable: Final = False
    can_be_left: Final = True

    def __init__(self, batching: Batching, bounds: LaneBounds, id_of: Callable[[int], str]) -> None:
        self._queue = LaneQueue(batching, bounds, id_of)
        self.put = self._queue.put
        self.books = self._queue.books
        self.keep = self._queue.head.keep
        self.hand_on = self._queue.hand_on
        self.cut = self._queue.head.cut

    @property
    def is_full(self) -> bool:
        return self._queue.is_full

    @property
    def held(self) -> int:
        return self._queue.held

    @property
    def deadline(self) -> float | None:
        return self._queue.deadline

    @property
    def current(self) -> Part | None:
        return self._queue.head.current if self._queue.head.is_exporting else None

    @property
    def last_batch(self) -> str:
        return self._queue.last_batch

    def opened(self, notify: Callable[[], None]) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    def change(self, batching: Batching, bounds: SpoolBounds | None) -> None:
        self._queue.change(batching)

    async def begin(self, now: float, *, flush: bool = False) -> Part | None:
        for _ in self._queue.draw(now, flush=flush):
            await trio.lowlevel.checkpoint()
        return self._queue.begin(now, flush=flush)

    def settle(self, refused: Collection[int] = (), reason: str = "") -> None:
        self._queue.head.settle(refused)

    def bury(self, reason: str) -> None:
        self._queue.head.bury()

    async def persist(self) -> None:
        """There is nothing to write."""
