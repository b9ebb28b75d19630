"""The exporter's life: connects when there is something to send, encodes in short slices, knows what arrived.

Whatever goes wrong on a connection ends it; the batch comes again on another one, behind the Templates and what the
last seconds of the old one carried.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import trio

from flowjoin.api import (
    EncodeError,
    Exporter,
    FlowBatch,
    PermanentExportError,
    PluginContext,
    RetryableExportError,
)
from flowjoin.api.writers import rows_per_slice
from flowjoin.wire import Template
from flowjoin_ipfix._check import has_switches, make_book, refuse_small_messages
from flowjoin_ipfix._client import Connection, ConnectionLost
from flowjoin_ipfix._config import IpfixConfig
from flowjoin_ipfix._datagram import connect_datagram
from flowjoin_ipfix._destination import Destination
from flowjoin_ipfix._encode import DataRecordEncoder
from flowjoin_ipfix._json import JsonEncoder
from flowjoin_ipfix._observation_domain import observation_domain_of, observation_domain_of_node
from flowjoin_ipfix._resend import ResendBuffer
from flowjoin_ipfix._rows import RowWriter, Unit, units_of
from flowjoin_ipfix._session import IpfixSession, JsonSession, Session
from flowjoin_ipfix._stream import connect_stream
from flowjoin_ipfix._templates import TemplateBook, lacks_counters

__all__ = ["make_writer", "open_ipfix"]

_SLICE_ROWS: Final = 128  # written without compiled code: a few milliseconds
_MAX_DATAGRAM: Final = 65507  # over IPv4
_LONGEST_LINE: Final = 16 * 1024 * 1024  # JSON on a stream: a flow has a few dozen strings of 64 KiB at most
_LINES_AT_ONCE: Final = 128
_ROWS_NAMED: Final = 5


@dataclass(slots=True)
class _Open:
    connection: Connection
    session: Session
    introduced_at: float  # when all Templates were last sent


def make_writer(config: IpfixConfig, template: Template, limit: int) -> RowWriter:
    """What writes the rows of a Template, for units of at most so many octets."""
    if config.record_format == "JSON":
        room = limit if config.protocol == "udp" else _LONGEST_LINE
        return JsonEncoder(template, room, now=lambda: datetime.now().astimezone())
    return DataRecordEncoder(template, IpfixSession.room(limit))


class _IpfixExporter:
    def __init__(
        self,
        config: IpfixConfig,
        context: PluginContext,
        destination: Destination,
        nursery: trio.Nursery,
        book: TemplateBook,
        domain_id: int,
    ) -> None:
        self._config = config
        self._destination = destination
        self._log = context.log
        self._progressed = context.progressed
        self._nursery = nursery
        self._book = book
        self._domain_id = domain_id
        self._open: _Open | None = None
        self._refusals = 0
        self._turn = trio.Lock()  # a refresh of Templates and a batch do not mix
        self._resend = ResendBuffer(interval=config.resend_interval, max_octets=config.resend_buffer)
        self._writers: dict[int, tuple[int, RowWriter]] = {}
        self._warned: set[str] = set()
        self._rows = context.counter("rows_delivered", "Rows that arrived, those sent again too")
        self._resent = context.counter("rows_resent", "Rows sent again after a connection was lost")
        self._forgotten = context.counter("rows_not_kept", "Rows that resendBuffer had no room for")
        self._uncounted = context.counter("rows_uncounted", "Rows with counters of zero, for nobody counted")
        self._octets = context.counter("octets", "Octets sent, without headers of IP and transport")
        self._messages = context.counter("messages", "Messages sent; datagrams or groups of lines with JSON")
        also = "antrea_agent_flow_collector_reconnection_count" if config.template == "agent" else ""
        self._connections = context.counter("connections", "Connections made", also=also)
        self._losses = context.counter("connections_lost", "Connections that failed, or were never had")

    async def export(self, batch: FlowBatch) -> None:
        if not len(batch):
            await trio.lowlevel.checkpoint()
            return
        untold = self._book.untold(batch.schema)
        if untold:
            self._log.info("elements_not_sent", elements=", ".join(untold), setting="includeExtraElements")
        template = self._book.template_of(batch.schema)
        if self._config.template == "agent" and lacks_counters(batch.schema):
            self._warn_once(
                "counters_sent_as_zero", cause="the flows' source counts nothing, and an agent's Template does"
            )
            self._uncounted.inc(len(batch))
        async with self._turn:
            try:
                opened = await self._connected()
                refused = await self._deliver(opened, template, batch)
            except ConnectionLost as exc:
                self._drop(exc)
                raise RetryableExportError(f"{self._config.protocol} {self._destination}: {exc}") from exc
            except PermanentExportError:
                raise
            except EncodeError as exc:  # more schemas than there are ids
                raise PermanentExportError(str(exc)) from exc
            except BaseException:
                self._resend.lost(None)
                self.abort()  # in the middle of a Message, perhaps
                raise
        if refused:
            raise PermanentExportError(_explained(refused), rows=sorted(refused))

    async def refresh_templates(self) -> None:
        """Over UDP: send all Templates again, as often as configured."""
        interval = self._config.template_refresh_timeout
        while True:
            opened = self._open
            await trio.sleep_until((opened.introduced_at if opened else trio.current_time()) + interval)
            async with self._turn:
                opened = self._open
                if opened is None or trio.current_time() < opened.introduced_at + interval:
                    continue
                try:
                    opened.connection.check()
                    await self._introduce(opened, again=True)
                except ConnectionLost as exc:
                    self._drop(exc)

    async def aclose(self) -> None:
        """Close the connection, in order."""
        if self._open is not None:
            connection, self._open = self._open.connection, None
            await connection.aclose()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._open is not None:
            self._open.connection.abort()
            self._open = None

    def _drop(self, loss: ConnectionLost) -> None:
        self._losses.inc()
        self._refusals += 1
        if self._open is not None:
            self._log.warning("connection_lost", address=str(self._destination), problem=str(loss))
        self._resend.lost(loss.closed_at)
        self.abort()

    async def _connected(self) -> _Open:
        if self._open is not None:
            self._open.connection.check()
            return self._open
        try:
            with trio.fail_after(self._config.connect_timeout):
                connection = await self._connect()
        except trio.TooSlowError:
            raise ConnectionLost(f"no connection within {self._config.connect_timeout:g} s") from None
        session = (
            JsonSession()
            if self._config.record_format == "JSON"
            else IpfixSession(self._domain_id, lambda: int(time.time()))
        )
        self._open = opened = _Open(connection, session, trio.current_time())
        await self._introduce(opened)
        await connection.wait_refused()
        self._connections.inc()
        self._log.info("connected", address=str(self._destination), peer=connection.peer, limit=self._limit(connection))
        await self._send_again(opened)
        return opened

    async def _connect(self) -> Connection:
        target = await self._destination.target()
        if self._config.protocol == "udp":
            return await connect_datagram(target.address, attempt=self._refusals)
        return await connect_stream(
            target.address,
            self._nursery,
            context=target.context,
            server_name=target.server_name,
            send_timeout=self._config.send_timeout,
            progressed=self._progressed,
        )

    def _limit(self, connection: Connection) -> int:
        path, wanted = connection.limit, self._config.max_ipfix_msg_size
        if not wanted:
            return path
        if wanted > path:
            self._warn_once("messages_over_path", limit=wanted, path=path)
        return wanted if connection.is_stream else min(wanted, _MAX_DATAGRAM)

    async def _introduce(self, opened: _Open, *, again: bool = False) -> None:
        await self._define(opened, self._book.templates, again=again)
        opened.introduced_at = trio.current_time()

    async def _define(self, opened: _Open, templates: Sequence[Template], *, again: bool = False) -> None:
        limit = self._limit(opened.connection)
        fitting = [template for template in templates if self._fits(opened.connection, template, limit)]
        for message in opened.session.definitions(fitting, again=again):
            if len(message) > limit:
                # Without its Template no record can be read: better in fragments than not at all.
                self._warn_once("template_over_path", octets=len(message), path=limit)
            await self._send(opened, message)

    async def _send_again(self, opened: _Open) -> None:
        units = self._resend.units
        if not units:
            return
        for unit in units:
            await self._send(opened, opened.session.framed(unit))
            opened.session.sent(unit)
        await opened.connection.wait_delivered()
        rows = sum(unit.rows for unit in units)
        self._resend.clear()
        self._acknowledged(units)
        self._resent.inc(rows)
        self._log.info("rows_sent_again", rows=rows)

    async def _deliver(self, opened: _Open, template: Template, batch: FlowBatch) -> dict[int, str]:
        """Send the rows and wait until they have arrived; gives the refused ones, with the reason."""
        limit = self._limit(opened.connection)
        if self._config.record_format == "IPFIX" and not self._fits(opened.connection, template, limit):
            problem = f"Template {template.template_id} does not fit into a Message of {limit} octets"
            raise PermanentExportError(f"{problem}: raise maxIPFIXMsgSize")
        await self._define(opened, [template])
        writer = self._writer(template, limit)
        is_json = self._config.record_format == "JSON"
        packing = min(limit, self._config.max_ipfix_msg_size or opened.connection.packing)
        room = IpfixSession.room(packing) if not is_json else _LONGEST_LINE
        most_rows = sys.maxsize if not is_json else _LINES_AT_ONCE if opened.connection.is_stream else 1
        refused: dict[int, str] = {}
        sent: list[Unit] = []
        step = rows_per_slice(_SLICE_ROWS)
        for start in range(0, len(batch), step):
            written = writer.write(batch.slice(start, min(start + step, len(batch))))
            refused |= {start + row: problem for row, problem in written.refused.items()}
            for unit in units_of(written, template.template_id, room=room, most_rows=most_rows):
                await self._send(opened, opened.session.framed(unit))
                opened.session.sent(unit)
                sent.append(unit)
            await trio.lowlevel.checkpoint()
        await opened.connection.wait_delivered()
        self._acknowledged(sent)
        return refused

    def _fits(self, connection: Connection, template: Template, limit: int) -> bool:
        if not connection.is_stream and not self._config.max_ipfix_msg_size:
            return True  # in fragments
        return IpfixSession.definition_octets(template) <= limit

    def _writer(self, template: Template, limit: int) -> RowWriter:
        known = self._writers.get(template.template_id)
        if known is not None and known[0] == limit:
            return known[1]
        writer = make_writer(self._config, template, limit)
        self._writers[template.template_id] = (limit, writer)
        return writer

    async def _send(self, opened: _Open, octets: bytes) -> None:
        await opened.connection.send(octets)
        self._messages.inc()
        self._octets.inc(len(octets))

    def _acknowledged(self, units: list[Unit]) -> None:
        self._rows.inc(sum(unit.rows for unit in units))
        if self._config.protocol != "udp":
            forgotten = self._resend.acknowledged(units, trio.current_time())
            if forgotten:
                self._forgotten.inc(forgotten)
                self._warn_once("resend_buffer_full", octets=int(self._config.resend_buffer))

    def _warn_once(self, event: str, **facts: object) -> None:
        if event not in self._warned:
            self._warned.add(event)
            self._log.warning(event, **facts)


def _explained(refused: dict[int, str]) -> str:
    some = [f"row {row}: {refused[row]}" for row in sorted(refused)[:_ROWS_NAMED]]
    return "; ".join([*some, f"and {len(refused) - len(some)} more"] if len(refused) > len(some) else some)


def _book(config: IpfixConfig, context: PluginContext) -> TemplateBook:
    if not has_switches(config, context.compatibility) and (not config.include_k8s_names or config.include_k8s_uids):
        context.log.warning(
            "switches_without_effect",
            settings="includeK8sNames, includeK8sUIDs",
            cause="Antrea 2.3 and agents send names and no UUIDs",
        )
    return make_book(config, context.compatibility, context.registry)


@asynccontextmanager
async def open_ipfix(config: IpfixConfig, context: PluginContext) -> AsyncIterator[Exporter]:
    """Open the exporter; it connects with the first batch.

    Raises:
        ConfigError: a file of TLS cannot be used, or no Template fits into a Message.
    """
    book = _book(config, context)
    refuse_small_messages(config, book)
    destination = Destination(config, context)
    await destination.check()
    if config.protocol == "tls" and config.tls is not None and config.tls.insecure_skip_verify:
        context.log.warning("collector_not_verified", setting="tls.insecureSkipVerify")
    domain_id = config.observation_domain_id
    if domain_id is None:
        is_agents = config.template == "agent"
        domain_id = observation_domain_of_node() if is_agents else observation_domain_of(context.cluster_uuid)
    if config.record_format == "IPFIX":
        context.log.info("observation_domain", id=domain_id)
    if config.protocol == "udp":
        context.log.info("delivery_is_best_effort", cause="UDP tells nothing of what is lost on the way")
    async with trio.open_nursery() as nursery:
        exporter = _IpfixExporter(config, context, destination, nursery, book, domain_id)
        if config.protocol == "udp" and config.record_format == "IPFIX":
            nursery.start_soon(exporter.refresh_templates)
        try:
            yield exporter
            await exporter.aclose()
        finally:
            exporter.abort()
            nursery.cancel_scope.cancel()
