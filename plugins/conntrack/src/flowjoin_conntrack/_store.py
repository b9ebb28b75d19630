"""Which connections are known, which are due, and what has changed since their last export.

Pure: told what a poll or an event saw and what time it is; gives what is to be exported. A connection that changes is
exported every active timeout, one that is still once more and then left alone, one that is over for the last time.
Between exports nothing is done for a connection that did not change but to compare its row.
"""

from __future__ import annotations

import heapq
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from flowjoin_conntrack._entry import IDENTITY, ROW, is_dying

__all__ = ["ConnectionStore", "EndReason", "Export", "Timeouts"]

MetaT = TypeVar("MetaT")

_TAIL: Final = struct.Struct(">IBQQQQ")  # status, TCP state, packets, octets, and both of the reply
_TAIL_AT: Final = ROW.size - _TAIL.size
_IDENTITY: Final = IDENTITY.size
_LONGEST_RETRY: Final = 60.0  # between looks at a connection that is nobody's


class EndReason(IntEnum):
    """Values of flowEndReason (RFC 5102 section 5.11.3)."""

    IDLE = 1
    ACTIVE = 2
    END_OF_FLOW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds.

    Attributes:
        active: a connection that changes is exported so often.
        idle: one that has been still for so long is exported, then left alone.
        stale: one that is gone and was not exported for so long is forgotten.
    """

    active: float
    idle: float
    stale: float


class Counters(NamedTuple):
    """Totals of a connection."""

    packets: int = 0
    octets: int = 0
    reverse_packets: int = 0
    reverse_octets: int = 0


class Export(NamedTuple, Generic[MetaT]):
    """One row to be exported.

    Attributes:
        row: as ``ROW`` packs it.
        before: the totals at the last export; zero at the first.
        last_seen: nanoseconds since 1970, of the poll or event that saw it last.
    """

    row: bytes
    before: Counters
    reason: EndReason
    last_seen: int
    is_first: bool
    meta: MetaT


class _Flow(Generic[MetaT]):
    __slots__ = (
        "active_deadline",
        "before",
        "changed_at",
        "exported_at",
        "exported_in",
        "is_exported",
        "is_queued",
        "is_ready_to_delete",
        "last_seen",
        "meta",
        "row",
        "seen_in",
        "tcp_state_before",
    )

    def __init__(self, row: bytes, meta: MetaT, *, now: float, poll: int) -> None:
        self.row = row
        self.meta = meta
        self.before = Counters()
        self.tcp_state_before = -1
        self.seen_in = poll
        self.last_seen = 0  # set by who adds it
        self.changed_at = now
        self.exported_at = now
        self.exported_in = -1
        self.active_deadline = 0.0
        self.is_queued = False
        self.is_exported = False
        self.is_ready_to_delete = False

    def has_changed(self) -> bool:
        """Whether the last export is not the whole truth any more."""
        tail: tuple[int, ...] = _TAIL.unpack_from(self.row, _TAIL_AT)
        _, tcp_state, packets, _, reverse_packets, _ = tail
        return (
            packets > self.before.packets
            or reverse_packets > self.before.reverse_packets
            or tcp_state != self.tcp_state_before
        )


class ConnectionStore(Generic[MetaT]):
    """Connections by identity, and a queue of what is due."""

    def __init__(self, timeouts: Timeouts, classify: Callable[[bytes], MetaT | None]) -> None:
        """Start empty.

        Args:
            classify: what is known of a new connection; None leaves it out, and it is asked about again, ever less
                often, for what is known of addresses may come later than the connection.
        """
        self._timeouts = timeouts
        self._classify = classify
        self._flows: dict[bytes, _Flow[MetaT]] = {}
        self._others: dict[bytes, tuple[float, float, int]] = {}  # when to ask again, how long waited, last poll
        self._queue: list[tuple[float, int, _Flow[MetaT]]] = []
        self._ticket = itertools.count()
        self._poll = 0
        self._now = 0.0
        self._wall = 0

    def __len__(self) -> int:
        return len(self._flows)

    @property
    def left_out(self) -> int:
        """Connections that are there and nobody's."""
        return len(self._others)

    def begin_poll(self, now: float, wall: int) -> Iterator[int]:
        """A whole table was read: forget what is over, then take rows with ``see``.

        Sliced: each step looks at a few thousand connections and gives how many it forgot. Run it to its end.

        Args:
            now: monotonic seconds.
            wall: nanoseconds since 1970.
        """
        last = self._poll
        self._now, self._wall = now, wall
        keys = list(self._flows)
        for start in range(0, len(keys), 4096):
            forgotten = 0
            for key in keys[start : start + 4096]:
                flow = self._flows[key]
                if flow.seen_in != last and (flow.is_ready_to_delete or now - flow.exported_at >= self._timeouts.stale):
                    del self._flows[key]
                    forgotten += 1
            yield forgotten
        self._others = {key: kept for key, kept in self._others.items() if kept[2] == last}
        self._poll += 1

    def see(self, rows: Iterable[bytes]) -> None:
        """Rows of the poll that was begun."""
        flows, poll, wall = self._flows, self._poll, self._wall
        for row in rows:
            flow = flows.get(row[:_IDENTITY])
            if flow is None:
                self._add(row)
            else:
                flow.seen_in = poll
                flow.last_seen = wall
                if flow.row != row:
                    self._update(flow, row)

    def saw_event(self, row: bytes, now: float, wall: int, *, is_over: bool) -> None:
        """One connection began, changed or ended, between polls.

        An event of a change may lack counters; the ones that are known stay.
        """
        self._now, self._wall = now, wall
        key = row[:_IDENTITY]
        flow = self._flows.get(key)
        if flow is None:
            self._others.pop(key, None)  # ends are asked about at once: there is no later
            self._add(row)
            flow = self._flows.get(key)
            if flow is None:
                return
        else:
            flow.last_seen = wall
            self._update(flow, _with_counters(row, flow.row))
        if is_over:
            flow.seen_in = -1  # not there: dying
            if not flow.is_ready_to_delete and not flow.is_queued:
                self._enqueue(flow)
        else:
            flow.seen_in = self._poll

    def expire(self, now: float, limit: int) -> list[Export[MetaT]]:
        """What is due, at most ``limit`` rows, earliest first."""
        exports: list[Export[MetaT]] = []
        while self._queue and self._queue[0][0] <= now and len(exports) < limit:
            _, _, flow = heapq.heappop(self._queue)
            due = min(flow.active_deadline, self._idle_deadline(flow))
            if due > now:  # it changed since it was queued
                heapq.heappush(self._queue, (due, next(self._ticket), flow))
            else:
                exports.append(self._export(flow, now))
        return exports

    def next_expiry(self) -> float | None:
        """When something may be due, monotonic; None when nothing is queued."""
        return self._queue[0][0] if self._queue else None

    def _add(self, row: bytes) -> None:
        key = row[:_IDENTITY]
        waiting = self._others.get(key)
        if waiting is not None and self._now < waiting[0]:
            self._others[key] = (*waiting[:2], self._poll)
            return
        meta = self._classify(row)
        if meta is None:
            wait = min(max(1.0, 2 * (waiting[1] if waiting else 0.5)), _LONGEST_RETRY)
            self._others[key] = (self._now + wait, wait, self._poll)
            return
        self._others.pop(key, None)
        flow = _Flow(row, meta, now=self._now, poll=self._poll)
        flow.last_seen = self._wall
        self._flows[key] = flow
        self._enqueue(flow)

    def _update(self, flow: _Flow[MetaT], row: bytes) -> None:
        if flow.is_ready_to_delete:
            return  # its last export is out: nothing more is said of it
        flow.row = row
        if flow.has_changed():
            flow.changed_at = self._now
            if not flow.is_queued:
                self._enqueue(flow)

    def _enqueue(self, flow: _Flow[MetaT]) -> None:
        flow.changed_at = self._now
        flow.active_deadline = self._now + self._timeouts.active
        flow.is_queued = True
        due = min(flow.active_deadline, self._idle_deadline(flow))
        heapq.heappush(self._queue, (due, next(self._ticket), flow))

    def _is_present(self, flow: _Flow[MetaT]) -> bool:
        return flow.seen_in == self._poll

    def _idle_deadline(self, flow: _Flow[MetaT]) -> float:
        return flow.changed_at + self._timeouts.idle

    def _export(self, flow: _Flow[MetaT], now: float) -> Export[MetaT]:
        status, tcp_state, *totals = _TAIL.unpack_from(flow.row, _TAIL_AT)
        is_over = is_dying(tcp_state, status, is_present=self._is_present(flow))
        # Until a poll has looked again nobody knows that an exported connection is still.
        is_active = flow.has_changed() or flow.exported_in == self._poll
        reason = EndReason.END_OF_FLOW if is_over else EndReason.ACTIVE if is_active else EndReason.IDLE
        export = Export(flow.row, flow.before, reason, flow.last_seen, not flow.is_exported, flow.meta)
        flow.is_exported = True
        flow.is_ready_to_delete = is_over
        flow.exported_at, flow.exported_in = now, self._poll
        flow.before, flow.tcp_state_before = Counters(*totals), tcp_state
        if is_over or not is_active or self._idle_deadline(flow) <= now:
            flow.is_queued = False
        else:
            flow.active_deadline = now + self._timeouts.active
            due = min(flow.active_deadline, self._idle_deadline(flow))
            heapq.heappush(self._queue, (due, next(self._ticket), flow))
        return export


def _with_counters(row: bytes, known: bytes) -> bytes:
    """The event's row, with totals never smaller than the known ones: events of change come without counters."""
    *state, packets, octets, reverse_packets, reverse_octets = _TAIL.unpack_from(row, _TAIL_AT)
    totals = _TAIL.unpack_from(known, _TAIL_AT)[2:]
    greatest = map(max, (packets, octets, reverse_packets, reverse_octets), totals)
    return row[:_TAIL_AT] + _TAIL.pack(*state, *greatest)
