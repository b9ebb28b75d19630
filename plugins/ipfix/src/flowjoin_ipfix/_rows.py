"""Rows written to octets, and cut into what is sent in one piece.

Cutting goes by true sizes, after the rows are written. Invariant: no unit is longer than the room, and every row that
was not refused is in exactly one unit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import sub
from typing import Protocol

from flowjoin.api import FlowBatch

__all__ = ["RowWriter", "Unit", "WrittenRows", "units_of", "written_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows:
    """A batch's rows as octets, one behind the other.

    Attributes:
        ends: where each written row ends in ``octets``.
        rows: the number in the batch of each written row.
        refused: why a row could not be written, by its number.
    """

    octets: bytes
    ends: Sequence[int]
    rows: Sequence[int]
    refused: Mapping[int, str]


class RowWriter(Protocol):
    """Writes the rows of batches that have one and the same schema."""

    def write(self, batch: FlowBatch) -> WrittenRows: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What is sent in one piece.

    Attributes:
        template_id: of the Data Records in it; 0 without a Template.
        octets: the records.
        rows: how many they are.
    """

    template_id: int
    octets: bytes
    rows: int


def written_rows(octets: bytes, ends: Sequence[int], refused: Mapping[int, str], room: int) -> WrittenRows:
    """What was written, without the rows that are refused and those that are too long.

    Args:
        octets: of every row of the batch, also of a refused one.
        ends: where each of them ends.
        refused: why a row could not be written, by its number.
        room: octets that a row may have.
    """
    if not refused and len(octets) <= room:
        return WrittenRows(octets=octets, ends=ends, rows=range(len(ends)), refused=refused)
    starts = [0, *ends[:-1]]
    lengths = list(map(sub, ends, starts))
    too_long = {}
    if max(lengths, default=0) > room:
        too_long = {
            row: f"its record of {length} octets is over the limit of {room}"
            for row, length in enumerate(lengths)
            if length > room and row not in refused
        }
    if not refused and not too_long:
        return WrittenRows(octets=octets, ends=ends, rows=range(len(ends)), refused=refused)
    refused = {**refused, **too_long}
    rows = [row for row in range(len(ends)) if row not in refused]
    return WrittenRows(
        octets=b"".join([octets[starts[row] : ends[row]] for row in rows]),
        ends=list(accumulate(lengths[row] for row in rows)),
        rows=rows,
        refused=refused,
    )


def units_of(written: WrittenRows, template_id: int, *, room: int, most_rows: int) -> Iterator[Unit]:
    """Cut written rows, by their true sizes, into units of at most so many octets and rows.

    A row that is longer than the room is a unit of its own; ``written_rows`` refused those that fit nowhere.
    """
    first = start = 0
    while first < len(written.ends):
        last = max(min(bisect_right(written.ends, start + room, first), first + most_rows), first + 1)
        end = written.ends[last - 1]
        yield Unit(template_id=template_id, octets=written.octets[start:end], rows=last - first)
        first, start = last, end
