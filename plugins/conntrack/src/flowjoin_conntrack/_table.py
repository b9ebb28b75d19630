"""What is held of each connection, in slots: the plain form; ``_compiled_table`` has the same, faster and smaller.

A poll brings rows by the hundred thousand, and nearly all are as they were. ``see`` takes them in bulk and gives back
only what the store must think about. What a slot means to the store is in its flags.

Invariant: a slot that is in use stays where it is until it is freed; its number is then given again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final, NamedTuple

from flowjoin_conntrack._entry import IDENTITY, OVER, ROW, START_AT, STATE_AT, TAIL, TAIL_AT
from flowjoin_conntrack._told import TOLD

__all__ = [
    "ACTIVE",
    "EXPORTED",
    "FREE",
    "GONE",
    "LEFT_OUT",
    "LOOKED",
    "NO_STATE_BEFORE",
    "QUEUED",
    "READY",
    "ConnectionTable",
    "Seen",
]

LEFT_OUT: Final = 1  # nobody's: watched, never exported
QUEUED: Final = 2  # to be exported when a deadline comes
ACTIVE: Final = 4  # when last looked at it had changed since its last export
LOOKED: Final = 8  # looked at since its last export
EXPORTED: Final = 16  # at least once
READY: Final = 32  # its last export is out: it may be deleted
GONE: Final = 64  # an event told its end, or its identity is another's now
FREE: Final = 128  # in use by nobody

_IDENTITY: Final = IDENTITY.size
_START: Final = slice(START_AT, START_AT + 8)
_NONE: Final = bytes(8)
NO_STATE_BEFORE: Final = 254  # of what was never exported


class Seen(NamedTuple):
    """What a look at some rows found, beside those that are known and need nothing.

    Attributes:
        unknown: where in the rows those stand that no slot holds.
        renewed: where those stand whose identity belongs to an older connection: by its start, or where one of them
            has none, by what it counted.
        woken: slots that are active and in no queue.
    """

    unknown: list[int]
    renewed: list[int]
    woken: list[int]


class ConnectionTable:
    """Slots by identity."""

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}
        self._rows: list[bytes] = []
        self._flags = bytearray()
        self._seen_in = array("I")
        self._first_seen = array("Q")
        self._last_seen = array("Q")
        self._changed_at = array("d")
        self._before: list[tuple[int, int, int, int]] = []
        self._state_before = bytearray()
        self._free: list[int] = []

    def __len__(self) -> int:
        """Slots in use."""
        return len(self._rows) - len(self._free)

    @property
    def slots(self) -> int:
        """Slots that were ever in use: their numbers are below."""
        return len(self._rows)

    def see(self, rows: bytes, poll: int, now: float, wall: int) -> Seen:
        """Rows of a poll.

        Args:
            poll: its number.
            now: monotonic seconds.
            wall: nanoseconds since 1970.
        """
        unknown: list[int] = []
        renewed: list[int] = []
        woken: list[int] = []
        for at in range(0, len(rows) - ROW.size + 1, ROW.size):
            row = rows[at : at + ROW.size]
            slot = self._index.get(row[:_IDENTITY])
            if slot is None:
                unknown.append(at)
                continue
            known = self._rows[slot]
            is_dated = row[_START] != _NONE and known[_START] != _NONE
            if is_dated and row[_START] != known[_START]:
                renewed.append(at)
                continue
            if self._flags[slot] & GONE:
                continue  # read before its end was told
            if not is_dated and row != known and _is_younger(row, known):
                renewed.append(at)
                continue
            self._seen_in[slot] = poll
            self._flags[slot] |= LOOKED
            if known[STATE_AT] in OVER:
                continue  # nothing more is said of it
            self._last_seen[slot] = wall
            if row != known:
                self._rows[slot] = row
                self._compare(slot)
            if self._flags[slot] & (ACTIVE | LEFT_OUT) == ACTIVE:
                self._changed_at[slot] = now
                if not self._flags[slot] & QUEUED:
                    woken.append(slot)
        return Seen(unknown, renewed, woken)

    def find(self, row: bytes) -> int:
        """The slot of a row's identity; below zero if there is none."""
        return self._index.get(row[:_IDENTITY], -1)

    def add(self, row: bytes, poll: int, now: float, wall: int) -> int:
        """Hold a row whose identity no slot has; its slot, with no flag but ACTIVE and LOOKED."""
        assert len(row) == ROW.size
        assert row[:_IDENTITY] not in self._index
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._rows)
            self._rows.append(b"")
            self._before.append((0, 0, 0, 0))
            columns: tuple[tuple[Callable[[int], object], int], ...] = (
                (self._flags.append, 0),
                (self._state_before.append, 0),
                (self._seen_in.append, 0),
                (self._first_seen.append, 0),
                (self._last_seen.append, 0),
                (self._changed_at.append, 0),
            )
            for append, value in columns:
                append(value)
        self._index[row[:_IDENTITY]] = slot
        self._rows[slot] = row
        self._before[slot] = (0, 0, 0, 0)
        self._state_before[slot] = NO_STATE_BEFORE
        self._flags[slot] = ACTIVE | LOOKED
        self._seen_in[slot] = poll
        self._first_seen[slot] = self._last_seen[slot] = wall
        self._changed_at[slot] = now
        return slot

    def replace(self, slot: int, row: bytes, poll: int, now: float, wall: int) -> bool:
        """Put a newer row of the same identity; whether it is active by that."""
        assert row[:_IDENTITY] == self.row(slot)[:_IDENTITY]
        self._rows[slot] = row
        self._seen_in[slot], self._last_seen[slot] = poll, wall
        self._flags[slot] |= LOOKED
        self._compare(slot)
        is_active = bool(self._flags[slot] & ACTIVE)
        if is_active:
            self._changed_at[slot] = now
        return is_active

    def row(self, slot: int) -> bytes:
        """What was seen last."""
        return self._rows[self._used(slot)]

    def flags(self, slot: int) -> int:
        """Of a slot that is in use, or FREE."""
        return self._flags[slot]

    def set_flags(self, slot: int, on: int, off: int = 0) -> None:
        """Set some, clear others."""
        slot = self._used(slot)
        self._flags[slot] = self._flags[slot] & ~off | on

    def seen_in(self, slot: int) -> int:
        """The poll that saw it last."""
        return self._seen_in[self._used(slot)]

    def seen(self, slot: int) -> tuple[int, int]:
        """Nanoseconds since 1970, first and last."""
        return self._first_seen[self._used(slot)], self._last_seen[slot]

    def changed_at(self, slot: int) -> float:
        """When it was last seen active, monotonic seconds."""
        return self._changed_at[self._used(slot)]

    def before(self, slot: int) -> tuple[int, int, int, int]:
        """Totals at its last export: packets, octets, and both of the reply."""
        return self._before[self._used(slot)]

    def exported(self, slot: int) -> None:
        """What is in its row has been exported."""
        _, state, packets, octets, reverse_packets, reverse_octets = TAIL.unpack_from(self.row(slot), TAIL_AT)
        self._before[slot] = (packets, octets, reverse_packets, reverse_octets)
        self._state_before[slot] = state
        self._flags[slot] = self._flags[slot] & ~(ACTIVE | LOOKED) | EXPORTED

    def restore(
        self, slot: int, first_seen: int, before: tuple[int, int, int, int], state_before: int, flags: int
    ) -> bool:
        """Of a slot that was just added it is known what an earlier table exported; whether it has changed since.

        Args:
            flags: EXPORTED, or nothing where it was not.
        """
        self._first_seen[self._used(slot)] = first_seen
        self._before[slot] = before
        self._state_before[slot] = state_before
        self._flags[slot] = self._flags[slot] & ~EXPORTED | flags
        self._compare(slot)
        return bool(self._flags[slot] & ACTIVE)

    def told(self, start: int, stop: int) -> list[tuple[int, bytes]]:
        """Of some slots, those that were exported and are not gone, and as ``TOLD`` packs it what was exported."""
        return [
            (
                slot,
                TOLD.pack(
                    self._rows[slot][:_IDENTITY],
                    self._rows[slot][_START],
                    self._first_seen[slot],
                    *self._before[slot],
                    self._state_before[slot],
                    self._flags[slot],
                ),
            )
            for slot in range(start, min(stop, len(self._rows)))
            if self._flags[slot] & (EXPORTED | GONE | FREE) == EXPORTED
        ]

    def detach(self, slot: int) -> None:
        """Its identity is another's from now on; the slot stays."""
        self.set_flags(slot, GONE)
        if self._index.get(self._rows[slot][:_IDENTITY]) == slot:
            del self._index[self._rows[slot][:_IDENTITY]]

    def free(self, slot: int) -> None:
        """Forget it."""
        self.detach(slot)
        self._rows[slot] = b""
        self._flags[slot] = FREE
        self._free.append(slot)

    def absent(self, poll: int, start: int, stop: int) -> list[int]:
        """Of some slots, those that are gone or were not seen in this poll or a later one."""
        return [
            slot
            for slot in range(start, min(stop, len(self._rows)))
            if (self._seen_in[slot] < poll or self._flags[slot] & GONE) and not self._flags[slot] & FREE
        ]

    def _used(self, slot: int) -> int:
        if not 0 <= slot < len(self._rows) or self._flags[slot] & FREE:
            raise IndexError(f"slot {slot} is not in use")
        return slot

    def _compare(self, slot: int) -> None:
        """Whether its row says more than its last export did."""
        _, state, packets, _, reverse_packets, _ = TAIL.unpack_from(self._rows[slot], TAIL_AT)
        before = self._before[slot]
        is_active = packets > before[0] or reverse_packets > before[2] or state != self._state_before[slot]
        self._flags[slot] = self._flags[slot] & ~ACTIVE | (ACTIVE if is_active else 0)


def _is_younger(row: bytes, known: bytes) -> bool:
    """Whether one of two rows without a start is of a later connection: it counted less, or is not over any more."""
    if row[STATE_AT] not in OVER and known[STATE_AT] in OVER:
        return True
    totals = zip(TAIL.unpack_from(row, TAIL_AT)[2:], TAIL.unpack_from(known, TAIL_AT)[2:], strict=True)
    return any(now < then for now, then in totals)
