"""IPFIX over a byte stream (RFC 7011 section 10.4): Messages one after the other, cut anywhere.

Strategy: one task per connection reads what is there, up to 64 KiB, and hands all whole Messages of one
read over in one call. Before each read it waits until the pipeline is ready: the peer's own flow
control does the rest. A connection is any ``trio.abc.ReceiveStream``, so that a TLS stream fits.

Invariants: a connection whose bytes cannot be trusted any more is closed, never resynchronised (the
peer connects again and sends its Templates again); every connection that was opened is closed with
its session, whatever ends it.
"""

from __future__ import annotations

import errno
import math
import socket
from typing import Final

import trio

from flowjoin._collector.config import CollectorConfig
from flowjoin._collector.intake import Intake
from flowjoin._collector.metrics import CollectorCounters, CollectorStatistics
from flowjoin._collector.peers import peer_text
from flowjoin._collector.sockets import bound_address
from flowjoin._config.endpoint import Endpoint
from flowjoin._kernel.interface import IngestResult
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire.framer import NEED_DATA, MessageFramer

__all__ = ["TcpCollectingProcess"]

_PROPER_ENDS: Final = frozenset({"end", "idle", "stopped"})
_READ_OCTETS: Final = 65536  # larger reads were measured to be slower
_ACCEPT_PAUSE: Final = 0.1
# What accept says when we, not the peer, have run out of something.
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
# After the intake has stopped, a connection that says nothing for so long has said what it had to say.
_QUIET_SECONDS: Final = 0.05
_DRAIN_SECONDS: Final = 1.0  # and who never stops talking is not heard longer than this


class TcpCollectingProcess:
    """Accepts connections at one bound, listening TCP socket and reads from them."""

    def __init__(self, config: CollectorConfig, intake: Intake, bound: socket.socket) -> None:
        """Take over a listening socket; ``close`` is the caller's duty."""
        self._limits = config.limits
        self._intake = intake
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
        self.address: Final = bound_address(bound)
        self._counters = CollectorCounters()
        self._accepting = trio.CancelScope()
        self._last_read_at = math.inf  # set when the intake stops
        self._reading: set[trio.CancelScope] = set()
        self._connections = 0

    @property
    def _is_stopping(self) -> bool:
        return self._last_read_at < math.inf

    def configure(self) -> None:
        """Nothing to ask for: TCP's own flow control bounds what the kernel holds."""

    def close(self) -> None:
        self._listener.socket.close()

    def statistics(self) -> CollectorStatistics:
        return self._counters.snapshot(protocol="tcp", address=str(self.address), sessions=self._connections)

    def stop_intake(self) -> None:
        """Accept nobody any more, read what has arrived, then let ``run`` return."""
        now = trio.current_time()
        self._last_read_at = now + _DRAIN_SECONDS
        self._accepting.cancel()
        for scope in self._reading:
            scope.deadline = min(scope.deadline, now + _QUIET_SECONDS)

    async def run(self, *, task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and read until stopped or cancelled."""
        async with trio.open_nursery() as connections:
            task_status.started(self.address)
            with self._accepting:
                while True:
                    stream = await self._accept()
                    if stream is not None:
                        connections.start_soon(self._serve_socket, stream)
            self.close()

    async def _accept(self) -> trio.SocketStream | None:
        try:
            stream = await self._listener.accept()
        except OSError as exc:
            if exc.errno not in _OUT_OF_RESOURCES:
                raise
            self._counters.accept_failures += 1
            self._intake.log.error("accept_failed", address=str(self.address), error=str(exc))
            await trio.sleep(_ACCEPT_PAUSE)  # the waiting connection stays in the backlog
            return None
        if self._connections >= self._limits.sessions:
            self._counters.refuse(Reason.SESSION_LIMIT.value)
            self._intake.log.warning(
                "session_refused",
                reason=Reason.SESSION_LIMIT.value,
                address=str(self.address),
                limit=self._limits.sessions,
            )
            await trio.aclose_forcefully(stream)
            return None
        self._connections += 1  # here and not in its task, which starts later
        return stream

    async def _serve_socket(self, stream: trio.SocketStream) -> None:
        self._counters.sessions_opened += 1
        try:
            # A peer whose machine is gone says nothing for ever.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            peer, local = stream.socket.getpeername(), stream.socket.getsockname()
        except OSError:  # it was gone before we looked
            self._counters.connections_reset += 1
            self._connections -= 1
            await trio.aclose_forcefully(stream)
            return
        session = TransportSession(
            protocol="tcp",
            peer=peer_text(peer[0]),
            peer_port=peer[1],
            local=peer_text(local[0]),
            local_port=local[1],
            serial=self._counters.sessions_opened,
        )
        await self.serve(stream, session)

    async def serve(self, stream: trio.abc.ReceiveStream, session: TransportSession) -> None:
        """Read one connection to its end, then close it and its session."""
        try:
            cause = await self._read(stream, session)
        finally:
            self._connections -= 1
            self._intake.close_session(session)
            await trio.aclose_forcefully(stream)
        report = self._intake.log.info if cause in _PROPER_ENDS else self._intake.log.warning
        report(
            "connection_closed",
            address=str(self.address),
            original_exporter=session.peer,
            port=session.peer_port,
            cause=cause,
        )

    async def _read(self, stream: trio.abc.ReceiveStream, session: TransportSession) -> str:
        framer = MessageFramer()
        heard_at = trio.current_time()
        while True:
            held_at = trio.current_time()
            await self._intake.wait_until_ready()
            heard_at += trio.current_time() - held_at  # while we did not listen, the peer was not silent
            with trio.CancelScope(deadline=heard_at + self._limits.idle_timeout) as scope:
                if self._is_stopping:
                    scope.deadline = min(trio.current_time() + _QUIET_SECONDS, self._last_read_at)
                self._reading.add(scope)
                try:
                    data = await stream.receive_some(_READ_OCTETS)
                except trio.BrokenResourceError:
                    self._counters.connections_reset += 1
                    return "reset"
                finally:
                    self._reading.discard(scope)
            if scope.cancelled_caught:
                if self._is_stopping:
                    return "stopped"
                self._counters.connections_idle += 1
                return "idle"
            if not data:
                if framer.buffered_octets:
                    self._counters.connections_cut += 1
                    return "cut"
                return "end"
            messages, fault = _whole_messages(framer, data)
            if messages:
                result = await self._hand_over(messages, session)
                heard_at = trio.current_time()
                if session in result.faulty:
                    self._counters.connections_faulty += 1
                    return "faulty"
            if fault is not None:
                self._counters.refuse(fault.value)
                return fault.value

    async def _hand_over(self, messages: list[bytes | memoryview], session: TransportSession) -> IngestResult:
        """Ingest, when the pipeline is ready: other connections may have brought much since we began to read.

        Cancellation: they are handed over all the same.
        """
        try:
            await self._intake.wait_until_ready()
        finally:
            self._counters.messages += len(messages)
            self._counters.octets += sum(map(len, messages))
            result = self._intake.ingest(messages, [session] * len(messages), trio.current_time())
        return result


def _whole_messages(framer: MessageFramer, data: bytes | bytearray) -> tuple[list[bytes | memoryview], Reason | None]:
    """All Messages that are whole now; what is wrong with the stream after them."""
    messages: list[bytes | memoryview] = []
    framer.receive_data(data)
    try:
        while True:
            message = framer.next_message()
            if message is NEED_DATA:
                return messages, None
            messages.append(message)
    except DecodeError as exc:
        return messages, exc.reason
