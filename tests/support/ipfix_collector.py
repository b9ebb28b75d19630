"""A collector for tests: it keeps what it was sent, and can be slow, stopped, or gone.

In a test's own trio, or as a process of its own that is told what to do by lines on its standard input.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, nullcontext
from dataclasses import dataclass, field

import trio
import trio.testing
from held_port import HeldPort

from flowjoin._model.transport_session import TransportSession
from flowjoin.api import ElementRegistry
from flowjoin.testing import every_data_type
from flowjoin.wire import (
    NEED_DATA,
    DataSetReceived,
    Decoder,
    MessageFramer,
    MessageReceived,
    SequenceGap,
    TemplateReceived,
    text_of,
)

_QUIET_SECONDS = 0.003
_RECEIVE_BUFFER = 32 * 1024 * 1024
REGISTRY: ElementRegistry = every_data_type().schema.registry


@dataclass
class Session:
    """What one connection, or one peer over UDP, has sent.

    Attributes:
        messages: as they came.
        events: of the decoder.
        lines: with JSON.
    """

    transport: TransportSession
    messages: list[bytes] = field(default_factory=list)
    events: list[object] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)

    @property
    def records(self) -> list[dict[str, object]]:
        return [
            {
                each.element.name: text_of(each.element, value) if isinstance(value, bytes) else value
                for each, value in zip(event.template.fields, values, strict=True)
            }
            for event in self.events
            if isinstance(event, DataSetReceived)
            for values in event.records
        ]

    @property
    def rows(self) -> int:
        return len(self.lines) + sum(len(each.records) for each in self.events if isinstance(each, DataSetReceived))

    @property
    def templates(self) -> list[int]:
        return [event.template.template_id for event in self.events if isinstance(event, TemplateReceived)]

    @property
    def kinds(self) -> Counter[str]:
        return Counter(type(event).__name__ for event in self.events)


@dataclass
class Collector:
    """One Collecting Process on loopback; it keeps its port when it stops and starts."""

    protocol: str = "tcp"
    host: str = "127.0.0.1"
    port: int = 0
    is_json: bool = False
    tls: ssl.SSLContext | None = None
    sessions: list[Session] = field(default_factory=list)
    reading: trio.Event = field(default_factory=trio.Event)
    _stop: trio.CancelScope = field(default_factory=trio.CancelScope)
    _stopped: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        self.reading.set()

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def records(self) -> list[dict[str, object]]:
        return [record for session in self.sessions for record in session.records]

    async def count(self) -> int:
        """Rows so far; reads what the system holds first."""
        await trio.testing.wait_all_tasks_blocked(_QUIET_SECONDS)
        return sum(session.rows for session in self.sessions)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self._stop, self._stopped = trio.CancelScope(), trio.Event()
        try:
            with self._stop:
                await (self._run_udp if self.protocol == "udp" else self._run_tcp)(task_status)
        finally:
            self._stopped.set()

    async def stop(self) -> None:
        """Read what has arrived, then close the listener and every connection."""
        await trio.testing.wait_all_tasks_blocked(_QUIET_SECONDS)
        self._stop.cancel()
        await self._stopped.wait()

    @asynccontextmanager
    async def down(self, nursery: trio.Nursery) -> AsyncIterator[None]:
        await self.stop()
        with closing(HeldPort(self.port)) if self.protocol == "tcp" else nullcontext():
            try:
                yield
            finally:
                with trio.CancelScope(shield=True):
                    await nursery.start(self.run)

    async def _run_tcp(self, task_status: trio.TaskStatus[None]) -> None:
        (listener,) = await trio.open_tcp_listeners(self.port, host=self.host)
        self.port = listener.socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            task_status.started()
            await trio.serve_listeners(self._serve, [listener], handler_nursery=nursery)

    async def _serve(self, stream: trio.SocketStream) -> None:
        peer = stream.socket.getpeername()
        session = self._session("tcp", peer[0], peer[1])
        framer, decoder = MessageFramer(), Decoder(REGISTRY)
        used = trio.SSLStream(stream, self.tls, server_side=True) if self.tls is not None else stream
        rest = b""
        async with used:
            try:
                while True:
                    await self.reading.wait()
                    data = await used.receive_some(32768)
                    if not data:
                        return
                    if self.is_json:
                        *lines, rest = (rest + data).split(b"\n")
                        session.lines += lines
                        continue
                    framer.receive_data(data)
                    while (message := framer.next_message()) is not NEED_DATA:
                        self._take(session, bytes(message), decoder)
            except trio.BrokenResourceError:
                return

    async def _run_udp(self, task_status: trio.TaskStatus[None]) -> None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with trio.socket.socket(family, socket.SOCK_DGRAM) as bound:
            _enlarge(bound)
            await bound.bind((self.host, self.port))
            self.port = bound.getsockname()[1]
            task_status.started()
            decoder = Decoder(REGISTRY)
            known: dict[object, Session] = {}
            while True:
                data, peer = await bound.recvfrom(65535)
                session = known.get(peer)
                if session is None:
                    session = known[peer] = self._session("udp", peer[0], peer[1])
                if self.is_json:
                    session.lines.append(data)
                else:
                    self._take(session, data, decoder)

    def _session(self, protocol: str, host: str, port: int) -> Session:
        session = Session(
            TransportSession(protocol=protocol, peer=host, peer_port=port, serial=len(self.sessions))  # type: ignore[arg-type]
        )
        self.sessions.append(session)
        return session

    def _take(self, session: Session, message: bytes, decoder: Decoder) -> None:
        session.messages.append(message)
        events = decoder.receive_message(message, session.transport, 0.0)
        for event in events:
            assert isinstance(event, MessageReceived | TemplateReceived | DataSetReceived | SequenceGap), event
        session.events += events


def _enlarge(bound: trio.socket.SocketType) -> None:
    """Room for every datagram of a test, as far as we may: a busy machine lets a collector wait."""
    try:
        bound.setsockopt(socket.SOL_SOCKET, 33, _RECEIVE_BUFFER)  # SO_RCVBUFFORCE, for root
    except OSError:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)


async def main() -> None:
    """Serve as the first argument says (JSON: a Collector's settings); one answer to a line, which is a command."""
    settings = json.loads(sys.argv[1])
    if certificate := settings.pop("certificate", None):
        settings["tls"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        settings["tls"].load_cert_chain(certificate)
    if client_ca := settings.pop("client_ca", None):
        settings["tls"].load_verify_locations(client_ca)
        settings["tls"].verify_mode = ssl.CERT_REQUIRED
    collector = Collector(**settings)
    commands = trio.lowlevel.FdStream(0)
    async with trio.open_nursery() as nursery:
        await nursery.start(collector.run)
        print(collector.port, flush=True)
        while line := await commands.receive_some(100):
            match line.strip():
                case b"count":
                    print(await collector.count(), flush=True)
                case b"distinct":
                    await collector.count()
                    print(len({str(record) for record in collector.records}), flush=True)
                case b"stop":
                    await collector.stop()
                    print("stopped", flush=True)
                case b"start":
                    await nursery.start(collector.run)
                    print("started", flush=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
