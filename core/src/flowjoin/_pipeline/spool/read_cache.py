"""Batches that are on the disk and in memory too, so that a lane that keeps up never reads; pure.

What comes first is delivered first: when there is no room for more, the newest goes, or is not taken at all.
"""

from __future__ import annotations

from collections.abc import Collection

from flowjoin._model.flow_batch import FlowBatch

__all__ = ["ReadCache"]


class ReadCache:
    """Batches by segment and ordinal."""

    def __init__(self) -> None:
        self._batches: dict[tuple[int, int], FlowBatch] = {}
        self._octets = 0

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, segment: int, ordinal: int, batch: FlowBatch, room: int) -> None:
        """Keep a batch if all together need no more than so many octets."""
        if self._octets + batch.octets <= room:
            self._batches[segment, ordinal] = batch
            self._octets += batch.octets

    def pop(self, segment: int, ordinal: int) -> FlowBatch | None:
        """The batch, which is kept no longer; None if it was not."""
        batch = self._batches.pop((segment, ordinal), None)
        if batch is not None:
            self._octets -= batch.octets
        return batch

    def shrink(self, room: int) -> None:
        """Forget the newest until the rest needs no more than so many octets."""
        while self._batches and self._octets > room:
            _, batch = self._batches.popitem()
            self._octets -= batch.octets

    def forget(self, segments: Collection[int]) -> None:
        """Forget what is of these segments."""
        for key in [key for key in self._batches if key[0] in segments]:
            self.pop(*key)
