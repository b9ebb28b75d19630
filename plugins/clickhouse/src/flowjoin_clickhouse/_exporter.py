"""The exporter's life: encodes on trio's thread a column at a time, talks to the server in a worker thread.

Encoding stays on trio's thread, with a checkpoint after each column: a worker thread that computes would hold the
interpreter's lock for whole switch intervals, and every system call of the collectors would wait for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
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
from flowjoin_clickhouse._client import Connection, Target, refuse_missing_engine
from flowjoin_clickhouse._columns import insert_columns, refuse_unknown_elements
from flowjoin_clickhouse._config import ClickHouseConfig
from flowjoin_clickhouse._encode import Buffer, encode
from flowjoin_clickhouse._errors import RefusedError, SchemaError
from flowjoin_clickhouse._url import HttpDestination

__all__ = ["batching", "open_clickhouse"]

T = TypeVar("T")

_BATCH_OCTETS: Final = Octets(16 * 1024 * 1024)
_INTERRUPT_SECONDS: Final = 5.0  # a host name that is being looked up cannot be interrupted
_CLOSE_SECONDS: Final = 5.0
_MOST_CUTS: Final = 200  # inserts that look for the rows at fault; what is left then is refused together


def batching(config: ClickHouseConfig) -> Batching:
    """A batch is one insert."""
    return Batching(records=config.max_rows, octets=_BATCH_OCTETS, interval=config.commit_interval)


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
        self._limiter = trio.CapacityLimiter(1)
        self._connection: Connection | None = None
        self._target: Target | None = None
        self._promise = ""  # the last one that was logged
        self._complaint = ""  # about the table, as it was logged
        self._ignored: set[str] = set()

    async def export(self, batch: FlowBatch) -> None:
        await trio.lowlevel.checkpoint()
        if not len(batch):
            return
        try:
            connection, target = await self._opened()
            columns = self._columns_for(batch, target)
            try:
                await self._insert(connection, batch, columns)
            except RefusedError as exc:
                refused = await self._find_refused(connection, batch, columns)
                self._rows.inc(len(batch) - len(refused))
                self._refused.inc(len(refused))
                if refused:
                    raise PermanentExportError(str(exc), rows=refused) from exc
                return
        except RetryableExportError:
            # The next attempt looks at everything anew: address, credentials, authorities, table.
            await self.close()
            raise
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
            self._config, compatibility=self._context.compatibility, registry=self._context.registry
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

    async def _insert(self, connection: Connection, batch: FlowBatch, columns: Sequence[str]) -> None:
        block: list[Buffer] = []
        for pieces in encode(
            batch,
            columns,
            cluster_uuid=self._context.cluster_uuid,
            unset_addresses_empty=self._context.compatibility != "antrea-2.3",
        ):
            block += pieces
            await trio.lowlevel.checkpoint()
        octets = await self._in_thread(connection, partial(connection.insert, block, columns, batch.id))
        self._inserts.inc()
        self._octets.inc(octets)

    async def _find_refused(self, connection: Connection, batch: FlowBatch, columns: Sequence[str]) -> list[int]:
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
                await self._insert(connection, part, columns)
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
