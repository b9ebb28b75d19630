"""Hears of denied packets and keeps the books of them: the shell around the store of denied connections."""

from __future__ import annotations

import errno
import itertools
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import trio

from flowjoin.api import ConfigError, PluginContext
from flowjoin_conntrack._classifier import Classifier
from flowjoin_conntrack._config import DeniedConfig
from flowjoin_conntrack._denied import Denial, DeniedStore
from flowjoin_conntrack._dumper import NetlinkReceiver, open_netlink
from flowjoin_conntrack._entry import Connection
from flowjoin_conntrack._exports import Timeouts
from flowjoin_conntrack._metadata import Metadata
from flowjoin_conntrack._nflog import Acknowledged, LoggedPacket, bind_request, logged_packets
from flowjoin_conntrack._packet import Packet
from flowjoin_conntrack._verdict import verdict_of

__all__ = ["Denials", "LogSource", "connection_of", "open_log"]

_ANSWER_SECONDS: Final = 10.0
_SLICE: Final = 256  # packets taken in one go: some milliseconds
_INPUT, _OUTPUT = 1, 3  # hooks


class LogSource:
    """A socket that has a log group."""

    def __init__(self, netlink: socket.socket, config: DeniedConfig) -> None:
        self.config = config
        self._netlink = netlink
        self._receiver = NetlinkReceiver(netlink)

    async def bind(self, *, with_connection: bool) -> None:
        """Ask for the group.

        Raises:
            OSError: the kernel refuses, or does not answer.
        """
        request = bind_request(
            self.config.group,
            copy_octets=self.config.copy_range,
            batch=self.config.batch,
            flush_seconds=float(self.config.flush_interval),
            with_connection=with_connection,
            sequence=1,
        )
        self._netlink.send(request)
        with trio.move_on_after(_ANSWER_SECONDS):
            # Packets may come before the answer, once a part of the request has been done.
            while not any(isinstance(one, Acknowledged) for one in logged_packets(await self.some())):
                pass
            return
        raise OSError(errno.ETIMEDOUT, "the kernel does not answer a request for a log group")

    async def wait_emptied(self) -> None:
        """Wait until everything that had been logged by then has been taken."""
        await self._receiver.wait_emptied()

    async def some(self) -> bytes:
        """Whole datagrams, at least one.

        Raises:
            OSError: of the socket; ENOBUFS says that packets were lost.
        """
        return bytes(await self._receiver.some())


@asynccontextmanager
async def open_log(config: DeniedConfig, context: PluginContext) -> AsyncIterator[LogSource]:
    """Have the group's packets from now on.

    Raises:
        ConfigError: this process may not, or somebody else has the group.
        OSError: the kernel has no logging by netlink, or does not answer.
    """
    with open_netlink(0) as netlink:
        log = LogSource(netlink, config)
        try:
            await _bind(log, context)
        except OSError as exc:
            if exc.errno not in (errno.EPERM, errno.EBUSY):
                raise
            problem = (
                f"log group {config.group} cannot be had; run with CAP_NET_ADMIN, and let no other program have it"
            )
            raise ConfigError(problem, path="denied.group") from exc
        yield log


async def _bind(log: LogSource, context: PluginContext) -> None:
    try:
        await log.bind(with_connection=True)
    except OSError as exc:
        if exc.errno != errno.EOPNOTSUPP:
            raise
        await log.bind(with_connection=False)
        effect = "no destinations before NAT, no connection marks and labels"
        context.log.info("log_without_connections", group=log.config.group, effect=effect)


class Denials:
    """Denied connections of one log group."""

    def __init__(self, log: LogSource, context: PluginContext, timeouts: Timeouts, classifier: Classifier) -> None:
        self._log = log
        self._rules = log.config.verdict_rules
        self._context = context
        self.store: DeniedStore[Metadata] = DeniedStore(timeouts, classifier.of_denied, most=log.config.max_connections)
        self._packets = context.counter("denied_packets", "Packets that rules logged to the group.")
        self._new = context.counter("denied_connections", "Denied connections seen for the first time.")
        self._not_kept = context.counter("denied_packets_not_kept", "Denied packets of more connections than are held.")
        self._not_ip = context.counter("denied_packets_not_ip", "Logged packets that are no IP packets.")
        self._lost = context.counter("lost_denied_packets", "Logged packets that the kernel had no room for.")
        self._overruns = context.counter("denied_overruns", "Times the kernel had more packets than were read.")
        self._sequence: int | None = None

    async def wait_emptied(self) -> None:
        """Wait until everything that had been logged by then has been taken."""
        await self._log.wait_emptied()

    async def readings(self) -> AsyncGenerator[int, None]:
        """Take packets for ever; gives how many, after each slice.

        Raises:
            OSError: the socket is of no use any more.
        """
        while True:
            try:
                octets = await self._log.some()
            except OSError as exc:
                if exc.errno not in (errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._overruns.inc()
                self._context.log.warning("denied_packets_lost", cause="more were logged than could be read")
                continue
            packets = (one for one in logged_packets(octets) if isinstance(one, LoggedPacket))
            while some := list(itertools.islice(packets, _SLICE)):
                now, wall = trio.current_time(), time.time_ns()
                self._packets.inc(len(some))
                for packet in some:
                    self._take(packet, now, wall)
                yield len(some)
                await trio.lowlevel.checkpoint()

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
