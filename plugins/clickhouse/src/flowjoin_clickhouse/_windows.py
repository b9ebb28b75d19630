"""Whether a repeated insert is recognised, and by which tables it would not be; pure.

A table recognises it if it has a deduplication window. A materialised view writes to a table of its own, which needs
a window too, and so on down: one without is doubled although the table above is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["TABLES_QUERY", "TableName", "TableRow", "Windows", "is_merge_tree", "windows_of"]

TABLES_QUERY: Final = (
    "SELECT database, name, toString(uuid), engine, engine_full, create_table_query,"
    " arrayZip(dependencies_database, dependencies_table) FROM system.tables"
    " WHERE database NOT IN ('system', 'INFORMATION_SCHEMA', 'information_schema')"
)
_REPLICATED: Final = re.compile(r"(Replicated|Shared)\w*MergeTree")
_PLAIN: Final = re.compile(r"\w*MergeTree")
_INNER_ENGINE: Final = re.compile(r" ENGINE = (\w+).*? AS SELECT ", re.DOTALL)
_IDENTIFIER: Final = r"(`(?:[^`\\]|\\.)+`|\w+)"
_TARGET: Final = re.compile(
    rf"^CREATE MATERIALIZED VIEW {_IDENTIFIER}\.{_IDENTIFIER}.*? TO {_IDENTIFIER}\.{_IDENTIFIER}"
)

TableName: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of ``TABLES_QUERY``."""

    database: str
    name: str
    uuid: str
    engine: str
    engine_full: str
    create_table_query: str
    dependents: tuple[TableName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """What the table and the tables below it remember.

    Attributes:
        window: inserts that the table itself remembers; 0 is none.
        without: those that remember nothing.
        can_be_set: those of them whose window is a setting of theirs.
    """

    window: int
    without: tuple[TableName, ...]
    can_be_set: tuple[TableName, ...]

    @property
    def is_exactly_once(self) -> bool:
        """Whether a repeated insert leaves every table as it is."""
        return not self.without


def is_merge_tree(engine: str) -> bool:
    """Whether the table holds its rows itself."""
    return _PLAIN.fullmatch(engine) is not None


def windows_of(table: TableName, rows: Iterable[TableRow], defaults: Mapping[str, int]) -> Windows:
    """Look at the table and at every table that its rows go on to.

    Args:
        rows: what the server has.
        defaults: the server's own values of the two settings.
    """
    by_name = {(row.database, row.name): row for row in rows}
    windows = {each: _window(by_name.get(each), defaults) for each in _reached(table, by_name)}
    without = tuple(each for each, window in windows.items() if window == 0)
    can_be_set = tuple(each for each in without if _is_plain(by_name.get(each)))
    return Windows(window=windows[table], without=without, can_be_set=can_be_set)


def _reached(table: TableName, by_name: Mapping[TableName, TableRow]) -> Iterator[TableName]:
    waiting, seen = [table], set()
    while waiting:
        each = waiting.pop(0)
        if each in seen:
            continue
        seen.add(each)
        yield each
        for dependent in by_name[each].dependents if each in by_name else ():
            view = by_name.get(dependent)
            if view is not None and view.engine == "MaterializedView":
                waiting.append(_target(view, by_name))


def _target(view: TableRow, by_name: Mapping[TableName, TableRow]) -> TableName:
    for inner in (f".inner_id.{view.uuid}", f".inner.{view.name}"):
        if (view.database, inner) in by_name:
            return view.database, inner
    named = _TARGET.match(view.create_table_query)
    # A target that cannot be seen (no right to) counts as one without a window. A view whose inner table has a name
    # that is not told (chdb's database "default" hides UUIDs) stands for it: its definition is the inner table's too.
    return (_bare(named[3]), _bare(named[4])) if named else (view.database, view.name)


def _bare(identifier: str) -> str:
    return re.sub(r"\\(.)", r"\1", identifier[1:-1]) if identifier.startswith("`") else identifier


def _is_plain(row: TableRow | None) -> bool:
    return row is not None and is_merge_tree(row.engine) and not _REPLICATED.fullmatch(row.engine)


def _window(row: TableRow | None, defaults: Mapping[str, int]) -> int:
    if row is None:
        return 0
    engine, definition = row.engine, row.engine_full
    if engine == "MaterializedView":
        inner = _INNER_ENGINE.search(row.create_table_query)
        engine, definition = (inner[1], inner[0]) if inner else ("", "")
    if not is_merge_tree(engine):
        return 0  # Distributed picks another shard for a repeated insert; Buffer and others remember nothing
    is_replicated = _REPLICATED.fullmatch(engine)
    setting = "replicated_deduplication_window" if is_replicated else "non_replicated_deduplication_window"
    given = re.search(rf"\b{setting} = (\d+)", definition)
    return int(given[1]) if given else defaults.get(setting, 0)
