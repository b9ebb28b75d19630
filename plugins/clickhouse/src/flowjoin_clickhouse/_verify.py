"""Whether rows are in the table, asked by their content; pure.

A MergeTree table without replicas writes down that it has seen an insert before it stores the rows (in ClickHouse up
to 26.8 at least). A server that dies in between, or whose disk is full at that moment, knows the insert and has not
the rows: a repeated insert is taken for a double and dropped, and its answer is a success. So an insert that may be
a repeated one is believed only when its rows have been seen.

Strategy: a row's key is one number, made of its numbers and of the checksums of its addresses; the server makes the
same of what it holds. Only columns that hold what was sent are compared: one of another type may have changed it.

Invariant: rows that are alike in the key columns have the same key here and in the server.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from flowjoin.api import FlowBatch
from flowjoin_clickhouse._columns import ADDRESSES, ANTREA_TYPES
from flowjoin_clickhouse._schema import View, quoted

__all__ = [
    "Check",
    "KeyedRows",
    "add_groups",
    "check_of",
    "groups_without",
    "keyed_rows",
    "keys_present",
    "statements_running",
]

_TIME: Final = "flowEndSeconds"
_MUST_HAVE: Final = frozenset({_TIME, "octetTotalCount", "sourceTransportPort"})
# Odd, so that no number loses a bit.
_FACTORS: Final = {
    _TIME: 0x9E3779B97F4A7C15,
    "flowStartSeconds": 0xC2B2AE3D27D4EB4F,
    "sourceIP": 0x165667B19E3779F9,
    "destinationIP": 0xD6E8FEB86659FD93,
    "sourceTransportPort": 0xFF51AFD7ED558CCD,
    "destinationTransportPort": 0xC4CEB9FE1A85EC53,
    "protocolIdentifier": 0x94D049BB133111EB,
    "packetTotalCount": 0xBF58476D1CE4E5B9,
    "octetTotalCount": 0xD1B54A32D192ED03,
    "octetDeltaCount": 0xAEF17502108EF2D9,
    "reverseOctetTotalCount": 0x8CB92BA72F3D8DD7,
    # The two nodes of a flow report it for themselves. Where an export falls between, two rows differ by these alone.
    "flowEndSecondsFromSourceNode": 0xE7037ED1A0B428DB,
    "flowEndSecondsFromDestinationNode": 0xA0761D6478BD642F,
}
_MASK: Final = (1 << 64) - 1
_INSERTED: Final = "timeInserted"
_DAY: Final = 86400
_ROWS: Final = 50_000  # of one question: a megabyte of text
_SLICE: Final = 2000  # rows; a few milliseconds
_WRAPPER: Final = re.compile(r"LowCardinality\((.*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How a table is asked.

    Attributes:
        columns: what a row is known by.
        has_insertion_time: whether ``timeInserted``, by which Antrea's table is sorted, narrows the search.
    """

    columns: tuple[str, ...]
    has_insertion_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRows:
    """Rows of one question: those from ``first`` on, with the span of their ends."""

    first: int
    keys: tuple[int, ...]
    earliest: int
    latest: int


def check_of(types: Mapping[str, str]) -> Check | None:
    """How to ask a table with these columns; None if its columns do not say which row is which."""
    columns = tuple(name for name in _FACTORS if _holds(types.get(name, ""), ANTREA_TYPES[name]))
    if not _MUST_HAVE.issubset(columns):
        return None
    return Check(columns=columns, has_insertion_time=types.get(_INSERTED, "").startswith("DateTime"))


def keyed_rows(batch: FlowBatch, check: Check) -> Iterator[KeyedRows | None]:
    """The batch's rows as questions, with None after every few milliseconds' work in between."""
    for first in range(0, len(batch), _ROWS):
        keys: list[int] = []
        last = min(first + _ROWS, len(batch))
        for start in range(first, last, _SLICE):
            keys += _keys(batch.slice(start, min(start + _SLICE, last)), check)
            yield None
        ends = [int(cast("int", value)) for value in batch.slice(first, last).column(_TIME)]
        yield KeyedRows(first=first, keys=tuple(keys), earliest=min(ends), latest=max(ends))


def keys_present(database: str, table: str, check: Check, rows: KeyedRows, now: float) -> str:
    """The question which of the keys are there.

    Args:
        now: the wall clock's seconds; with it rows that came in long before are left out of the search.
    """
    conditions = [_ended(rows), *_inserted_lately(check, rows, now), f"key IN ({_listed(rows)})"]
    source = f"{quoted(database, table)} WHERE {' AND '.join(conditions)}"
    return f"SELECT {_key(check)} AS key FROM {source} GROUP BY key"  # noqa: S608 - numbers, and quoted names


def statements_running(mark: str) -> str:
    """The question how many statements with this identifier as their comment are under way."""
    return f"SELECT count() FROM system.processes WHERE Settings['log_comment'] = '{mark}'"  # noqa: S608 - a word


def groups_without(database: str, table: str, view: View, check: Check, rows: KeyedRows, now: float) -> str:
    """The rows that the view should have of these, and has not.

    A group of the view lacks them if the table's rows of that group add up to as much more than the view's.
    """
    source, target = quoted(database, table), quoted(database, f"{table}_{view.suffix}")
    keys = [key for key in view.keys if key != view.inserted]
    names = [key.rpartition(" AS ")[2] for key in keys]
    numbered = ", ".join(f"k{number}" for number in range(len(keys)))
    sums = [f"sum({name})" for name in view.sums] + ["count()"] * bool(view.count)
    view_sums = [f"sum({name})" for name in (*view.sums, *([view.count] if view.count else []))]
    minute = "minute" in names
    ended = _ended(rows, whole_minutes=minute)
    lately = _inserted_lately(check, rows, now)
    ended_in_view = ended.replace(_TIME, "minute") if minute else ended
    lately_in_view = [] if minute else lately

    def grouped(by: Sequence[str], values: Sequence[str], letter: str, source: str, conditions: Sequence[str]) -> str:
        selected = [f"{each.partition(' AS ')[0]} AS k{number}" for number, each in enumerate(by)]
        selected += [f"{each} AS {letter}{number}" for number, each in enumerate(values)]
        where = f"{source} WHERE {' AND '.join(conditions)}"
        return f"(SELECT {', '.join(selected)} FROM {where} GROUP BY {numbered})"  # noqa: S608 - as above

    own = [ended, *lately, f"{_key(check)} IN ({_listed(rows)})"]
    inserted = f"max({view.inserted.partition(' AS ')[0]})"
    of_rows = grouped(keys, [*sums, inserted], "b", source, own)
    of_table = grouped(keys, sums, "f", source, [ended, *lately])
    of_view = grouped(names, view_sums, "v", target, [ended_in_view, *lately_in_view])
    lacks = " AND ".join(f"f{number} >= v{number} + b{number}" for number in range(len(sums)))
    anything = " + ".join(f"b{number}" for number in range(len(sums)))
    chosen = ", ".join([numbered, f"b{len(sums)}", *(f"b{number}" for number in range(len(sums)))])
    joined = f"{of_rows} AS b INNER JOIN {of_table} AS f USING ({numbered}) LEFT JOIN {of_view} AS v USING ({numbered})"
    return f"SELECT {chosen} FROM {joined} WHERE {lacks} AND {anything} > 0"  # noqa: S608 - as above


def add_groups(database: str, table: str, view: View, groups: str) -> str:
    """The statement that adds what ``groups_without`` finds."""
    names = [key.rpartition(" AS ")[2] for key in view.keys if key != view.inserted]
    names += [view.inserted.rpartition(" AS ")[2], *view.sums, *([view.count] if view.count else [])]
    return f"INSERT INTO {quoted(database, f'{table}_{view.suffix}')} ({', '.join(names)}) {groups}"


def _key(check: Check) -> str:
    return " + ".join(f"{_FACTORS[name]} * {_number(name)}" for name in check.columns)


def _listed(rows: KeyedRows) -> str:
    return ",".join(map(str, sorted(set(rows.keys))))


def _ended(rows: KeyedRows, *, whole_minutes: bool = False) -> str:
    first, last = f"toDateTime({rows.earliest})", f"toDateTime({rows.latest})"
    if whole_minutes:
        first, last = f"toStartOfMinute({first})", f"toStartOfMinute({last}) + 59"
    return f"{_TIME} BETWEEN {first} AND {last}"


def _inserted_lately(check: Check, rows: KeyedRows, now: float) -> list[str]:
    # A day for clocks that are not set. What is sent now was not inserted long before it ended.
    earliest = max(0, min(rows.earliest, int(now)) - _DAY)
    return [f"{_INSERTED} >= toDateTime({earliest})"] if check.has_insertion_time else []


def _keys(batch: FlowBatch, check: Check) -> list[int]:
    keys = [0] * len(batch)
    for name in check.columns:
        factor = _FACTORS[name]
        keys = [key + factor * number for key, number in zip(keys, _numbers(batch, name), strict=True)]
    return [key & _MASK for key in keys]


def _numbers(batch: FlowBatch, name: str) -> Iterable[int]:
    if name not in ADDRESSES:
        return (int(cast("int", value)) for value in batch.column(name))
    role = cast("Literal['source', 'destination', 'destinationCluster']", ADDRESSES[name])
    return _checksums(batch.address_text(role))


def _checksums(texts: Sequence[str]) -> Iterable[int]:
    known = {text: zlib.crc32(text.encode()) for text in set(texts)}
    return map(known.__getitem__, texts)


def _number(name: str) -> str:
    if name in ADDRESSES:
        return f"toUInt64(CRC32({name}))"
    if ANTREA_TYPES[name] == "DateTime":
        return f"toUInt64(toUnixTimestamp({name}))"
    return f"toUInt64({name})"


def _holds(found: str, sent: str) -> bool:
    wrapped = _WRAPPER.fullmatch(found)
    found = wrapped[1] if wrapped else found
    return found == sent or (sent == "DateTime" and found.startswith("DateTime('"))
