"""Rows written to octets, and cut into what is sent in one piece.

The seam for compiled writers: whatever has ``write`` may stand where ``RecordEncoder`` or ``JsonEncoder`` stands.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress
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


def written_rows(records: Sequence[bytes], refused: Mapping[int, str], room: int) -> WrittenRows:
    """Gather one octet string per row, without the refused ones and those that are too long.

    Args:
        records: one for each row of the batch, also for a refused one.
        room: octets that a row may have.
    """
    rows: Sequence[int] = range(len(records))
    lengths = list(map(len, records))
    if refused or (lengths and max(lengths) > room):
        too_long = {
            row: f"its record of {length} octets is over the limit of {room}"
            for row, length in enumerate(lengths)
            if length > room and row not in refused
        }
        refused = {**refused, **too_long}
        wanted = [row not in refused for row in rows]
        rows, records = list(compress(rows, wanted)), list(compress(records, wanted))
        lengths = list(map(len, records))
    return WrittenRows(octets=b"".join(records), ends=list(accumulate(lengths)), rows=rows, refused=refused)


def units_of(written: WrittenRows, template_id: int, *, room: int, most_rows: int) -> Iterator[Unit]:
    """Cut written rows, by their true sizes, into units of at most so many octets and rows.

    A row that is longer than the room is a unit of its own.
    """
    first = start = 0
    while first < len(written.ends):
        last = max(min(bisect_right(written.ends, start + room, first), first + most_rows), first + 1)
        end = written.ends[last - 1]
        yield Unit(template_id=template_id, octets=written.octets[start:end], rows=last - first)
        first, start = last, end
