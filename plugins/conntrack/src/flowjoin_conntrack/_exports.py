"""A row that is to be exported, and what the rules of exporting are told in."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from flowjoin_conntrack._entry import START_AT

__all__ = ["Counters", "EndReason", "Export", "Timeouts", "end_of"]

MetaT = TypeVar("MetaT")

_TIMES: Final = struct.Struct(">QQ")
_SECOND: Final = 1_000_000_000


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
        first_seen: nanoseconds since 1970, of the poll, event or packet that told of it first.
        end: seconds since 1970 that the row ends at; later than its start and than the end of the row before, for
            an aggregator takes nothing from a record that ends no later than what it knows.
    """

    row: bytes
    before: Counters
    reason: EndReason
    is_first: bool
    meta: MetaT
    first_seen: int
    end: int


def end_of(row: bytes, first_seen: int, last_seen: int, *, before: int) -> int:
    """When a row ends: at the last sign of life, but a second or more after the start and after the row before.

    Args:
        row: as ``ROW`` packs it.
        first_seen: nanoseconds since 1970, for a row without a start.
        last_seen: the same, for a row without a stop.
        before: the end of the row before, seconds since 1970; 0 where there is none.
    """
    start, stop = _TIMES.unpack_from(row, START_AT)
    return max((stop or last_seen) // _SECOND, (start or first_seen) // _SECOND + 1, before + 1)
