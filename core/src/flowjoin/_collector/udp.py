"""IPFIX over UDP (RFC 7011 section 10.3): one datagram is one Message.

Strategy: one task waits until the socket is readable, takes what is there without waiting again, and
hands it over in one call, or several where datagrams are large. A wake-up has a budget of datagrams
that adapts, and ends between two calls when its time is over, so that neither a slow kernel nor what a
sender makes expensive holds trio's thread for long; waiting for readability lets every other task run
in between, also when the next datagram is there already.

Invariant: a datagram that we read is handed over, whatever happens next.
"""

from __future__ import annotations

import math
import socket
from typing import Any, Final

import trio

from flowjoin._collector.config import CollectorConfig
from flowjoin._collector.datagrams import datagram_reader
from flowjoin._collector.intake import Intake
from flowjoin._collector.metrics import CollectorCounters, CollectorStatistics
from flowjoin._collector.peers import PeerSessions
from flowjoin._collector.sockets import ask_receive_buffer, bound_address, datagrams_dropped, open_bound
from flowjoin._config.endpoint import Endpoint
from flowjoin._model.errors import BindError
from flowjoin._model.reasons import Reason
from flowjoin._model.transport_session import TransportSession

__all__ = ["UdpCollectingProcess"]

# Handed over at once, as much as TCP reads at once: what one call can cost is in proportion to it.
_PIECE_OCTETS: Final = 65536
_LEAST_BUDGET: Final = 8
_REST_SECONDS: Final = 0.005  # at 40,000 datagrams a second 200 gather
_REST_OCTETS_A_SECOND: Final = 100_000_000  # shorter where so much a second would fill the receive buffer meanwhile
_REOPEN_AFTER: Final = 0.1
_REOPEN_AT_MOST: Final = 5.0


class UdpCollectingProcess:
    """Receives at one bound UDP socket."""

    def __init__(self, config: CollectorConfig, intake: Intake, bound: socket.socket, *, now: float) -> None:
        """Take over a bound socket; ``close`` is the caller's duty."""
        self._limits = config.limits
        self._reuse_port = config.reuse_port
        self._intake = intake
        self._socket = bound
        self.address: Final = bound_address(bound)
        self._budget = config.limits.datagrams_per_wakeup
        self._counters = CollectorCounters()
        self._receiving = trio.CancelScope()
        self._drops_seen = 0
        self._rest = 0.0
        self._peers = PeerSessions(
            local=self.address.host,
            local_port=self.address.port,
            limit=config.limits.sessions,
            period=config.limits.idle_timeout,
            now=now,
        )
        self._reader = datagram_reader(self._peers)

    def configure(self) -> None:
        """Ask for room in the kernel, and say what was granted."""
        asked = self._limits.receive_buffer_octets
        granted = ask_receive_buffer(self._socket, asked)
        self._rest = min(_REST_SECONDS, granted / _REST_OCTETS_A_SECOND)
        report = self._intake.log.info if granted >= asked else self._intake.log.warning
        report(
            "receive_buffer",
            address=str(self.address),
            asked_octets=asked,
            granted_octets=granted,
            **({} if granted >= asked else {"hint": f"sysctl -w net.core.rmem_max={asked}, or give CAP_NET_ADMIN"}),
        )
        self._drops_seen = 0

    def close(self) -> None:
        self._socket.close()

    def statistics(self) -> CollectorStatistics:
        self._count_drops()
        return self._counters.snapshot(protocol="udp", address=str(self.address), sessions=len(self._peers))

    def stop_intake(self) -> None:
        """Take what has arrived until now, then let ``run`` return."""
        self._receiving.cancel()

    async def run(self, *, task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED) -> None:
        """Receive until stopped or cancelled."""
        task_status.started(self.address)
        with self._receiving:
            rested_at = -math.inf
            while True:
                await trio.lowlevel.wait_readable(self._socket)
                if trio.current_time() - rested_at < self._rest:
                    # Datagrams come fast. A wake-up costs as much as several of them: let some gather.
                    await trio.sleep(self._rest)
                read, error = self._take_what_is_there()
                rested_at = -math.inf if read >= self._budget else trio.current_time()
                if error is not None:
                    await self._reopen(error)
        await self._take_the_rest()

    def _take_what_is_there(self) -> tuple[int, OSError | None]:
        """Read up to the budget and hand it over; gives how many datagrams were read, and the socket's error."""
        began = trio.current_time()
        self._peers.advance(began)
        read, error = 0, None
        while read < self._budget and error is None:
            received = self._reader.receive(self._socket, self._budget - read, _PIECE_OCTETS)
            read += received.read
            error = received.error
            for address in received.refused:
                self._refuse(address)
            if received.messages:
                self._hand_over(received.messages, received.sessions, began)
            if received.is_all or trio.current_time() - began > self._limits.slice_seconds:
                break
        if read == self._budget:
            self._adapt(trio.current_time() - began)
        return read, error

    def _hand_over(self, messages: list[bytes | memoryview], sessions: list[TransportSession], now: float) -> None:
        self._counters.messages += len(messages)
        self._counters.octets += sum(map(len, messages))
        self._intake.ingest(messages, sessions, now)

    def _adapt(self, spent: float) -> None:
        if spent > self._limits.slice_seconds:
            self._budget = max(_LEAST_BUDGET, self._budget // 2)
        elif spent < self._limits.slice_seconds / 2:
            self._budget = min(self._limits.datagrams_per_wakeup, self._budget * 2)

    def _refuse(self, address: Any) -> None:
        self._counters.refuse(Reason.SESSION_LIMIT.value)
        self._intake.log.warning(
            "session_refused",
            reason=Reason.SESSION_LIMIT.value,
            address=str(self.address),
            # Not as original_exporter, by which the logger tells repetitions apart: forged addresses would
            # fill the log.
            refused=address[0],
            limit=self._limits.sessions,
        )

    def _count_drops(self) -> None:
        dropped = datagrams_dropped(self._socket) if self._socket.fileno() >= 0 else None
        if dropped is not None:
            self._counters.kernel_drops += (dropped - self._drops_seen) % 2**32
            self._drops_seen = dropped

    async def _reopen(self, error: OSError) -> None:
        """An error of the socket must not leave us deaf: say it, count it, take a new socket."""
        wait = _REOPEN_AFTER
        self._fail(error)
        self._count_drops()
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()
        while True:
            await trio.sleep(wait)
            try:
                self._socket = open_bound(
                    socket.SOCK_DGRAM, self.address, numeric_host=self.address.host, reuse_port=self._reuse_port
                )
            except BindError as exc:
                self._fail(exc)
                wait = min(2 * wait, _REOPEN_AT_MOST)
                continue
            self.configure()
            self._intake.log.info("socket_reopened", address=str(self.address))
            return

    def _fail(self, error: Exception) -> None:
        self._counters.socket_errors += 1
        self._intake.log.error("socket_failed", address=str(self.address), error=str(error))

    async def _take_the_rest(self) -> None:
        """Read what the receive buffer held when the intake stopped: never more than fits into it."""
        left = self._limits.receive_buffer_octets
        while left > 0 and self._socket.fileno() >= 0:
            before = self._counters.octets
            read, error = self._take_what_is_there()
            if error is not None:
                self._fail(error)
                break
            if not read:
                break
            left -= self._counters.octets - before
            await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
