"""The soak's books: what a lane's spool named, against what its destination has in the end; pure.

Every row carries a mark that no other row has, set before any lane sees it: the number of flowjoin's life, and its own
within that. So a row that is there twice is there once too often, whatever else it says; and a mark that is missing
among a life's is a row lost between the pipeline and the disk. What else a row says goes into its identity: a mark
under other values is a foreign row, and the one that it replaced is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Spooled", "Total", "compare", "first_mark", "identity", "mark_of", "unmarked"]

_LIFE_BITS: Final = 40  # rows of one life
_CONTENT_BITS: Final = 64


def first_mark(life: int) -> int:
    """Of a life of flowjoin; its rows have this one and those that follow."""
    return life << _LIFE_BITS


def identity(mark: int, values: Iterable[object]) -> int:
    """Of a row: its mark and what else it says; the same in one process only."""
    return mark << _CONTENT_BITS | hash(",".join(map(str, values))) & (1 << _CONTENT_BITS) - 1


def mark_of(row: int) -> int:
    """Of an identity."""
    return row >> _CONTENT_BITS


def unmarked(row: int) -> int:
    """Of an identity: what the row says, but for its mark."""
    return row & (1 << _CONTENT_BITS) - 1


@dataclass(slots=True)
class Spooled:
    """What all the indices of a lane ever named.

    Attributes:
        batched: rows of its batches, each as often as a batch has it.
        unclosed: rows of batches that were open when a process ended; the next one is to put them into a batch.
        dead: letters, which are rows of batches too.
    """

    batched: Counter[int] = field(default_factory=Counter)
    unclosed: set[int] = field(default_factory=set)
    dead: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What became of a lane's rows; each count is of rows.

    Attributes:
        promises_once: whether a row may be there only once.
        appended: that the spool named in a batch.
        repeated: of those, named once too often.
        skipped: handed to the lane and not in its spool, although a later one is.
        unbatched: that were in the spool and never became part of a batch.
        found: in the destination, each as often as it is there.
        dead: letters.
        lost: neither there nor dead.
        doubled: there once too often, or there and dead, where the promise holds.
        excused: there once too often in what the operator took away: see ``Destination.rows_taken_away``.
        foreign: there, and never in the spool.
        alike: appended rows that differ from an earlier one by their mark alone.
        kills: how often the destination was taken away.
    """

    name: str
    promises_once: bool
    appended: int
    repeated: int
    skipped: int
    unbatched: int
    found: int
    dead: int
    lost: int
    doubled: int
    excused: int
    foreign: int
    alike: int
    kills: int

    def problems(self, dropped: int = 0) -> list[str]:
        """What is not as it was promised, as sentences; ``dropped``: rows that flowjoin said it had no room for."""
        wrong = {
            "appended twice": self.repeated,
            "handed over and not appended": max(0, self.skipped - dropped),
            "in no batch": self.unbatched,
            "lost": self.lost,
            "doubled": self.doubled if self.promises_once else 0,
            "foreign": self.foreign,
        }
        return [f"{self.name}: {rows} rows {what}" for what, rows in wrong.items() if rows]


def compare(
    name: str,
    spooled: Spooled,
    found: Iterable[int],
    taken_away: Iterable[int] = (),
    *,
    last_mark: int | None = None,
    promises_once: bool = True,
    kills: int = 0,
) -> Total:
    """The lane's rows against those of its destination.

    Args:
        name: of the lane.
        spooled: what it was to deliver.
        found: what its destination has.
        taken_away: what it has besides, where a promise to be there once does not reach.
        last_mark: of the rows handed over; up to it none may be missing in the last life, which had an orderly end.
        promises_once: whether there is such a promise.
        kills: how often the destination was taken away.
    """
    here, away = Counter(found), Counter(taken_away)
    batched, dead = spooled.batched, spooled.dead
    excess = _sum_of_known(here + dead - batched, batched)
    return Total(
        name=name,
        promises_once=promises_once,
        appended=batched.total(),
        repeated=batched.total() - len(batched),
        skipped=_skipped(batched.keys() | spooled.unclosed, last_mark),
        unbatched=len(spooled.unclosed - batched.keys()),
        found=here.total() + away.total(),
        dead=dead.total(),
        lost=(batched - here - away - dead).total(),
        doubled=excess,
        excused=_sum_of_known(here + away + dead - batched, batched) - excess,
        foreign=sum(count for rows in (here, away) for row, count in rows.items() if row not in batched),
        alike=batched.total() - len(set(map(unmarked, batched))),
        kills=kills,
    )


def _sum_of_known(rows: Counter[int], known: Counter[int]) -> int:
    return sum(count for row, count in rows.items() if row in known)


def _skipped(rows: Iterable[int], last_mark: int | None) -> int:
    """Marks that are missing before the last one of their life."""
    marks = set(map(mark_of, rows))
    last = {mark >> _LIFE_BITS: mark for mark in sorted(marks if last_mark is None else marks | {last_mark})}
    return sum(mark - first_mark(life) + 1 for life, mark in last.items()) - len(marks)
