"""Batches on their way to the disk; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from flowjoin._model.flow_batch import FlowBatch

__all__ = ["Intake"]


class Intake:
    """First in, first out; those that an earlier run left open come first, and are on the disk already.

    Attributes:
        rows: that wait.
        octets: in memory, estimated.
    """

    def __init__(self) -> None:
        self._batches: deque[FlowBatch] = deque()
        self._restored = 0  # the first so many
        self.rows = 0
        self.octets = 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def has_restored(self) -> bool:
        return self._restored > 0

    @property
    def restored_rows(self) -> int:
        """Rows that are on the disk."""
        return sum(len(self._batches[index]) for index in range(self._restored))

    def put(self, batch: FlowBatch) -> None:
        """Append a batch."""
        self._batches.append(batch)
        self.rows += len(batch)
        self.octets += batch.octets

    def restore(self, batches: Sequence[FlowBatch]) -> None:
        """Put batches of an earlier run before all others."""
        self._batches.extendleft(reversed(batches))
        self._restored = len(batches)
        self.rows += sum(map(len, batches))
        self.octets += sum(batch.octets for batch in batches)

    def pop(self) -> FlowBatch:
        """The oldest batch."""
        batch = self._batches.popleft()
        self._restored = max(0, self._restored - 1)
        self.rows -= len(batch)
        self.octets -= batch.octets
        return batch

    def take(self, octets: int, batches: int) -> list[FlowBatch]:
        """The oldest batches, at most so many, of so many octets and the one that goes over it."""
        taken: list[FlowBatch] = []
        before = self.octets
        while self._batches and len(taken) < batches and before - self.octets < octets:
            taken.append(self.pop())
        return taken
