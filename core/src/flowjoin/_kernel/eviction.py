"""Which stored flow leaves first when there is no room: a ready one long without a record, else an old half.

Ready flows lie in buckets, one for each time at which records came, in the order of those times (which
never go back). Only the bucket that flows leave from is put in the order of their storing, once. Waiting
halves lie in the order of their storing. Invariant: every stored flow lies in exactly one place; to move a
flow costs O(1), to take the first O(log n) of its bucket, counted over all that leave it.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict

__all__ = ["EvictionOrder"]


class _Bucket:
    """Flows whose last record came at the same time."""

    __slots__ = ("members", "queue")

    def __init__(self) -> None:
        self.members: dict[int, int] = {}  # handle: serial
        self.queue: list[tuple[int, int]] | None = None  # (serial, handle), once flows leave from here


class EvictionOrder:
    """All stored flows in the order in which they would be evicted."""

    def __init__(self) -> None:
        self._ready: OrderedDict[float, _Bucket] = OrderedDict()
        self._waiting: OrderedDict[int, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many halves wait for their other half."""
        return len(self._waiting)

    def add_waiting(self, handle: int) -> None:
        """Add a half, the last stored of all flows."""
        self._waiting[handle] = None

    def remove_waiting(self, handle: int) -> None:
        """Take a half out: it was joined or given up."""
        del self._waiting[handle]

    def add_ready(self, handle: int, serial: int, now: float) -> None:
        """Add a ready flow whose last record came now."""
        bucket = self._ready.get(now)
        if bucket is None:
            bucket = self._ready[now] = _Bucket()
        bucket.members[handle] = serial
        if bucket.queue is not None:
            heapq.heappush(bucket.queue, (serial, handle))

    def remove_ready(self, handle: int, seen: float) -> None:
        """Take out a ready flow whose last record came at ``seen``."""
        bucket = self._ready[seen]
        del bucket.members[handle]
        if not bucket.members:
            del self._ready[seen]

    def first(self) -> int | None:
        """The handle of the flow that would leave first; None with none."""
        if not self._ready:
            return next(iter(self._waiting), None)
        bucket = next(iter(self._ready.values()))
        if bucket.queue is None:
            bucket.queue = [(serial, handle) for handle, serial in bucket.members.items()]
            heapq.heapify(bucket.queue)
        while True:  # flows that have left the bucket by another way are still in its queue
            serial, handle = bucket.queue[0]
            if bucket.members.get(handle) == serial:
                return handle
            heapq.heappop(bucket.queue)
