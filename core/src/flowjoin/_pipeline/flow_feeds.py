"""Exported flows for whoever watches the HTTP API: lanes without a spool, which never make anything wait.

Invariant: a feed never holds more than its bound of rows; what is beyond it is dropped, the oldest batch first, and
counted. A batch is shared, not copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from flowjoin._model.flow_batch import FlowBatch

__all__ = ["FlowFeed", "FlowFeeds"]

_ROWS: Final = 16_384


class FlowFeed:
    """What one watcher has not read yet."""

    def __init__(self, rows: int) -> None:
        """Nothing is held yet; ``rows`` is the bound."""
        self._bound = rows
        self._batches: deque[FlowBatch] = deque()
        self._held = 0
        self._dropped = 0
        self._has_some = trio.Event()

    def offer(self, batch: FlowBatch) -> int:
        """Take a batch; gives how many rows were dropped for it."""
        dropped = 0
        self._batches.append(batch)
        self._held += len(batch)
        while self._held > self._bound and len(self._batches) > 1:
            oldest = self._batches.popleft()
            self._held -= len(oldest)
            dropped += len(oldest)
        if self._held > self._bound:  # one batch that is larger than all that may be held
            excess = self._held - self._bound
            self._batches[0] = self._batches[0].slice(excess, len(self._batches[0]))
            self._held -= excess
            dropped += excess
        self._dropped += dropped
        self._has_some.set()
        return dropped

    async def next(self, seconds: float) -> tuple[FlowBatch | None, int]:
        """The oldest batch, or None when none comes for so long; and how many rows were dropped since the last call."""
        with trio.move_on_after(seconds):
            await self._has_some.wait()
        dropped, self._dropped = self._dropped, 0
        batch = self._batches.popleft() if self._batches else None
        if batch is not None:
            self._held -= len(batch)
        if not self._batches:
            self._has_some = trio.Event()
        return batch, dropped


class FlowFeeds:
    """All that are open.

    Attributes:
        dropped: rows, over all feeds there ever were.
    """

    def __init__(self, *, rows: int = _ROWS) -> None:
        """Nobody watches yet; ``rows`` is the bound of each feed."""
        self._rows = rows
        self._open: set[FlowFeed] = set()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._open)

    def offer(self, batch: FlowBatch) -> None:
        """Give a batch to everybody who watches, at once."""
        for feed in self._open:
            self.dropped += feed.offer(batch)

    @contextmanager
    def watch(self) -> Iterator[FlowFeed]:
        """A feed of what is exported from now on."""
        feed = FlowFeed(self._rows)
        self._open.add(feed)
        try:
            yield feed
        finally:
            self._open.discard(feed)
