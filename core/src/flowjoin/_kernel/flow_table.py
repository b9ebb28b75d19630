"""All stored flows: found by key, due by deadline, and bounded.

A flow is known by its handle, a small number that is given again when the flow has left, and by its
serial number, which never is. What every flow has lies in arrays indexed by handle; what its record brought
lies packed in its state. Invariants: the number of flows never passes the limit; a flow is stored last,
when its state is complete; each flow is in the key table, the queue and the eviction order, or in none.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from typing import Final

from flowjoin._kernel.eviction import EvictionOrder
from flowjoin._kernel.expiry import ExpiryQueue
from flowjoin._kernel.interface import KernelLimits
from flowjoin._kernel.strings import Strings
from flowjoin._kernel.tally import Tally
from flowjoin._model.state_layout import StateLayout

__all__ = ["MAXIMUM_DEPARTED", "MAXIMUM_RETRIES", "Departed", "FlowTable"]

# Rows of evicted flows that may wait for the next ``expire``; at this bound new flows are refused.
MAXIMUM_DEPARTED: Final = 65_536
MAXIMUM_RETRIES: Final = 2  # deadlines that a half may outlive; at the next one it is given up

_NO_STATE: Final = bytearray()
_READY, _UPDATED, _ENRICHED, _ANEW = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class Departed:
    """A flow that was evicted before its data had left."""

    layout: StateLayout
    state: bytearray
    is_enriched: bool


class FlowTable:
    """Flows of every layout in one table with one limit."""

    def __init__(self, limits: KernelLimits, strings: Strings, tally: Tally) -> None:
        self._limits = limits
        self._strings = strings
        self._tally = tally
        self._handles: dict[bytes, int] = {}
        self._queue = ExpiryQueue()
        self._order = EvictionOrder()
        self._next_serial = 0
        self._free: list[int] = []
        self._keys: list[bytes | None] = []
        self._states: list[bytearray] = []
        self._layouts: list[StateLayout] = []
        self._serials = array("Q")
        self._active = array("d")
        self._idle = array("d")
        self._seen = array("d")
        self._flags = bytearray()
        self._retries = bytearray()
        self.departed: deque[Departed] = deque()

    def __len__(self) -> int:
        return len(self._handles)

    @property
    def waiting(self) -> int:
        """How many halves wait for their other half."""
        return self._order.waiting

    @property
    def slots(self) -> int:
        """All handles ever given are below this."""
        return len(self._keys)

    def find(self, key: bytes) -> int | None:
        """The handle of a key's flow."""
        return self._handles.get(key)

    def key(self, handle: int) -> bytes | None:
        """A handle's key; None if no flow has the handle now."""
        return self._keys[handle]

    def state(self, handle: int) -> bytearray:
        """A flow's packed state, to read and to write."""
        return self._states[handle]

    def layout(self, handle: int) -> StateLayout:
        """What a flow's state means."""
        return self._layouts[handle]

    def serial(self, handle: int) -> int:
        """Tells a flow from an earlier one of the same handle."""
        return self._serials[handle]

    def is_ready(self, handle: int) -> bool:
        """Whether the flow waits for nothing."""
        return bool(self._flags[handle] & _READY)

    def is_enriched(self, handle: int) -> bool:
        """Whether enrichers have given what they give for the flow."""
        return bool(self._flags[handle] & _ENRICHED)

    def has_room(self) -> bool:
        """Whether a new flow can be stored, be it in the place of another."""
        return len(self._handles) < self._limits.flows or len(self.departed) < MAXIMUM_DEPARTED

    def store(self, key: bytes, layout: StateLayout, state: bytearray, *, is_ready: bool, now: float) -> None:
        """Store a new flow; at the limit another leaves first."""
        while len(self._handles) >= self._limits.flows:
            self._evict()
        serial = self._next_serial
        self._next_serial += 1
        active = now if is_ready else now + self._limits.active_timeout
        idle = now + self._limits.idle_timeout
        flags = _UPDATED | (_READY if is_ready else 0)
        if self._free:
            handle = self._free.pop()
            self._keys[handle] = key
            self._states[handle] = state
            self._layouts[handle] = layout
            self._serials[handle] = serial
            self._active[handle] = active
            self._idle[handle] = idle
            self._seen[handle] = now
            self._flags[handle] = flags
            self._retries[handle] = 0
        else:
            handle = len(self._keys)
            self._keys.append(key)
            self._states.append(state)
            self._layouts.append(layout)
            self._serials.append(serial)
            self._active.append(active)
            self._idle.append(idle)
            self._seen.append(now)
            self._flags.append(flags)
            self._retries.append(0)
        self._queue.push(handle, serial, min(active, idle))
        if is_ready:
            self._order.add_ready(handle, serial, now)
        else:
            self._order.add_waiting(handle)
        self._handles[key] = handle
        self._tally.flows_created += 1

    def touch(self, handle: int, now: float, *, joins: bool) -> None:
        """A record came for the flow; with ``joins`` it was the other half, and the flow is ready now."""
        flags = self._flags[handle]
        if joins:
            assert not flags & _READY, "a flow is joined once"
            self._active[handle] = now
            self._order.remove_waiting(handle)
            self._order.add_ready(handle, self._serials[handle], now)
            flags |= _READY
        elif flags & _READY and self._seen[handle] != now:
            self._order.remove_ready(handle)
            self._order.add_ready(handle, self._serials[handle], now)
        self._seen[handle] = now
        self._flags[handle] = flags | _UPDATED
        self._idle[handle] = now + self._limits.idle_timeout
        self._queue.move(handle, min(self._active[handle], self._idle[handle]))

    def next_deadline(self) -> float | None:
        """The earliest deadline of all flows."""
        first = self._queue.first()
        return None if first is None else first[0]

    def first_due(self, now: float) -> int | None:
        """The handle of the flow that is due first; None if none is due."""
        first = self._queue.first()
        return None if first is None or first[0] > now else first[1]

    def retry(self, handle: int, now: float) -> None:
        """A half is due: it waits on, or is given up."""
        if self._retries[handle] >= MAXIMUM_RETRIES:
            self._tally.flows_given_up += 1
            self._release(self._layouts[handle], self._remove(handle))
            return
        self._retries[handle] += 1
        self._seen[handle] = now
        self._active[handle] = now + self._limits.active_timeout
        self._idle[handle] = now + self._limits.idle_timeout
        self._queue.move(handle, min(self._active[handle], self._idle[handle]))

    def take_update(self, handle: int) -> bool:
        """Whether a record came since the last export; from now on none has."""
        flags = self._flags[handle]
        self._flags[handle] = flags & ~_UPDATED
        return bool(flags & _UPDATED)

    def settle(self, handle: int, now: float) -> None:
        """A ready flow was exported as far as it had to be: it leaves, or is due again later."""
        if self._idle[handle] <= now:
            self._tally.flows_exported_last += 1
            self._release(self._layouts[handle], self._remove(handle))
            return
        self._active[handle] = now + self._limits.active_timeout
        self._queue.move(handle, min(self._active[handle], self._idle[handle]))

    def set_enriched(self, handle: int) -> None:
        """Enrichers have given what they give for the flow."""
        self._flags[handle] |= _ENRICHED

    def is_anew(self, handle: int) -> bool:
        """Whether the flow is from before a kill, and what its totals grew by since then was perhaps exported."""
        return bool(self._flags[handle] & _ANEW)

    def set_continued(self, handle: int) -> None:
        """What the flow's totals grow by from now on is not exported yet."""
        self._flags[handle] &= ~_ANEW

    def kept(self, handle: int) -> tuple[int, int, int, float, float]:
        """What outlives the process beside key and state: flags, retries, serial, next export, last record."""
        return (
            self._flags[handle],
            self._retries[handle],
            self._serials[handle],
            self._active[handle],
            self._seen[handle],
        )

    def has_place_for(self, key: bytes) -> bool:
        """Whether a flow of an earlier process can be put back."""
        return len(self._handles) < self._limits.flows and key not in self._handles

    def put_back(
        self,
        key: bytes,
        layout: StateLayout,
        state: bytearray,
        *,
        flags: int,
        retries: int,
        serial: int,
        active: float,
        seen: float,
    ) -> int:
        """Store a flow of an earlier process; gives its handle, for ``order_restored``."""
        handle = len(self._keys)
        self._keys.append(key)
        self._states.append(state)
        self._layouts.append(layout)
        self._serials.append(serial)
        self._active.append(active)
        self._idle.append(seen + self._limits.idle_timeout)
        self._seen.append(seen)
        self._flags.append(flags)
        self._retries.append(retries)
        self._queue.push(handle, serial, min(active, self._idle[handle]))
        self._handles[key] = handle
        self._next_serial = max(self._next_serial, serial + 1)
        self._tally.flows_restored += 1
        return handle

    def order_restored(self, handle: int, serial: int, seen: float) -> None:
        """Give it its place in the order of eviction; they come in that order."""
        if self._flags[handle] & _READY:
            self._order.add_ready(handle, serial, seen)
        else:
            self._order.add_waiting(handle)

    def release_departed(self, departed: Departed) -> None:
        """An evicted flow's row was made."""
        self._release(departed.layout, departed.state)

    def _evict(self) -> None:
        handle = self._order.first()
        assert handle is not None, "a full table has a flow to evict"
        self._tally.flows_evicted += 1
        layout, flags = self._layouts[handle], self._flags[handle]
        state = self._remove(handle)
        if flags & _UPDATED:  # without a record since its last export there is nothing new to say
            self.departed.append(Departed(layout, state, bool(flags & _ENRICHED)))
        else:
            self._release(layout, state)

    def _remove(self, handle: int) -> bytearray:
        key = self._keys[handle]
        assert key is not None, "a flow leaves once"
        if self._flags[handle] & _READY:
            self._order.remove_ready(handle)
        else:
            self._order.remove_waiting(handle)
        self._queue.remove(handle)
        del self._handles[key]
        self._keys[handle] = None
        self._free.append(handle)
        state, self._states[handle] = self._states[handle], _NO_STATE
        return state

    def _release(self, layout: StateLayout, state: bytearray) -> None:
        for number in layout.interned.unpack_from(state, layout.interned_offset):
            self._strings.release(number)
