"""What objects are called: pure.

Invariant: the same batch has the same keys, after a failure and after a restart too, so that an object that was
uploaded once more takes the place of the first. A key follows from the batch's id and rows alone.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from flowjoin.api import FlowBatch

__all__ = ["MOST_HOURS", "HourSplit", "antrea_key", "partitioned_key"]

_DIGITS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_ANTREA_DIGITS: Final = 12
_PARTITIONED_DIGITS: Final = 24
_HOUR_SECONDS: Final = 3600
_LAST_HOUR: Final = 253_402_300_799 // _HOUR_SECONDS  # of the year 9999, where calendars of four digits end
# Hours that a batch may be spread over: senders with wild clocks must not make an object of every row.
MOST_HOURS: Final = 48
_ENDS: Final = (
    ("flowEndSeconds", 1),
    ("flowEndMilliseconds", 10**3),
    ("flowEndMicroseconds", 10**6),
    ("flowEndNanoseconds", 10**9),
)


def antrea_key(prefix: str, batch_id: str, suffix: str) -> str:
    """``<prefix>/records-<12 letters or digits>.csv.gz``, Antrea's form."""
    return f"{_folder(prefix)}records-{_name(batch_id, _ANTREA_DIGITS)}{suffix}"


def partitioned_key(prefix: str, hour: int, batch_id: str, suffix: str) -> str:
    """``<prefix>/year=2026/month=11/day=30/hour=15/flows-<24 letters or digits>.csv.gz``."""
    moment = datetime.fromtimestamp(hour * _HOUR_SECONDS, UTC)
    folder = f"year={moment.year:04d}/month={moment.month:02d}/day={moment.day:02d}/hour={moment.hour:02d}"
    return f"{_folder(prefix)}{folder}/flows-{_name(batch_id, _PARTITIONED_DIGITS)}{suffix}"


class HourSplit:
    """Sorts rows by the hour in which their flow ended, piece by piece, so that no step of it is long."""

    def __init__(self) -> None:
        self._rows: dict[int, list[int]] = {}
        self._count = 0

    def add(self, part: FlowBatch) -> None:
        """Take the next rows of the batch."""
        name, ticks_per_second = next((each for each in _ENDS if each[0] in part.schema), _ENDS[0])
        ticks = _HOUR_SECONDS * ticks_per_second
        hours = part.map_distinct(name, lambda end: min(end // ticks, _LAST_HOUR)).tolist()
        for row, hour in enumerate(hours, self._count):
            self._rows.setdefault(hour, []).append(row)  # type: ignore[arg-type]  # the function gives int
        self._count += len(part)

    def hours(self) -> dict[int, Sequence[int]]:
        """Numbers of rows by hours since 1970, UTC: each row once, hours and rows in order.

        Beyond ``MOST_HOURS`` the rows of the rarest hours go with those of the most frequent one.
        """
        # ties: the earlier hour, so that the choice follows from the rows alone
        ranked = sorted(self._rows, key=lambda hour: (-len(self._rows[hour]), hour))
        kept = {hour: self._rows[hour] for hour in sorted(ranked[:MOST_HOURS])}
        if len(ranked) > MOST_HOURS:
            strays = (self._rows[hour] for hour in ranked[MOST_HOURS:])
            kept[ranked[0]] = sorted(itertools.chain(kept[ranked[0]], *strays))
        return dict(kept)


def _folder(prefix: str) -> str:
    return f"{prefix}/" if prefix else ""


def _name(batch_id: str, digits: int) -> str:
    number = int.from_bytes(hashlib.blake2b(batch_id.encode(), digest_size=32).digest(), "big")
    name = ""
    for _ in range(digits):
        number, digit = divmod(number, len(_DIGITS))
        name += _DIGITS[digit]
    return name
