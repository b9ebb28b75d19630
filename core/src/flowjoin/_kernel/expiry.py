"""When each stored flow is due: a heap in which every flow has exactly one place, and knows it.

Invariant: the first place is the flow with the earliest deadline, of equal ones the first stored.
Nothing stale is ever in it, so that the next deadline is exact and a flow leaves in O(log n).
"""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["ExpiryQueue"]

# deadline, serial number of the flow (unique: handles are never compared), handle
_Entry: TypeAlias = tuple[float, int, int]


class ExpiryQueue:
    """A binary heap of (deadline, serial), indexed by the flows' handles."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, handle: int, serial: int, deadline: float) -> None:
        """Add a flow that has no place yet."""
        self._heap.append((deadline, serial, handle))
        self._rise(len(self._heap) - 1)

    def move(self, handle: int, deadline: float) -> None:
        """Give a flow another deadline."""
        place = self._places[handle]
        before, serial, _ = self._heap[place]
        if deadline == before:
            return
        self._heap[place] = (deadline, serial, handle)
        if deadline < before:
            self._rise(place)
        else:
            self._sink(place)

    def remove(self, handle: int) -> None:
        """Take a flow out."""
        place = self._places.pop(handle)
        last = self._heap.pop()
        if place == len(self._heap):
            return
        removed = self._heap[place]
        self._heap[place] = last
        if last < removed:
            self._rise(place)
        else:
            self._sink(place)

    def first(self) -> tuple[float, int] | None:
        """The earliest deadline and its flow's handle; None if empty."""
        if not self._heap:
            return None
        deadline, _, handle = self._heap[0]
        return deadline, handle

    def _rise(self, place: int) -> None:
        heap, places = self._heap, self._places
        entry = heap[place]
        while place:
            parent = (place - 1) >> 1
            above = heap[parent]
            if above < entry:
                break
            heap[place] = above
            places[above[2]] = place
            place = parent
        heap[place] = entry
        places[entry[2]] = place

    def _sink(self, place: int) -> None:
        heap, places = self._heap, self._places
        entry, size = heap[place], len(heap)
        while (child := 2 * place + 1) < size:
            if child + 1 < size and heap[child + 1] < heap[child]:
                child += 1
            below = heap[child]
            if entry < below:
                break
            heap[place] = below
            places[below[2]] = place
            place = child
        heap[place] = entry
        places[entry[2]] = place
