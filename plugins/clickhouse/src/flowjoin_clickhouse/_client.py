"""A connection to the table: blocking, called from one worker thread at a time.

clickhouse-connect speaks to the server. It repeats an INSERT by itself when a connection ends early, unless the body
can be sent only once: ours always is such a body, so that whether to repeat is the lane's business alone.
"""

from __future__ import annotations

import base64
import logging
import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import clickhouse_connect
import lz4.frame  # type: ignore[import-untyped]  # it has no stubs
from clickhouse_connect.driver import httputil
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from flowjoin.api import ConfigError, ElementRegistry, RetryableExportError
from flowjoin_clickhouse._check import refuse_bad_files
from flowjoin_clickhouse._config import ClickHouseConfig
from flowjoin_clickhouse._encode import Buffer
from flowjoin_clickhouse._engine import load_engine, make_directory
from flowjoin_clickhouse._errors import (
    NotAllowedError,
    RefusedError,
    StillRunningError,
    cause_of,
    is_about_rights,
    is_about_rows,
    one_line,
    without_secrets,
)
from flowjoin_clickhouse._schema import (
    View,
    attach_partition,
    create_table_like,
    drop_table,
    partitions_of,
    quoted,
    tables_named,
)
from flowjoin_clickhouse._sockets import InterruptiblePool
from flowjoin_clickhouse._target import Target, prepare, rows_of
from flowjoin_clickhouse._url import EmbeddedDestination, HttpDestination
from flowjoin_clickhouse._verify import Check, KeyedRows, add_groups, groups_without, keys_present, statements_running

__all__ = ["Connection"]

_MISSING_CREDENTIALS: Final = "DatabaseURL, Username or Password missing in ClickHouse config"
_QUESTION: Final[dict[str, Any]] = {"max_query_size": 16 * 1024 * 1024, "join_use_nulls": 0}


class Connection:
    """One client, opened anew after each failure."""

    def __init__(
        self,
        config: ClickHouseConfig,
        *,
        compatibility: str,
        registry: ElementRegistry,
        mark: str,
        answered: Callable[[], object],
    ) -> None:
        """Remember the settings.

        Args:
            mark: an identifier that is this exporter's alone; what it asks the server to change bears it.
            answered: is told of each answer, in the thread of the call.
        """
        self._config = config
        self._mark = mark
        self._answered = answered
        self._compatibility = compatibility
        self._registry = registry
        self._client: Client | None = None
        self._pool: InterruptiblePool | None = None
        self._secrets: tuple[str, ...] = ()  # as they are sent
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
            return prepare(self._client, self._config, compatibility=self._compatibility, registry=self._registry)
        except (ClickHouseError, OSError) as exc:
            raise self._not_now(exc) from exc

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

    def settle(self) -> None:
        """See to it that nothing which this exporter asked for before can still change the table.

        A connection that ended, by cancellation or a time-out, does not end what the server does: an ``ATTACH`` that
        is under way would come on top of another one. What has not begun finds its table gone.

        Raises:
            StillRunningError: something is still under way.
            RetryableExportError: the server does not answer now.
        """
        client, database = self._opened, self._config.database
        with suppress(NotAllowedError), self._translated():  # who may not drop them asks what is under way all the same
            for (left,) in rows_of(client, tables_named(database, self._by_way_of)):
                client.command(drop_table(database, str(left)), use_database=False)
        try:
            ((running,),) = self._answer(statements_running(self._mark))
        except NotAllowedError:
            return  # who may not see it goes on: a lost row is worse than one that is there twice
        if running:
            raise StillRunningError(f"{self._config.destination}: an earlier statement is still under way there")

    def add(self, block: Sequence[Buffer], columns: Sequence[str]) -> int:
        """Put a block into the table and not into what views make of it; gives the octets that were sent.

        Raises:
            NotAllowedError: this user may not make the table by way of which it goes.
            RetryableExportError: as ``insert``; some of the rows may be in the table.
        """
        client, database = self._opened, self._config.database
        by_way_of = f"{self._by_way_of}{secrets.token_hex(4)}"  # a name that no statement of an earlier attempt knows
        settings = self._marked(client)
        with self._translated():
            client.command(drop_table(database, by_way_of), use_database=False)  # who may not drop must not begin
            client.command(create_table_like(database, by_way_of, self._config.table), use_database=False)
            octets = self._insert_into(by_way_of, block, columns, "")
            for (partition,) in rows_of(client, partitions_of(database, by_way_of)):
                attach = attach_partition(database, self._config.table, str(partition), by_way_of)
                client.command(attach, settings=settings, use_database=False)
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
    def _by_way_of(self) -> str:
        """How the names of tables begin that exist while lost rows are put back."""
        return f"{self._config.table}_again_{self._mark}_"

    @property
    def _opened(self) -> Client:
        assert self._client is not None, "it was opened"
        return self._client

    def _not_now(self, exc: Exception) -> RetryableExportError:
        return RetryableExportError(f"{self._config.destination}: {self._said(cause_of(exc))}")

    def _said(self, words: str) -> str:
        """For a log line; a proxy's page may repeat the request, with the password in it."""
        return one_line(without_secrets(words, self._secrets))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Around what is asked beside inserts."""
        try:
            yield
        except (ClickHouseError, OSError) as exc:
            if is_about_rights(getattr(exc, "code", None)):
                raise NotAllowedError(self._said(str(exc))) from exc
            raise self._not_now(exc) from exc

    def _answer(self, question: str) -> Sequence[Sequence[Any]]:
        with self._translated():
            return rows_of(self._opened, question, _QUESTION)

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
                raise RefusedError(self._said(str(exc))) from exc
            raise self._not_now(exc) from exc
        if self._pool is not None and self._pool.words:  # what is stored is answered with no word
            words = self._said(self._pool.words.decode(errors="replace"))
            raise RetryableExportError(f"{self._config.destination}: an insert was answered with {words!r}")
        return len(data)

    def _connect(self) -> Client:
        config, destination = self._config, self._config.destination
        if isinstance(destination, EmbeddedDestination):
            load_engine()
            make_directory(destination)
            try:
                return clickhouse_connect.get_client(interface="chdb", path=destination.path or ":memory:")
            except ClickHouseError as exc:
                hint = "one process at a time can have a directory open, and one directory a process"
                raise RetryableExportError(f"{destination}: {one_line(str(exc))}; {hint}") from exc
        username, password = self._credentials()
        self._secrets = (password, base64.b64encode(f"{username}:{password}".encode()).decode())
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

    def _insert_settings(self, client: Client, token: str) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "async_insert": 0,  # an acknowledgement means that the rows are in the table
            # Rows without a name are not compared: two flows may be alike in every column.
            "insert_deduplicate": int(bool(token)),
            "deduplicate_insert": "enable" if token else "disable",  # which newer servers ask instead
            "deduplicate_blocks_in_dependent_materialized_views": 1,  # so that a view missed by a crash gets its rows
        }
        settings = {name: value for name, value in wanted.items() if name in client.server_settings}
        return settings | self._marked(client) | ({"insert_deduplication_token": token} if token else {})

    def _marked(self, client: Client) -> dict[str, Any]:
        """For what changes something: by it ``settle`` sees whether it is under way."""
        return {"log_comment": self._mark} if "log_comment" in client.server_settings else {}


def _quieten_library() -> None:
    """What it logs at each lost connection is in the errors that it raises, which the lane says once."""
    library = logging.getLogger("clickhouse_connect")
    if library.level == logging.NOTSET:  # whoever looks for a fault in it may have set one
        library.setLevel(logging.CRITICAL)


def _once(data: bytes) -> Generator[bytes, None, None]:
    yield data
