"""Hears of denied packets and keeps the books of them: the shell around the store of denied connections."""

from __future__ import annotations

import errno
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import trio

from flowjoin.api import ConfigError, PluginContext
from flowjoin_conntrack._config import DeniedConfig
from flowjoin_conntrack._denied import Denial, DeniedStore
from flowjoin_conntrack._dumper import _open_socket
from flowjoin_conntrack._entry import Connection
from flowjoin_conntrack._metadata import Classifier, Metadata
from flowjoin_conntrack._nflog import Acknowledged, LoggedPacket, bind_request, logged_packets
from flowjoin_conntrack._packet import Packet
from flowjoin_conntrack._store import Timeouts
from flowjoin_conntrack._verdict import verdict_of

__all__ = ["Denials", "connection_of", "open_log"]

_DATAGRAM: Final = 256 * 1024
_ANSWER_SECONDS: Final = 10.0
_INPUT, _OUTPUT = 1, 3  # hooks


@asynccontextmanager
async def open_log(config: DeniedConfig, context: PluginContext) -> AsyncGenerator[trio.socket.SocketType]:
    """Bind the group.

    Raises:
        ConfigError: this process may not, or somebody else has it.
        OSError: the kernel has no logging by netlink, or does not answer.
    """
    with _open_socket(0) as netlink:
        try:
            try:
                await _bind(netlink, config, with_connection=True)
            except OSError as exc:
                if exc.errno != errno.EOPNOTSUPP:
                    raise
                await _bind(netlink, config, with_connection=False)
                effect = "destinations after NAT, no connection marks and labels"
                context.log.info("log_without_connections", group=config.group, effect=effect)
        except trio.TooSlowError:
            raise OSError(errno.ETIMEDOUT, "the kernel does not answer a request for a log group") from None
        except OSError as exc:
            if exc.errno in (errno.EPERM, errno.EBUSY):
                problem = (
                    f"log group {config.group} cannot be had: run with CAP_NET_ADMIN, and let no other program have it"
                )
                raise ConfigError(problem, path="denied.group") from exc
            raise
        yield netlink


async def _bind(netlink: trio.socket.SocketType, config: DeniedConfig, *, with_connection: bool) -> None:
    request = bind_request(
        config.group,
        copy_octets=config.copy_range,
        batch=config.batch,
        flush_seconds=float(config.flush_interval),
        with_connection=with_connection,
        sequence=1,
    )
    with trio.fail_after(_ANSWER_SECONDS):
        await netlink.send(request)
        while True:
            # Packets may come before the answer, once a part of the request has been done.
            if any(isinstance(one, Acknowledged) for one in logged_packets(await netlink.recv(_DATAGRAM))):
                return


class Denials:
    """Denied connections of one log group."""

    def __init__(
        self, config: DeniedConfig, context: PluginContext, timeouts: Timeouts, classifier: Classifier
    ) -> None:
        self._rules = config.verdict_rules
        self._context = context
        self.store: DeniedStore[Metadata] = DeniedStore(timeouts, classifier.of_denied, most=config.max_connections)
        self._packets = context.counter("denied_packets", "Packets that rules logged to the group.")
        self._new = context.counter("denied_connections", "Denied connections seen for the first time.")
        self._not_kept = context.counter("denied_packets_not_kept", "Denied packets of more connections than are held.")
        self._not_ip = context.counter("denied_packets_not_ip", "Logged packets that are no IP packets.")
        self._lost = context.counter("lost_denied_packets", "Logged packets that the kernel had no room for.")
        self._overruns = context.counter("denied_overruns", "Times the kernel had more packets than were read.")
        self._sequence: int | None = None

    async def readings(self, netlink: trio.socket.SocketType) -> AsyncGenerator[int, None]:
        """Take packets for ever; gives how many, after each reading."""
        while True:
            try:
                datagram = await netlink.recv(_DATAGRAM)
            except OSError as exc:
                if exc.errno != errno.ENOBUFS:
                    raise
                self._overruns.inc()
                self._context.log.warning("denied_packets_lost", cause="more were logged than could be read")
                continue
            now, wall = trio.current_time(), time.time_ns()
            count = 0
            for logged in logged_packets(datagram):
                if isinstance(logged, LoggedPacket):
                    self._take(logged, now, wall)
                    count += 1
            self._packets.inc(count)
            yield count

    def _take(self, logged: LoggedPacket, now: float, wall: int) -> None:
        if logged.sequence is not None:
            if self._sequence is not None:
                self._lost.inc((logged.sequence - self._sequence - 1) & 0xFFFFFFFF)
            self._sequence = logged.sequence
        if logged.packet is None:
            self._not_ip.inc()
            return
        verdict = verdict_of(self._rules, logged.prefix, logged.mark)
        if verdict.direction is None and logged.hook in (_INPUT, _OUTPUT):
            verdict = replace(verdict, direction="ingress" if logged.hook == _INPUT else "egress")
        connection = connection_of(logged.packet, logged.connection, at=logged.at or wall)
        outcome = self.store.deny(connection, verdict, logged.packet.octets, now)
        if outcome is Denial.NEW:
            self._new.inc()
        elif outcome is Denial.NO_ROOM:
            self._not_kept.inc()


def connection_of(packet: Packet, tracked: Connection | None, *, at: int) -> Connection:
    """The connection that a denied packet would have begun.

    Args:
        tracked: what connection tracking knows of it: the destination before NAT, marks and labels.
        at: nanoseconds since 1970.
    """
    known = tracked if tracked is not None and tracked.family == packet.family else None
    return Connection(
        family=packet.family,
        protocol=packet.protocol,
        zone=known.zone if known else 0,
        source=packet.source,
        destination=packet.destination,
        source_port=packet.source_port,
        destination_port=packet.destination_port,
        original_destination=known.original_destination if known else packet.destination,
        original_destination_port=known.original_destination_port if known else packet.destination_port,
        reply_destination=packet.source,
        reply_destination_port=packet.source_port,
        mark=known.mark if known else 0,
        labels=known.labels if known else bytes(16),
        start=at,
        stop=at,
    )
