"""Which connections were denied, and which of them are due: packets that repeat add up to one connection.

Pure: told which packet was denied and what time it is. A denied connection is exported after the active timeout, and
then as long as its packets come; after the idle timeout for the last time. Every row says that the flow is over: none
of these packets went anywhere.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Final, Generic, TypeVar

from flowjoin_conntrack._entry import IDENTITY, Connection
from flowjoin_conntrack._exports import Counters, EndReason, Export, Timeouts, end_of
from flowjoin_conntrack._verdict import Verdict

__all__ = ["Denial", "DeniedStore"]

MetaT = TypeVar("MetaT")

_FORGET_EVERY: Final = 60.0  # seconds
_LAST_SLICE: Final = 2048


class Denial(Enum):
    """What became of a packet."""

    NEW = "new"
    REPEATED = "repeated"
    NOT_WANTED = "not_wanted"
    NO_ROOM = "no_room"


class _Denied(Generic[MetaT]):
    __slots__ = (
        "active_deadline",
        "before",
        "connection",
        "exported_at",
        "idle_deadline",
        "is_exported",
        "is_queued",
        "is_ready_to_delete",
        "meta",
        "octets",
        "packets",
        "stop",
        "told_end",
    )

    def __init__(self, connection: Connection, meta: MetaT, now: float) -> None:
        self.connection = connection
        self.meta = meta
        self.packets = self.octets = 0
        self.before = Counters()
        self.stop = connection.start
        self.told_end = 0
        self.exported_at = now
        self.active_deadline = self.idle_deadline = now
        self.is_exported = self.is_queued = self.is_ready_to_delete = False

    @property
    def due(self) -> float:
        return min(self.active_deadline, self.idle_deadline)


class DeniedStore(Generic[MetaT]):
    """Denied connections by their ends, and a queue of what is due."""

    def __init__(
        self, timeouts: Timeouts, classify: Callable[[Connection, Verdict], MetaT | None], *, most: int
    ) -> None:
        """Start empty.

        Args:
            timeouts: as for connections that passed.
            classify: what is known of a new one; None leaves it out.
            most: connections held; a scan of ports makes a new one with each packet.
        """
        self._timeouts = timeouts
        self._classify = classify
        self._most = most
        self._flows: dict[bytes, _Denied[MetaT]] = {}
        self._queue: list[tuple[float, int, _Denied[MetaT]]] = []
        self._ticket = itertools.count()
        self._forget_at = 0.0

    def __len__(self) -> int:
        return len(self._flows)

    def deny(self, connection: Connection, verdict: Verdict, octets: int, now: float) -> Denial:
        """One packet was denied.

        Args:
            connection: of the packet; ``start`` says when it came.
            verdict: by which rule.
            octets: of the packet.
            now: monotonic seconds.
        """
        key = IDENTITY.pack(
            connection.family,
            connection.protocol,
            0,
            0,
            connection.source,
            connection.destination,
            connection.source_port,
            connection.destination_port,
        )
        flow = self._flows.get(key)
        outcome = Denial.REPEATED
        if flow is None or flow.is_ready_to_delete:  # its last row is out: what comes now is another
            if flow is None and len(self._flows) >= self._most:
                return Denial.NO_ROOM
            meta = self._classify(connection, verdict)
            if meta is None:
                return Denial.NOT_WANTED
            flow = self._flows[key] = _Denied(connection, meta, now)
            outcome = Denial.NEW
        flow.packets += 1
        flow.octets += octets
        flow.stop = max(flow.stop, connection.start)
        flow.idle_deadline = now + self._timeouts.idle
        if not flow.is_queued:
            flow.active_deadline = now + self._timeouts.active
            self._push(flow)
        return outcome

    def expire(self, now: float, limit: int) -> list[Export[MetaT]]:
        """What is due, at most ``limit`` rows, earliest first."""
        exports: list[Export[MetaT]] = []
        while self._queue and self._queue[0][0] <= now and len(exports) < limit:
            _, _, flow = heapq.heappop(self._queue)
            if flow.due > now:  # its idle deadline was put off since it was queued
                self._push(flow)
            else:
                exports.append(self._export(flow, now))
        if now >= self._forget_at:
            self._forget_at = now + _FORGET_EVERY
            self._forget(now)
        return exports

    def hasten(self, now: float) -> Iterator[int]:
        """There will be no later export: what has something to tell is due now; sliced as the other store's."""
        flows = iter(list(self._flows.values()))
        while some := list(itertools.islice(flows, _LAST_SLICE)):
            hastened = [flow for flow in some if flow.is_queued and flow.packets > flow.before.packets]
            for flow in hastened:
                flow.active_deadline = now
                self._push(flow)
            yield len(hastened)

    def next_expiry(self) -> float | None:
        """When something may be due, monotonic; None when nothing is queued."""
        return self._queue[0][0] if self._queue else None

    def _push(self, flow: _Denied[MetaT]) -> None:
        flow.is_queued = True
        heapq.heappush(self._queue, (flow.due, next(self._ticket), flow))

    def _export(self, flow: _Denied[MetaT], now: float) -> Export[MetaT]:
        row = replace(flow.connection, stop=flow.stop, packets=flow.packets, octets=flow.octets).pack()
        start = flow.connection.start
        flow.told_end = end = end_of(row, start, flow.stop, before=flow.told_end)
        export = Export(row, flow.before, EndReason.END_OF_FLOW, not flow.is_exported, flow.meta, start, end)
        is_active = flow.packets > flow.before.packets
        flow.is_ready_to_delete = flow.idle_deadline <= now
        flow.is_exported = True
        flow.exported_at = now
        flow.before = Counters(flow.packets, flow.octets)
        if flow.is_ready_to_delete or not is_active:
            flow.is_queued = False
        else:
            flow.active_deadline = now + self._timeouts.active
            self._push(flow)
        return export

    def _forget(self, now: float) -> None:
        over = [
            key
            for key, flow in self._flows.items()
            if flow.is_ready_to_delete or now - flow.exported_at >= self._timeouts.stale
        ]
        for key in over:
            flow = self._flows[key]
            if not flow.is_queued:
                del self._flows[key]
