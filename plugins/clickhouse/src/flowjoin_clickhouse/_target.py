"""The table that rows go to: looked at, and made or mended where that is allowed. Blocking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from flowjoin.api import ElementRegistry
from flowjoin_clickhouse._columns import insert_columns
from flowjoin_clickhouse._config import ClickHouseConfig
from flowjoin_clickhouse._errors import SchemaError
from flowjoin_clickhouse._schema import add_columns, create_database, create_table, create_views, quoted, set_window
from flowjoin_clickhouse._verify import Check, check_of
from flowjoin_clickhouse._windows import TABLES_QUERY, TableName, TableRow, Windows, is_merge_tree, windows_of

__all__ = ["Target", "prepare", "rows_of"]

_NO_DATABASE: Final = 81
_NO_TABLE: Final = 60
_PLAIN: Final = "MergeTree"  # its rows stay as they were inserted, and what it has seen is in no Keeper
_MUST_ALLOW_WRITE: Final = frozenset({"ALIAS", "MATERIALIZED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table as it was found.

    Attributes:
        columns: those that can be inserted.
        windows: whether a repeated insert is recognised.
        check: how to see that a repeated insert was not dropped although the first was lost; None where that cannot
            be, or cannot be seen.
        added_columns: made just now.
        version: the server's.
    """

    columns: frozenset[str]
    windows: Windows
    check: Check | None
    added_columns: tuple[str, ...]
    version: str


def prepare(client: Client, config: ClickHouseConfig, *, compatibility: str, registry: ElementRegistry) -> Target:
    """See to it that the table can take rows.

    Raises:
        SchemaError: it is not as it must be, and may not be changed.
        ClickHouseError, OSError: the server cannot be asked now.
    """
    table = (config.database, config.table)
    rows = _tables(client)
    if config.may_create and table not in rows:
        client.command(create_database(config.database), use_database=False)
        statement = create_table(
            *table, config.schema, compatibility=compatibility, elements=config.elements, registry=registry
        )
        client.command(statement, use_database=False)
        rows = _tables(client)
    described = _columns(client, table)
    columns = {name for name, (_, kind) in described.items() if kind not in _MUST_ALLOW_WRITE}
    wanted = (*insert_columns(compatibility), *config.elements)
    missing = tuple(name for name in dict.fromkeys(wanted) if name not in columns)
    engine = rows[table].engine if table in rows else ""
    may_alter = config.may_create and is_merge_tree(engine)
    if missing and not may_alter:
        raise SchemaError(_what_is_missing(config, missing, engine), missing=missing)
    if missing:
        client.command(add_columns(*table, missing, registry), use_database=False)
    if may_alter and config.schema.views:
        absent = {name: each for name, each in create_views(*table, config.schema) if (table[0], name) not in rows}
        for statement in absent.values():
            client.command(statement, use_database=False)
        rows = _tables(client) if absent else rows
    defaults = _window_defaults(client)
    windows = windows_of(table, rows.values(), defaults)
    if config.may_create and config.schema.deduplication_window and windows.can_be_set:
        for each in windows.can_be_set:
            client.command(set_window(*each, config.schema.deduplication_window), use_database=False)
        windows = windows_of(table, _tables(client).values(), defaults)
    types = {name: type_ for name, (type_, _) in described.items()}
    return Target(
        columns=frozenset(columns.union(missing)),
        windows=windows,
        check=check_of(types) if engine == _PLAIN and windows.window else None,
        added_columns=missing,
        version=str(client.server_version),
    )


def rows_of(client: Client, query: str, settings: dict[str, Any] | None = None) -> Sequence[Sequence[Any]]:
    """What the query gives.

    Raises:
        ClickHouseError, OSError: the server cannot be asked now.
    """
    return client.query(query, settings=settings, use_none=False).result_rows


def _what_is_missing(config: ClickHouseConfig, missing: Sequence[str], engine: str) -> str:
    if config.may_create:
        help_ = f"a {engine} table is not changed by createSchema; add them there and in the tables behind it"
    else:
        help_ = "add them with ALTER TABLE, or write createSchema: true"
    return f"the table {config.database}.{config.table} has no columns {', '.join(missing)}; {help_}"


def _columns(client: Client, table: TableName) -> dict[str, tuple[str, str]]:
    """Type and kind of default of each."""
    try:
        result = rows_of(client, f"DESCRIBE TABLE {quoted(*table)}")
    except ClickHouseError as exc:
        if getattr(exc, "code", None) not in (_NO_DATABASE, _NO_TABLE):
            raise
        raise SchemaError(f"there is no table {'.'.join(table)}; create it, or write createSchema: true") from exc
    return {str(row[0]): (str(row[1]), str(row[2])) for row in result}


def _tables(client: Client) -> dict[TableName, TableRow]:
    return {
        (database, name): TableRow(database, name, uuid, engine, full, create, tuple(map(tuple, dependents)))
        for database, name, uuid, engine, full, create, dependents in rows_of(client, TABLES_QUERY)
    }


def _window_defaults(client: Client) -> dict[str, int]:
    query = "SELECT name, value FROM system.merge_tree_settings WHERE name LIKE '%replicated_deduplication_window'"
    return {str(name): int(value) for name, value in rows_of(client, query)}
