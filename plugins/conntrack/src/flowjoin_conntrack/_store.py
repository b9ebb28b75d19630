"""Which connections are known, which are due, and what has changed since their last export.

Pure: told what a poll or an event saw and what time it is; gives what is to be exported. A connection that changes is
exported every active timeout, one that is still once more and then left alone, one that is over for the last time.
What is held of each lies in a ``ConnectionTable``; here are the rules, which speak of those that changed.

Invariant: what a connection's rows say they add since the row before them sums up to what was seen of it.
"""

from __future__ import annotations

import heapq
import itertools
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from flowjoin_conntrack._entry import ROW, START_AT, TAIL, TAIL_AT, is_dying
from flowjoin_conntrack._exports import Counters, EndReason, Export, Timeouts, end_of
from flowjoin_conntrack._forms import ConnectionTable
from flowjoin_conntrack._table import ACTIVE, EXPORTED, FREE, GONE, LEFT_OUT, LOOKED, NO_STATE_BEFORE, QUEUED, READY
from flowjoin_conntrack._told import END, ToldTotals

__all__ = ["ConnectionStore"]

MetaT = TypeVar("MetaT")

_FIRST_RETRY: Final = 1.0  # between looks at a connection that is nobody's
_LONGEST_RETRY: Final = 60.0
_SLICE: Final = 16384  # slots looked at in one go: a millisecond in the plain form
_GONE_SLICE: Final = 1024  # of those that were not there
_LOOKS: Final = 16  # at entries of the queue, for a row
_LAST_SLICE: Final = 2048
_NEW_SLICE: Final = 64  # connections whose metadata is looked up in one go
_START: Final = slice(START_AT, START_AT + 8)
_NONE: Final = bytes(8)


class ConnectionStore(Generic[MetaT]):
    """Connections by identity, and a queue of what is due.

    A poll is ``begin_poll``, ``see`` for each portion as it arrives, and ``end_poll`` once the table was read whole;
    one that failed is simply not ended: what it saw counts, and nothing is gone because it was not seen.

    Attributes:
        forgotten: connections that a clean-up took away before a row told of them.
    """

    def __init__(
        self, timeouts: Timeouts, classify: Callable[[bytes], MetaT | None], told: ToldTotals | None = None
    ) -> None:
        """Start empty.

        Args:
            classify: what is known of a new connection; None leaves it out, and it is asked about again, ever less
                often, for what is known of addresses may come later than the connection.
            told: by an earlier store, of connections that may still be there; until the second whole poll.
        """
        self._timeouts = timeouts
        self._classify = classify
        self._told = ToldTotals() if told is None else told
        self._table = ConnectionTable()
        # By slot: what is known, which entry of the queue counts, and two deadlines.
        self._metas: list[MetaT | None] = []
        self._tickets = array("Q")
        self._active_deadlines = array("d")
        self._exported_at = array("d")
        self._told_ends = array("Q")
        self._queue: list[tuple[float, int, int]] = []  # due, ticket, slot
        self._retries: list[tuple[float, int, int, float]] = []  # when, ticket, slot, waited until then
        self._unlooked: list[tuple[int, int]] = []  # ticket, slot: due, but not looked at since they were exported
        self._overdue: deque[tuple[int, int]] = deque()  # the same once they were looked at, or are gone
        self._ticket = itertools.count(1)
        self._left_out = 0
        self._poll = self._whole_poll = 0
        self._now = 0.0
        self._wall = 0
        self.forgotten = 0

    def __len__(self) -> int:
        """Connections that are somebody's."""
        return len(self._table) - self._left_out

    @property
    def left_out(self) -> int:
        """Connections that are there and nobody's."""
        return self._left_out

    @property
    def is_overdue(self) -> bool:
        """Whether something is due that ``expire`` did not come to."""
        return bool(self._overdue)

    def begin_poll(self, now: float, wall: int) -> Iterator[int]:
        """The table is about to be read: forget what is over.

        Sliced: each step looks at some thousand connections and gives how many it forgot. Run it to its end.

        Args:
            now: monotonic seconds.
            wall: nanoseconds since 1970.
        """
        self._now, self._wall = now, wall
        for start in range(0, self._table.slots, _SLICE):
            absent = self._table.absent(self._whole_poll, start, start + _SLICE)
            for first in range(0, max(len(absent), 1), _GONE_SLICE):
                yield sum(self._forget_if_over(slot, now) for slot in absent[first : first + _GONE_SLICE])
        self._poll += 1

    def see(self, rows: bytes) -> Iterator[int]:
        """Rows of the poll that was begun.

        Sliced: each step gives how many connections it took that were not known. Run it to its end.
        """
        seen = self._table.see(rows, self._poll, self._now, self._wall)
        for slot in seen.woken:
            self._enqueue(slot, self._now + self._timeouts.active)
        for at in seen.renewed:
            slot = self._table.find(rows[at : at + ROW.size])
            if slot >= 0:
                self._end_identity(slot)
        fresh = seen.unknown + seen.renewed
        for start in range(0, len(fresh), _NEW_SLICE):
            some = fresh[start : start + _NEW_SLICE]
            for at in some:
                row = rows[at : at + ROW.size]
                slot = self._table.find(row)
                if slot < 0:
                    self._add(row)
                else:
                    self._complete(slot, row)
            yield len(some)

    def end_poll(self) -> Iterator[int]:
        """The table was read whole: what was not seen is gone.

        Sliced: each step asks again about some connections that were nobody's. Run it to its end.
        """
        if self._whole_poll:  # and what ended before the first one has been told by events
            self._told = ToldTotals()
        self._whole_poll = self._poll
        self._overdue.extend(self._unlooked)
        self._unlooked.clear()
        while self._retries and self._retries[0][0] <= self._now:
            asked = 0
            while asked < _NEW_SLICE and self._retries and self._retries[0][0] <= self._now:
                _, ticket, slot, waited = heapq.heappop(self._retries)
                asked += 1
                if self._tickets[slot] == ticket:
                    self._ask_again(slot, waited)
            yield asked

    def saw_event(self, row: bytes, now: float, wall: int, *, is_over: bool) -> None:
        """One connection began, changed or ended, between polls.

        An event of a change may lack counters; the ones that are known stay.
        """
        self._now, self._wall = now, wall
        slot = self._table.find(row)
        if slot >= 0:
            known = self._table.row(slot)
            if self._table.flags(slot) & GONE or _is_another(row, known):
                self._end_identity(slot)
                slot = -1
            elif not self._table.flags(slot) & READY:
                self._change(slot, _with_counters(row, known))
        if slot < 0:
            slot = self._add(row)
        if is_over:
            self._end(slot)

    def expire(self, now: float, limit: int) -> list[Export[MetaT]]:
        """What is due, at most ``limit`` rows, earliest first."""
        exports: list[Export[MetaT]] = []
        for _ in range(_LOOKS * limit):  # what was queued and is no more is passed over, in bounded time
            if len(exports) == limit:
                break
            if self._overdue:
                ticket, slot = self._overdue.popleft()
            elif self._queue and self._queue[0][0] <= now:
                _, ticket, slot = heapq.heappop(self._queue)
            else:
                break
            if self._tickets[slot] != ticket:
                continue  # forgotten, or due at another time
            due = self._due(slot)
            if due > now:  # it changed since it was queued
                heapq.heappush(self._queue, (due, ticket, slot))
                continue
            export = self._export(slot, now)
            if export is not None:
                exports.append(export)
        return exports

    def hasten(self, now: float) -> Iterator[int]:
        """There will be no later export: what has something to tell is due now.

        Sliced: each step gives how many there were. Run it to its end.
        """
        self._now = now
        for start in range(0, self._table.slots, _LAST_SLICE):
            hastened = 0
            for slot in range(start, min(start + _LAST_SLICE, self._table.slots)):
                flags = self._table.flags(slot)
                if flags & FREE or not flags & QUEUED:
                    continue
                if flags & ACTIVE or not flags & EXPORTED or not self._is_present(slot):
                    self._active_deadlines[slot] = now
                    self._tickets[slot] = ticket = next(self._ticket)
                    self._overdue.append((ticket, slot))
                    hastened += 1
            yield hastened

    def take_back(self, exports: Iterable[Export[MetaT]]) -> None:
        """What ``expire`` gave, and nobody was told; no later export will tell it, but a later store may."""
        for export in exports:
            slot = self._table.find(export.row)
            if slot < 0 or self._table.flags(slot) & GONE or _is_another(export.row, self._table.row(slot)):
                self.forgotten += export.is_first
                continue
            flags = 0 if export.is_first else EXPORTED
            self._table.restore(slot, export.first_seen, export.before, NO_STATE_BEFORE, flags)

    def told(self) -> Iterator[bytes]:
        """What was told of connections that are still there, for the ``ToldTotals`` of a later store; sliced."""
        for start in range(0, self._table.slots, _LAST_SLICE):
            told = self._table.told(start, start + _LAST_SLICE)
            yield b"".join(head + END.pack(self._told_ends[slot]) for slot, head in told)

    def next_expiry(self) -> float | None:
        """When something may be due, monotonic; None when nothing is queued."""
        return self._now if self._overdue else self._queue[0][0] if self._queue else None

    def _add(self, row: bytes) -> int:
        slot = self._table.add(row, self._poll, self._now, self._wall)
        if slot == len(self._metas):
            self._metas.append(None)
            self._tickets.append(0)
            self._active_deadlines.append(0.0)
            self._exported_at.append(0.0)
            self._told_ends.append(0)
        self._metas[slot] = meta = self._classify(row)
        self._exported_at[slot] = self._now
        told = self._told.take(row)
        is_active, flags = True, 0
        if told is not None:
            is_active = self._table.restore(slot, told.first_seen, told.before, told.tcp_state, EXPORTED)
            flags = told.flags
        self._told_ends[slot] = 0 if told is None else told.end
        if meta is None:
            self._table.set_flags(slot, LEFT_OUT)
            self._left_out += 1
            self._retry(slot, _FIRST_RETRY)
        elif is_active or flags & QUEUED:
            self._enqueue(slot, self._now + self._timeouts.active)
        else:
            self._table.set_flags(slot, flags & READY)  # its last row is out, or it rests
        return slot

    def _complete(self, slot: int, row: bytes) -> None:
        """An event told of it since the row was read: without counters, which the row has."""
        known = self._table.row(slot)
        if not self._table.flags(slot) & (GONE | READY) and not _is_another(row, known):
            self._change(slot, _with_counters(known, row))

    def _retry(self, slot: int, wait: float) -> None:
        self._tickets[slot] = ticket = next(self._ticket)
        heapq.heappush(self._retries, (self._now + wait, ticket, slot, wait))

    def _ask_again(self, slot: int, waited: float) -> None:
        if not self._is_present(slot):
            return  # the next clean-up forgets it
        self._metas[slot] = meta = self._classify(self._table.row(slot))
        if meta is None:
            self._retry(slot, min(2 * waited, _LONGEST_RETRY))
        else:
            self._table.set_flags(slot, ACTIVE, LEFT_OUT)
            self._left_out -= 1
            self._enqueue(slot, self._now + self._timeouts.active)

    def _change(self, slot: int, row: bytes) -> None:
        is_active = self._table.replace(slot, row, self._poll, self._now, self._wall)
        flags = self._table.flags(slot)
        if flags & LEFT_OUT:
            self._ask_again(slot, _FIRST_RETRY / 2)
        elif is_active and not flags & QUEUED:
            self._enqueue(slot, self._now + self._timeouts.active)

    def _end(self, slot: int) -> None:
        """An event told its end: there is nothing to wait for."""
        flags = self._table.flags(slot)
        if flags & LEFT_OUT or (flags & READY and not self._is_polling):
            self._forget(slot)
            return
        if flags & READY:
            self._table.set_flags(slot, GONE)
            return
        self._table.set_flags(slot, GONE | QUEUED)
        self._active_deadlines[slot] = self._now
        self._tickets[slot] = ticket = next(self._ticket)
        self._overdue.append((ticket, slot))

    def _end_identity(self, slot: int) -> None:
        """Another connection has its identity: this one is over, and exported if it waits for that."""
        if self._table.flags(slot) & QUEUED:
            self._table.detach(slot)
        else:
            self._forget(slot)

    def _enqueue(self, slot: int, deadline: float) -> None:
        self._table.set_flags(slot, QUEUED)
        self._active_deadlines[slot] = deadline
        self._tickets[slot] = ticket = next(self._ticket)
        heapq.heappush(self._queue, (self._due(slot), ticket, slot))

    @property
    def _is_polling(self) -> bool:
        """Whether rows may come that were read before what events told."""
        return self._poll != self._whole_poll

    def _is_present(self, slot: int) -> bool:
        return not self._table.flags(slot) & GONE and self._table.seen_in(slot) >= self._whole_poll

    def _due(self, slot: int) -> float:
        return min(self._active_deadlines[slot], self._table.changed_at(slot) + self._timeouts.idle)

    def _export(self, slot: int, now: float) -> Export[MetaT] | None:
        row, flags = self._table.row(slot), self._table.flags(slot)
        status, tcp_state, *_ = TAIL.unpack_from(row, TAIL_AT)
        is_over = is_dying(tcp_state, status, is_present=self._is_present(slot))
        if not is_over and not flags & (ACTIVE | LOOKED):
            # Nobody has looked since its last export, for the poll failed or is late: there is nothing to say yet.
            self._unlooked.append((self._tickets[slot], slot))
            return None
        reason = EndReason.END_OF_FLOW if is_over else EndReason.ACTIVE if flags & ACTIVE else EndReason.IDLE
        meta = self._metas[slot]
        assert meta is not None, "what is nobody's is never queued"
        first_seen, last_seen = self._table.seen(slot)
        before = Counters(*self._table.before(slot))
        self._told_ends[slot] = end = end_of(row, first_seen, last_seen, before=self._told_ends[slot])
        export = Export(row, before, reason, not flags & EXPORTED, meta, first_seen, end)
        self._table.exported(slot)
        self._exported_at[slot] = now
        if is_over:
            self._table.set_flags(slot, READY, QUEUED)
            self._tickets[slot] = 0
            if flags & GONE and not self._is_polling:
                self._forget(slot)  # no poll that began before its end can bring it back
        elif reason is EndReason.IDLE or self._table.changed_at(slot) + self._timeouts.idle <= now:
            self._table.set_flags(slot, 0, QUEUED)
            self._tickets[slot] = 0
        else:
            self._active_deadlines[slot] = now + self._timeouts.active
            heapq.heappush(self._queue, (self._due(slot), self._tickets[slot], slot))
        return export

    def _forget_if_over(self, slot: int, now: float) -> bool:
        flags = self._table.flags(slot)
        is_stale = now - self._exported_at[slot] >= self._timeouts.stale
        if flags & FREE or not (flags & (READY | LEFT_OUT) or is_stale):
            return False
        self.forgotten += not flags & (EXPORTED | LEFT_OUT)
        self._forget(slot)
        return True

    def _forget(self, slot: int) -> None:
        self._left_out -= bool(self._table.flags(slot) & LEFT_OUT)
        self._table.free(slot)
        self._metas[slot] = None
        self._tickets[slot] = 0


def _is_another(row: bytes, known: bytes) -> bool:
    """Whether two rows of one identity are of two connections, by the times they began."""
    began, known_began = row[_START], known[_START]
    return began != known_began and began != _NONE and known_began != _NONE


def _with_counters(row: bytes, known: bytes) -> bytes:
    """The event's row, with totals never smaller than the known ones: events of change come without counters."""
    *state, packets, octets, reverse_packets, reverse_octets = TAIL.unpack_from(row, TAIL_AT)
    totals = TAIL.unpack_from(known, TAIL_AT)[2:]
    greatest = map(max, (packets, octets, reverse_packets, reverse_octets), totals)
    start = known[_START] if row[_START] == _NONE else row[_START]
    return row[: _START.start] + start + row[_START.stop : TAIL_AT] + TAIL.pack(*state, *greatest)
