"""IPFIX over a byte stream (RFC 7011 section 10.4): Messages one after the other, cut anywhere.

Strategy: one task per connection reads what is there, up to 64 KiB, and hands all whole Messages of one
read over in one call. Before each read it waits until the pipeline is ready: the peer's own flow
control does the rest. A connection is any ``trio.abc.ReceiveStream``, so that a TLS stream fits: it is read like
any other once its handshake is over.

Invariants: a connection whose bytes cannot be trusted any more is closed, never resynchronised (the
peer connects again and sends its Templates again); every connection that was opened is closed with
its session, whatever ends it.
"""

from __future__ import annotations

import errno
import math
import socket
from typing import Final, Literal

import trio

from flowjoin._certificates.files import TlsSource
from flowjoin._certificates.identity import identity_of
from flowjoin._collector.config import CollectorConfig
from flowjoin._collector.handshakes import Handshakes
from flowjoin._collector.intake import Intake
from flowjoin._collector.metrics import CollectorCounters, CollectorStatistics
from flowjoin._collector.peers import peer_text
from flowjoin._collector.sockets import bound_address
from flowjoin._collector.tls_stream import TlsReceiveStream
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
_CLOSING_SECONDS: Final = 1.0  # for what TLS says at the end to a peer that does not read
_DRAIN_SECONDS: Final = 1.0  # and who never stops talking is not heard longer than this


class TcpCollectingProcess:
    """Accepts connections at one bound, listening TCP socket and reads from them; over TLS where it is given."""

    def __init__(
        self,
        config: CollectorConfig,
        intake: Intake,
        bound: socket.socket,
        *,
        tls: TlsSource | None = None,
    ) -> None:
        """Take over a listening socket; ``close`` is the caller's duty. ``tls`` is asked before each handshake."""
        self._limits = config.limits
        self._intake = intake
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
        self.address: Final = bound_address(bound)
        self._counters = CollectorCounters()
        self._accepting = trio.CancelScope()
        self._last_read_at = math.inf  # set when the intake stops
        self._reading: set[trio.CancelScope] = set()
        self._connections = 0  # those whose handshake is not over included
        self._handshakes = (
            None
            if tls is None
            else Handshakes(tls, self._limits, self._counters, intake.log, address=str(self.address))
        )

    @property
    def _protocol(self) -> Literal["tcp", "tls"]:
        return "tcp" if self._handshakes is None else "tls"

    @property
    def _is_stopping(self) -> bool:
        return self._last_read_at < math.inf

    def configure(self) -> None:
        """Nothing to ask for: TCP's own flow control bounds what the kernel holds."""

    def close(self) -> None:
        self._listener.socket.close()

    def statistics(self) -> CollectorStatistics:
        handshakes = self._handshakes
        if handshakes is None:
            return self._counters.snapshot(protocol="tcp", address=str(self.address), sessions=self._connections)
        return self._counters.snapshot(
            protocol="tls",
            address=str(self.address),
            sessions=self._connections - len(handshakes),
            handshakes=len(handshakes),
            certificate_expires=handshakes.expires,
        )

    def stop_intake(self) -> None:
        """Accept nobody any more, read what has arrived, then let ``run`` return."""
        now = trio.current_time()
        self._last_read_at = now + _DRAIN_SECONDS
        self._accepting.cancel()
        if self._handshakes is not None:
            self._handshakes.stop()
        for scope in self._reading:
            scope.deadline = min(scope.deadline, now + _QUIET_SECONDS)

    async def run(self, *, task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and read until stopped or cancelled."""
        async with trio.open_nursery() as connections:
            task_status.started(self.address)
            with self._accepting:
                while True:
                    if self._handshakes is not None:
                        await self._handshakes.wait_place()
                    stream = await self._accept()
                    if stream is not None:
                        place = None if self._handshakes is None else self._handshakes.enter()
                        connections.start_soon(self._serve_socket, stream, place)
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

    async def _serve_socket(self, stream: trio.SocketStream, place: trio.CancelScope | None) -> None:
        try:
            # A peer whose machine is gone says nothing for ever.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            peer, local = stream.socket.getpeername(), stream.socket.getsockname()
        except OSError:  # it was gone before we looked
            self._counters.connections_reset += 1
            self._connections -= 1
            if self._handshakes is not None and place is not None:
                self._handshakes.leave(place)
            await trio.aclose_forcefully(stream)
            return
        served: trio.abc.ReceiveStream = stream
        identity = None
        if self._handshakes is not None and place is not None:
            tls = await self._shake_hands(self._handshakes, stream, place, peer)
            if tls is None:
                return
            served, identity = tls, identity_of(tls.peer_certificate)
        self._counters.sessions_opened += 1
        session = TransportSession(
            protocol=self._protocol,
            peer=peer_text(peer[0]),
            peer_port=peer[1],
            local=peer_text(local[0]),
            local_port=local[1],
            identity=identity,
            serial=self._counters.sessions_opened,
        )
        await self.serve(served, session)

    async def _shake_hands(
        self, handshakes: Handshakes, stream: trio.SocketStream, place: trio.CancelScope, peer: tuple[str, int]
    ) -> TlsReceiveStream | None:
        admitted = None
        try:
            admitted = await handshakes.admit(place, stream, peer=peer_text(peer[0]), port=peer[1])
            return admitted
        finally:
            if admitted is None:
                self._connections -= 1
                await trio.aclose_forcefully(stream)

    async def serve(self, stream: trio.abc.ReceiveStream, session: TransportSession) -> None:
        """Read one connection to its end, then close it and its session."""
        cause = ""
        try:
            cause = await self._read(stream, session)
        finally:
            self._connections -= 1
            self._intake.close_session(session)
            if cause in _PROPER_ENDS:
                with trio.move_on_after(_CLOSING_SECONDS):
                    await stream.aclose()
            else:
                await trio.aclose_forcefully(stream)
        report = self._intake.log.info if cause in _PROPER_ENDS else self._intake.log.warning
        report(
            "connection_closed",
            address=str(self.address),
            original_exporter=session.peer,
            port=session.peer_port,
            cause=cause,
            **({} if session.identity is None else {"identity": session.identity}),
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
