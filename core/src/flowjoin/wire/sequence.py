"""Sequence numbers: how many Data Records of a stream are missing (RFC 7011 section 3.1).

Strategy: remember what the next number must be, and the ranges that were skipped lately. A Message
that falls into a skipped range was only late and takes its loss back; a jump no loss can explain, or
two Messages that follow one another outside of what is expected, are a restart.

Invariant: the losses given add up to the records missing now, never below zero.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SequenceTracker"]

_MODULUS: Final = 1 << 32
# A larger jump forwards is a restart at some other number: at 50,000 records a second five minutes
# without a single Message, long after which the loss is news to nobody.
_LARGEST_GAP: Final = 1 << 24
# A Message this far behind is no late one: networks reorder within milliseconds.
_REORDER_WINDOW: Final = 1 << 17  # records; a Message holds up to 65,519
_REMEMBERED_GAPS: Final = 64


class SequenceTracker:
    """The sequence of one Transport Session and observation domain."""

    __slots__ = ("_expected", "_gaps", "_has_records", "_is_exact", "_stray_next")

    def __init__(self) -> None:
        self._expected: int | None = None
        self._has_records = False
        self._is_exact = True  # False: the last Message's records could not be counted, so this is the least
        self._gaps: list[tuple[int, int]] = []  # skipped ranges: first number and count, oldest first
        self._stray_next = -1  # what would follow the last Message that was neither late nor expected

    def receive(self, sequence_number: int, records: int | None) -> int:
        """Take a Message's number and its Data Records (None: not countable); give the records newly lost.

        Negative when records thought lost have arrived.
        """
        if self._expected is None:
            self._restart(sequence_number, records)
            return 0
        ahead = (sequence_number - self._expected) % _MODULUS
        if ahead <= _LARGEST_GAP:
            lost = ahead if self._is_exact else 0
            if ahead == records and not self._has_records:
                # Exporters of Antrea before 2.4 count the Message's own records too: the first data
                # seems to come after a loss of just its size, and the rest is then in step.
                lost = 0
            if lost:
                self._gaps.append((self._expected, lost))
                del self._gaps[:-_REMEMBERED_GAPS]
            self._expect_after(sequence_number, records)
            return lost
        if _MODULUS - ahead > _REORDER_WINDOW:
            self._restart(sequence_number, records)
            return 0
        found = self._take_back(sequence_number, records or 0)
        if not found and records:
            if sequence_number == self._stray_next:
                self._restart(sequence_number, records)
            else:  # a Message twice, or the first after a restart: the next one tells
                self._stray_next = (sequence_number + records) % _MODULUS
        return -found

    def _restart(self, sequence_number: int, records: int | None) -> None:
        self._gaps.clear()
        self._has_records = False
        self._expect_after(sequence_number, records)

    def _expect_after(self, sequence_number: int, records: int | None) -> None:
        self._stray_next = -1
        self._expected = (sequence_number + (records or 0)) % _MODULUS
        self._is_exact = records is not None
        self._has_records = self._has_records or records != 0

    def _take_back(self, first: int, count: int) -> int:
        """Records of ``[first, first + count)`` that were counted as lost; they are not any more."""
        found = 0
        gaps: list[tuple[int, int]] = []
        for start, length in self._gaps:
            begin = (first - start) % _MODULUS
            if begin >= length:  # begins outside of this gap
                gaps.append((start, length))
                continue
            taken = min(count, length - begin)
            found += taken
            if begin:
                gaps.append((start, begin))
            if begin + taken < length:
                gaps.append(((start + begin + taken) % _MODULUS, length - begin - taken))
        self._gaps = gaps
        return found
