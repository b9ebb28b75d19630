"""The exporter's life: encodes on trio's thread a column at a time, talks to the server in a worker thread.

Encoding stays on trio's thread, with a checkpoint after each megabyte: a worker thread that computes would hold the
interpreter's lock for whole switch intervals, and every system call of the collectors would wait for it.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import trio

from flowjoin.api import (
    Batching,
    Exporter,
    FlowBatch,
    Octets,
    PermanentExportError,
    PluginContext,
    RetryableExportError,
)
from flowjoin.api.lines import refuse_unknown_elements
from flowjoin_clickhouse._check import refuse_missing_engine
from flowjoin_clickhouse._client import Connection
from flowjoin_clickhouse._columns import insert_columns
from flowjoin_clickhouse._config import ClickHouseConfig
from flowjoin_clickhouse._encode import Buffer, encode
from flowjoin_clickhouse._errors import NotAllowedError, RefusedError, SchemaError, StillRunningError
from flowjoin_clickhouse._schema import VIEWS
from flowjoin_clickhouse._target import Target
from flowjoin_clickhouse._url import HttpDestination
from flowjoin_clickhouse._verify import Check, KeyedRows, keyed_rows

__all__ = ["batching", "open_clickhouse"]

T = TypeVar("T")

_BATCH_OCTETS: Final = Octets(16 * 1024 * 1024)
_INTERRUPT_SECONDS: Final = 5.0  # a host name that is being looked up cannot be interrupted
_CLOSE_SECONDS: Final = 5.0
_STEP_OCTETS: Final = 1024 * 1024  # of encoding between checkpoints, a millisecond or two
_CAUSE: Final = "the server had noted the insert as done and had not stored it"
_MOST_CHECKS: Final = 3  # of one insert that fail; a table that cannot be asked must not stop the flows
_MOST_NAMES: Final = 3  # under which lost rows are inserted; what is not seen then is not kept by the table
_MOST_CUTS: Final = 200  # inserts that look for the rows at fault; what is left then is refused together


def batching(config: ClickHouseConfig) -> Batching:
    """A batch is one insert."""
    return Batching(records=config.max_rows, octets=_BATCH_OCTETS, interval=config.commit_interval)


@dataclass(frozen=True, slots=True)
class _Insert:
    """How a batch is inserted; with a check, it may have been before."""

    connection: Connection
    columns: tuple[str, ...]
    check: Check | None


class _ClickHouseExporter:
    def __init__(self, config: ClickHouseConfig, context: PluginContext) -> None:
        self._config = config
        self._context = context
        self._log = context.log
        self._columns = insert_columns(context.compatibility)
        self._rows = context.counter("rows_delivered", "Rows that ClickHouse accepted")
        self._refused = context.counter("rows_refused", "Rows that ClickHouse will never accept")
        self._inserts = context.counter("inserts", "Inserts that ClickHouse accepted")
        self._octets = context.counter("octets", "Octets sent in them, compressed")
        self._connections = context.counter("connections", "Times the table was opened")
        self._again = context.counter("rows_inserted_again", "Rows of an insert that ClickHouse had noted and lost")
        self._view_rows = context.counter(
            "view_rows_inserted_again", "Rows of views that ClickHouse had noted and lost"
        )
        self._unverified = context.counter("inserts_unverified", "Repeated inserts whose rows could not be looked for")
        self._limiter = trio.CapacityLimiter(1)
        self._connection: Connection | None = None
        self._target: Target | None = None
        self._promise = ""  # the last one that was logged
        self._complaint = ""  # about the table, as it was logged
        self._ignored: set[str] = set()
        # Nobody knows what became of the last insert of a process that was killed, nor of one that failed.
        self._may_be_repeated = True
        self._failed_checks = 0
        own = f"{context.instance_id}/{context.name}".encode()
        self._mark = f"flowjoin_{zlib.crc32(own):08x}"

    async def export(self, batch: FlowBatch) -> None:
        await trio.lowlevel.checkpoint()
        if not len(batch):
            return
        try:
            connection, target = await self._opened()
            insert = _Insert(
                connection,
                self._columns_for(batch, target),
                check=target.check if self._may_be_repeated else None,
            )
            self._may_be_repeated = True
            try:
                await self._insert(insert, batch)
            except RefusedError as exc:
                refused = await self._find_refused(insert, batch)
                self._may_be_repeated = False
                self._rows.inc(len(batch) - len(refused))
                self._refused.inc(len(refused))
                if refused:
                    raise PermanentExportError(str(exc), rows=refused) from exc
                return
        except RetryableExportError:
            # The next attempt looks at everything anew: address, credentials, authorities, table.
            await self.close()
            raise
        self._may_be_repeated = False
        self._rows.inc(len(batch))

    async def connect(self) -> None:
        """Try to open the table, so that at start and not at the first flow it is said what is wrong or promised."""
        try:
            await self._opened()
        except RetryableExportError as exc:
            await self.close()
            if not isinstance(exc, SchemaError):
                self._log.warning("server_not_reached", problem=str(exc))

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection, self._target = self._connection, None, None
        if connection is not None:
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await trio.to_thread.run_sync(connection.close, abandon_on_cancel=True)

    async def _opened(self) -> tuple[Connection, Target]:
        if self._connection is not None and self._target is not None:
            return self._connection, self._target
        await self.close()  # one whose opening was cancelled
        self._connection = Connection(
            self._config,
            compatibility=self._context.compatibility,
            registry=self._context.registry,
            mark=self._mark,
            answered=self._context.progressed,
        )
        try:
            self._target = await self._in_thread(self._connection, self._connection.open)
        except SchemaError as exc:
            if str(exc) != self._complaint:
                self._complaint = str(exc)
                self._log.error("table_not_usable", problem=str(exc), missing_columns=list(exc.missing))
            raise
        self._complaint = ""
        self._connections.inc()
        self._tell(self._target)
        return self._connection, self._target

    def _tell(self, target: Target) -> None:
        if target.added_columns:
            self._log.info("columns_added", columns=list(target.added_columns))
        windows = target.windows
        promise = "exactly once" if windows.is_exactly_once else "at least once on this table"
        if promise == self._promise:
            return
        self._promise = promise
        if windows.is_exactly_once:
            self._log.info("table_opened", version=target.version, promise=promise, window=windows.window)
            return
        self._log.warning(
            "table_opened",
            version=target.version,
            promise=promise,
            cause="a repeated insert is not recognised: no deduplication window",
            without_window=[".".join(each) for each in windows.without],
        )

    def _columns_for(self, batch: FlowBatch, target: Target) -> tuple[str, ...]:
        """Antrea's columns, and every other element of flows for which the table has a column."""
        known = frozenset(self._columns)
        names = dict.fromkeys((*self._config.elements, *batch.schema.names))
        extra = [name for name in names if name not in known and name in target.columns]
        ignored = [name for name in batch.schema.names if name not in target.columns and name not in self._ignored]
        if ignored:
            self._ignored.update(ignored)
            self._log.debug("elements_ignored", elements=ignored, cause="the table has no such columns")
        return (*self._columns, *extra)

    async def _insert(self, insert: _Insert, batch: FlowBatch) -> None:
        block = await self._encoded(insert, batch)
        octets = await self._in_thread(
            insert.connection, partial(insert.connection.insert, block, insert.columns, batch.id)
        )
        self._inserts.inc()
        self._octets.inc(octets)
        if insert.check is not None and batch.id:
            await self._see_to_it(insert, insert.check, batch)

    async def _encoded(self, insert: _Insert, batch: FlowBatch) -> list[Buffer]:
        block: list[Buffer] = []
        octets = 0
        for pieces in encode(
            batch,
            insert.columns,
            cluster_uuid=self._context.cluster_uuid,
            unset_addresses_empty=self._context.compatibility != "antrea-2.3",
        ):
            block += pieces
            octets += sum(map(len, pieces))
            if octets > _STEP_OCTETS:
                octets = 0
                await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        return block

    async def _see_to_it(self, insert: _Insert, check: Check, batch: FlowBatch) -> None:
        """Insert what the server only believes to have.

        The insert before went to the table and to every view that had not noted it.
        """
        questions: list[KeyedRows] = []
        for rows in keyed_rows(batch, check):
            if rows is None:
                await trio.lowlevel.checkpoint()
            else:
                questions.append(rows)
        missing: list[int] = []
        async with self._looking(batch):
            await self._in_thread(insert.connection, insert.connection.settle)
            missing += await self._missing(insert.connection, check, questions)
        if missing:
            await self._insert_again(insert, check, questions, batch, missing)
        if self._config.may_create and self._config.schema.views:
            async with self._looking(batch):
                await self._mend_views(insert.connection, check, questions)

    @asynccontextmanager
    async def _looking(self, batch: FlowBatch) -> AsyncIterator[None]:
        """Around what is done to be sure: if it cannot be done, flows go on."""
        try:
            yield
        except NotAllowedError as exc:
            self._not_verified(batch, exc)
        except StillRunningError:
            raise  # it ends: before that nothing is known, however often one looks
        except RetryableExportError as exc:
            self._failed_checks += 1
            if self._failed_checks < _MOST_CHECKS:
                raise
            self._not_verified(batch, exc)
        self._failed_checks = 0

    async def _missing(self, connection: Connection, check: Check, questions: list[KeyedRows]) -> list[int]:
        missing: list[int] = []
        for rows in questions:
            present = await self._in_thread(connection, partial(connection.present, check, rows, time.time()))
            missing += (rows.first + index for index, key in enumerate(rows.keys) if key not in present)
        return missing

    async def _insert_again(
        self, insert: _Insert, check: Check, questions: list[KeyedRows], batch: FlowBatch, missing: list[int]
    ) -> None:
        """Views are left alone where a table of our own can be made; else those that had the rows have them twice."""
        connection, rows = insert.connection, len(missing)
        are_views_spared = self._config.may_create
        if are_views_spared:
            block = await self._encoded(insert, batch.take(missing))
            try:
                octets = await self._in_thread(connection, partial(connection.add, block, insert.columns))
                self._octets.inc(octets)
            except NotAllowedError:
                are_views_spared = False
        if not are_views_spared:
            # The names are the same at each attempt, so that one that begins late comes once; one that was noted and
            # lost, as the first, is seen.
            for number in range(1, _MOST_NAMES + 1):
                block = await self._encoded(insert, batch.take(missing))
                name = f"{batch.id}!{number}"
                self._octets.inc(
                    await self._in_thread(connection, partial(connection.insert, block, insert.columns, name))
                )
                async with self._looking(batch):
                    missing = await self._missing(connection, check, questions)
                if not missing:
                    break
        self._again.inc(rows)
        self._log.warning(
            "rows_inserted_again",
            batch=batch.id,
            rows=rows,
            views="left as they are" if are_views_spared else "may have them twice",
            cause=_CAUSE,
        )

    async def _mend_views(self, connection: Connection, check: Check, questions: list[KeyedRows]) -> None:
        for view in VIEWS:
            added = 0
            for rows in questions:
                mend = partial(connection.mend_view, view, check, rows, time.time())
                added += await self._in_thread(connection, mend)
            if added:
                self._view_rows.inc(added)
                self._log.warning("view_mended", view=f"{self._config.table}_{view.suffix}", rows=added, cause=_CAUSE)

    def _not_verified(self, batch: FlowBatch, exc: Exception) -> None:
        self._unverified.inc()
        self._log.warning("insert_not_verified", batch=batch.id, problem=str(exc))

    async def _find_refused(self, insert: _Insert, batch: FlowBatch) -> list[int]:
        """Insert what can be inserted of a batch that was refused whole, and give the other rows.

        Halves have names of their own, which are the same at each attempt: what was inserted before stays single.
        """
        refused: list[int] = []
        waiting = _halves(0, len(batch))
        cuts = 0
        while waiting:
            start, stop = waiting.pop()
            cuts += 1
            part = batch.slice(start, stop)
            if batch.id:
                part = part.with_id(f"{batch.id}[{start}:{stop}]")
            try:
                await self._insert(insert, part)
            except RefusedError:
                if cuts < _MOST_CUTS:
                    waiting += _halves(start, stop)
                    if stop - start > 1:
                        continue
                refused += range(start, stop)
        return sorted(refused)

    async def _in_thread(self, connection: Connection, function: Callable[[], T]) -> T:
        ended = trio.Event()
        token = trio.lowlevel.current_trio_token()

        def run() -> T:
            try:
                return function()
            finally:
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(ended.set)

        try:
            return await trio.to_thread.run_sync(run, abandon_on_cancel=connection.may_stall, limiter=self._limiter)
        except trio.Cancelled:
            connection.interrupt()
            with trio.move_on_after(_INTERRUPT_SECONDS, shield=True):
                await ended.wait()
            raise


def _halves(start: int, stop: int) -> list[tuple[int, int]]:
    """The second half, then the first, which is taken first; nothing of a single row."""
    middle = (start + stop) // 2
    return [(middle, stop), (start, middle)] if stop - start > 1 else []


@asynccontextmanager
async def open_clickhouse(config: ClickHouseConfig, context: PluginContext) -> AsyncIterator[Exporter]:
    """Open the exporter; if the server cannot be reached now, each export tries again.

    Raises:
        ConfigError: an element is unknown, or the embedded engine is not installed.
    """
    refuse_unknown_elements(config.elements, context.registry)
    refuse_missing_engine(config)
    destination = config.destination
    if isinstance(destination, HttpDestination):
        if destination.warning:
            context.log.warning("native_protocol_replaced", cause=destination.warning)
        if destination.is_tls and config.tls.insecure_skip_verify:
            context.log.warning("certificate_not_verified", cause="tls.insecureSkipVerify is true")
    exporter = _ClickHouseExporter(config, context)
    try:
        await exporter.connect()
        yield exporter
    finally:
        await exporter.close()
