"""A connection to the table: blocking, called from one worker thread at a time.

clickhouse-connect speaks to the server. It repeats an INSERT by itself when a connection ends early, unless the body
can be sent only once: ours always is such a body, so that whether to repeat is the lane's business alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import clickhouse_connect
import lz4.frame  # type: ignore[import-untyped]  # it has no stubs
from clickhouse_connect.driver import httputil
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from flowjoin.api import ConfigError, ElementRegistry, RetryableExportError
from flowjoin_clickhouse._check import refuse_bad_files
from flowjoin_clickhouse._columns import insert_columns
from flowjoin_clickhouse._config import ClickHouseConfig
from flowjoin_clickhouse._encode import Buffer
from flowjoin_clickhouse._engine import load_engine
from flowjoin_clickhouse._errors import (
    NotAllowedError,
    RefusedError,
    SchemaError,
    is_about_rights,
    is_about_rows,
    one_line,
)
from flowjoin_clickhouse._schema import (
    View,
    add_columns,
    attach_partition,
    create_database,
    create_table,
    create_table_like,
    create_views,
    drop_table,
    partitions_of,
    quoted,
    set_window,
)
from flowjoin_clickhouse._sockets import InterruptiblePool
from flowjoin_clickhouse._url import EmbeddedDestination, HttpDestination
from flowjoin_clickhouse._verify import Check, KeyedRows, add_groups, check_of, groups_without, keys_present
from flowjoin_clickhouse._windows import TABLES_QUERY, TableName, TableRow, Windows, is_merge_tree, windows_of

__all__ = ["Connection", "Target"]

_MISSING_CREDENTIALS: Final = "DatabaseURL, Username or Password missing in ClickHouse config"
_NO_DATABASE: Final = 81
_NO_TABLE: Final = 60
_QUESTION: Final[dict[str, Any]] = {"max_query_size": 16 * 1024 * 1024, "join_use_nulls": 0}
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


class Connection:
    """One client, opened anew after each failure."""

    def __init__(
        self,
        config: ClickHouseConfig,
        *,
        compatibility: str,
        registry: ElementRegistry,
        answered: Callable[[], object],
    ) -> None:
        """Remember the settings, and who is told of each answer, in the thread of the call."""
        self._config = config
        self._answered = answered
        self._compatibility = compatibility
        self._registry = registry
        self._client: Client | None = None
        self._pool: InterruptiblePool | None = None
        self._is_http = isinstance(config.destination, HttpDestination)

    @property
    def may_stall(self) -> bool:
        """Whether a call waits for somebody else, so that whoever waits for it may leave."""
        return self._is_http

    def open(self) -> Target:
        """Connect, and see to it that the table can take rows.

        Raises:
            RetryableExportError: it cannot now; SchemaError where the table is at fault.
        """
        _quieten_library()
        try:
            self._client = self._connect()
            return self._prepared(self._client)
        except (ClickHouseError, OSError) as exc:
            raise _not_now(exc, str(self._config.destination)) from exc

    def insert(self, block: Sequence[Buffer], columns: Sequence[str], token: str) -> int:
        """Insert one block; gives the octets that were sent.

        Args:
            token: names the rows, for ever; empty means that they have no name and must not be compared.

        Raises:
            RefusedError: the server will not take these rows together.
            RetryableExportError: the server cannot take them now, or nobody knows whether it did.
        """
        return self._insert_into(self._config.table, block, columns, token)

    def present(self, check: Check, rows: KeyedRows, now: float) -> frozenset[int]:
        """Which of the keys are in the table.

        Raises:
            NotAllowedError: this user may not ask.
            RetryableExportError: the server does not answer now.
        """
        question = keys_present(self._config.database, self._config.table, check, rows, now)
        return frozenset(int(row[0]) for row in self._answer(question))

    def mend_view(self, view: View, check: Check, rows: KeyedRows, now: float) -> int:
        """Add to the view what it has not of these rows, which are in the table; gives the view's rows.

        Raises:
            NotAllowedError: this user may not ask, or may not insert into the view.
            RetryableExportError: the server cannot do it now.
        """
        groups = groups_without(self._config.database, self._config.table, view, check, rows, now)
        (count,) = self._answer(f"SELECT count() FROM ({groups})")  # noqa: S608 - numbers, and quoted names
        if count[0]:
            add = add_groups(self._config.database, self._config.table, view, groups)
            settings = {**self._insert_settings(self._opened, ""), **_QUESTION}
            with self._translated():
                self._opened.command(add, settings=settings, use_database=False)
        return int(count[0])

    def add(self, block: Sequence[Buffer], columns: Sequence[str], by_way_of: str) -> int:
        """Put a block into the table and not into what views make of it; gives the octets that were sent.

        Args:
            by_way_of: a table of this name is made and dropped again.

        Raises:
            NotAllowedError: this user may not make a table.
            RetryableExportError: as ``insert``; some of the rows may be in the table.
        """
        client, database = self._opened, self._config.database
        with self._translated():
            client.command(drop_table(database, by_way_of), use_database=False)
            client.command(create_table_like(database, by_way_of, self._config.table), use_database=False)
            octets = self._insert_into(by_way_of, block, columns, "")
            for (partition,) in _rows(client, partitions_of(database, by_way_of)):
                attach = attach_partition(database, self._config.table, str(partition), by_way_of)
                client.command(attach, use_database=False)
            client.command(drop_table(database, by_way_of), use_database=False)
        return octets

    def interrupt(self) -> None:
        """End a call that is under way, from another thread."""
        if self._pool is not None:
            self._pool.interrupt()

    def close(self) -> None:
        """Close what is open."""
        client, self._client = self._client, None
        pool, self._pool = self._pool, None
        if client is not None:
            with suppress(ClickHouseError, OSError):  # nothing is lost with a connection that is given up
                client.close()
        if pool is not None:
            pool.close()

    @property
    def _opened(self) -> Client:
        assert self._client is not None, "it was opened"
        return self._client

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Around what is asked beside inserts."""
        try:
            yield
        except (ClickHouseError, OSError) as exc:
            if is_about_rights(getattr(exc, "code", None)):
                raise NotAllowedError(one_line(str(exc))) from exc
            raise _not_now(exc, str(self._config.destination)) from exc

    def _answer(self, question: str) -> Sequence[Sequence[Any]]:
        with self._translated():
            return _rows(self._opened, question, _QUESTION)

    def _insert_into(self, table: str, block: Sequence[Buffer], columns: Sequence[str], token: str) -> int:
        client = self._opened
        data = b"".join(block)
        compression = None
        if self._is_http and self._config.compress:
            data, compression = lz4.frame.compress(data), "lz4"
        try:
            client.raw_insert(
                quoted(self._config.database, table),
                column_names=columns,
                insert_block=_once(data),
                settings=self._insert_settings(client, token),
                fmt="Native",
                compression=compression,
            )
        except (ClickHouseError, OSError) as exc:
            if is_about_rows(getattr(exc, "code", None), str(exc)):
                raise RefusedError(one_line(str(exc))) from exc
            raise _not_now(exc, str(self._config.destination)) from exc
        return len(data)

    def _connect(self) -> Client:
        config, destination = self._config, self._config.destination
        if isinstance(destination, EmbeddedDestination):
            load_engine()
            try:
                return clickhouse_connect.get_client(interface="chdb", path=destination.path or ":memory:")
            except ClickHouseError as exc:
                hint = "one process at a time can have a directory open, and one directory a process"
                raise RetryableExportError(f"{destination}: {one_line(str(exc))}; {hint}") from exc
        username, password = self._credentials()
        certificate = config.tls.certificate
        self._pool = InterruptiblePool(self._manager(destination), self._answered)
        client = clickhouse_connect.get_client(
            interface="https" if destination.is_tls else "http",
            host=destination.host,
            port=destination.port,
            username=username,
            password=password,
            client_cert=None if certificate is None else str(certificate),
            tls_mode=("mutual" if config.password is None else "strict") if certificate else None,
            compress=False,  # for answers, which are small; what we insert we compress ourselves
            connect_timeout=int(config.connect_timeout),
            send_receive_timeout=int(config.timeout),
            query_retries=0,
            autogenerate_session_id=False,
            pool_mgr=self._pool.manager,
            client_name="flowjoin",
        )
        client.http_retries = 0  # type: ignore[attr-defined]  # of the HTTP client that get_client gave
        return client

    def _credentials(self) -> tuple[str, str]:
        config = self._config
        try:
            username = "default" if config.username is None else config.username.reveal()
            password = "" if config.password is None else config.password.reveal()
        except ConfigError as exc:
            raise RetryableExportError(f"{_MISSING_CREDENTIALS}: {exc.problem}") from None
        if not username or (config.password is not None and not password):
            raise RetryableExportError(f"{_MISSING_CREDENTIALS}: one of them is empty")
        return username, password

    def _manager(self, destination: HttpDestination) -> Any:  # urllib3's, whose options are not typed
        tls, scheme = self._config.tls, "https" if destination.is_tls else "http"
        proxy = httputil.check_env_proxy(scheme, destination.host, destination.port)
        options: dict[str, Any] = {"https_proxy" if destination.is_tls else "http_proxy": proxy} if proxy else {}
        if destination.is_tls:
            options["verify"] = not tls.insecure_skip_verify
            if tls.server_name:
                options["server_hostname"] = tls.server_name
                if not tls.insecure_skip_verify:
                    options["assert_hostname"] = tls.server_name
            try:
                refuse_bad_files(tls)
            except ConfigError as exc:
                raise RetryableExportError(exc.problem) from exc
            files = {"ca_cert": tls.ca, "client_cert": tls.certificate, "client_cert_key": tls.key}
            options |= {name: str(file) for name, file in files.items() if file is not None}
        return httputil.get_pool_manager(**options)

    def _prepared(self, client: Client) -> Target:
        config, table = self._config, (self._config.database, self._config.table)
        rows = self._tables(client)
        if config.may_create and table not in rows:
            self._create_table(client)
            rows = self._tables(client)
        described = self._columns(client)
        columns = {name for name, (_, kind) in described.items() if kind not in _MUST_ALLOW_WRITE}
        wanted = (*insert_columns(self._compatibility), *config.elements)
        missing = tuple(name for name in dict.fromkeys(wanted) if name not in columns)
        engine = rows[table].engine if table in rows else ""
        may_alter = config.may_create and is_merge_tree(engine)
        if missing and not may_alter:
            raise SchemaError(self._what_is_missing(missing, engine), missing=missing)
        if missing:
            client.command(add_columns(*table, missing, self._registry), use_database=False)
        if may_alter and config.schema.views:
            absent = {name: each for name, each in create_views(*table, config.schema) if (table[0], name) not in rows}
            for statement in absent.values():
                client.command(statement, use_database=False)
            rows = self._tables(client) if absent else rows
        defaults = self._window_defaults(client)
        windows = windows_of(table, rows.values(), defaults)
        if config.may_create and config.schema.deduplication_window and windows.can_be_set:
            for each in windows.can_be_set:
                client.command(set_window(*each, config.schema.deduplication_window), use_database=False)
            windows = windows_of(table, self._tables(client).values(), defaults)
        types = {name: type_ for name, (type_, _) in described.items()}
        return Target(
            columns=frozenset(columns.union(missing)),
            windows=windows,
            check=check_of(types) if engine == _PLAIN and windows.window else None,
            added_columns=missing,
            version=str(client.server_version),
        )

    def _create_table(self, client: Client) -> None:
        config = self._config
        client.command(create_database(config.database), use_database=False)
        statement = create_table(
            config.database,
            config.table,
            config.schema,
            compatibility=self._compatibility,
            elements=config.elements,
            registry=self._registry,
        )
        client.command(statement, use_database=False)

    def _what_is_missing(self, missing: Sequence[str], engine: str) -> str:
        table = f"{self._config.database}.{self._config.table}"
        if self._config.may_create:
            help_ = f"a {engine} table is not changed by createSchema; add them there and in the tables behind it"
        else:
            help_ = "add them with ALTER TABLE, or write createSchema: true"
        return f"the table {table} has no columns {', '.join(missing)}; {help_}"

    def _columns(self, client: Client) -> dict[str, tuple[str, str]]:
        """Type and kind of default of each."""
        config = self._config
        table = quoted(config.database, config.table)
        try:
            result = _rows(client, f"DESCRIBE TABLE {table}")
        except ClickHouseError as exc:
            if getattr(exc, "code", None) not in (_NO_DATABASE, _NO_TABLE):
                raise
            help_ = "create it, or write createSchema: true"
            raise SchemaError(f"there is no table {config.database}.{config.table}; {help_}") from exc
        return {str(row[0]): (str(row[1]), str(row[2])) for row in result}

    @staticmethod
    def _tables(client: Client) -> dict[TableName, TableRow]:
        return {
            (database, name): TableRow(database, name, uuid, engine, full, create, tuple(map(tuple, dependents)))
            for database, name, uuid, engine, full, create, dependents in _rows(client, TABLES_QUERY)
        }

    @staticmethod
    def _window_defaults(client: Client) -> dict[str, int]:
        query = "SELECT name, value FROM system.merge_tree_settings WHERE name LIKE '%replicated_deduplication_window'"
        return {str(name): int(value) for name, value in _rows(client, query)}

    def _insert_settings(self, client: Client, token: str) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "async_insert": 0,  # an acknowledgement means that the rows are in the table
            # Rows without a name are not compared: two flows may be alike in every column.
            "insert_deduplicate": int(bool(token)),
            "deduplicate_insert": "enable" if token else "disable",  # which newer servers ask instead
            "deduplicate_blocks_in_dependent_materialized_views": 1,  # so that a view missed by a crash gets its rows
        }
        settings = {name: value for name, value in wanted.items() if name in client.server_settings}
        return settings | ({"insert_deduplication_token": token} if token else {})


def _quieten_library() -> None:
    """What it logs at each lost connection is in the errors that it raises, which the lane says once."""
    library = logging.getLogger("clickhouse_connect")
    if library.level == logging.NOTSET:  # whoever looks for a fault in it may have set one
        library.setLevel(logging.CRITICAL)


def _once(data: bytes) -> Generator[bytes, None, None]:
    yield data


def _rows(client: Client, query: str, settings: dict[str, Any] | None = None) -> Sequence[Sequence[Any]]:
    return client.query(query, settings=settings, use_none=False).result_rows


def _not_now(exc: Exception, place: str) -> RetryableExportError:
    return RetryableExportError(f"{place}: {one_line(str(exc))}")
