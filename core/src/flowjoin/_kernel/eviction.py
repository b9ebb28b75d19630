"""Which stored flow leaves first when there is no room: a ready one long without a record, else an old half.

Ready flows lie in the order of their last records, whose times never go back. Those of the earliest time are
put in the order of their storing, once, when flows begin to leave from among them. Waiting halves lie in the
order of their storing. Invariant: every stored flow lies in exactly one place; to move a flow costs O(1), to
take the first O(log n) of those of its time, counted over all that leave.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from itertools import takewhile

__all__ = ["EvictionOrder"]


class EvictionOrder:
    """All stored flows in the order in which they would be evicted."""

    def __init__(self) -> None:
        self._ready: OrderedDict[int, tuple[float, int]] = OrderedDict()  # handle: time of last record, serial
        self._waiting: OrderedDict[int, None] = OrderedDict()
        # Of the earliest time: (serial, handle). A flow that left, or had a record, may still be in it.
        self._leaving: list[tuple[int, int]] = []
        self._leaving_time: float | None = None

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
        self._ready[handle] = (now, serial)
        if now == self._leaving_time:
            heapq.heappush(self._leaving, (serial, handle))

    def remove_ready(self, handle: int) -> None:
        """Take a ready flow out."""
        del self._ready[handle]

    def first(self) -> int | None:
        """The handle of the flow that would leave first; None with none."""
        if not self._ready:
            return next(iter(self._waiting), None)
        while True:
            while self._leaving:
                serial, handle = self._leaving[0]
                if self._ready.get(handle) == (self._leaving_time, serial):
                    return handle
                heapq.heappop(self._leaving)
            self._gather_earliest()

    def _gather_earliest(self) -> None:
        time, _ = next(iter(self._ready.values()))
        earliest = takewhile(lambda item: item[1][0] == time, self._ready.items())
        self._leaving = [(serial, handle) for handle, (_, serial) in earliest]
        self._leaving_time = time
        heapq.heapify(self._leaving)
