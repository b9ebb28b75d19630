"""A collector over TCP, or TLS over TCP.

A task reads for as long as the connection lives, because that is how one learns that the collector is gone. What was
sent counts as delivered when the send queue is empty: the collector's system has acknowledged every octet. That is
not yet the collector itself, which is why the exporter keeps the last seconds for another connection.
"""

from __future__ import annotations

import fcntl
import select
import socket
import ssl
import struct
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from flowjoin_ipfix._client import ConnectionLost, cause_of
from flowjoin_ipfix._config import Address

__all__ = ["StreamConnection", "connect_stream"]

_PIECE_OCTETS: Final = 64 * 1024  # a slow collector must be able to take one within the send timeout
_FIRST_POLL_SECONDS: Final = 0.0005
_LONGEST_POLL_SECONDS: Final = 0.05
_GOODBYE_SECONDS: Final = 2.0
_VERDICT_SECONDS: Final = (0.1, 1.0)  # at least, at most
_HANDSHAKES: Final = 3  # which the verdict has time for
_KEEPALIVE_SECONDS: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_MAX_MESSAGE: Final = 65535


class _HeardStream(trio.abc.Stream):
    """Passes everything on, and lets one wait for the next octets that come in."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.heard = trio.Event()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._stream.receive_some(max_bytes)
        self.heard.set()
        return data

    async def aclose(self) -> None:
        await self._stream.aclose()


class StreamConnection:
    """One connection."""

    is_stream: Final = True
    limit: Final = _MAX_MESSAGE
    packing: Final = _MAX_MESSAGE

    def __init__(
        self,
        stream: trio.abc.Stream,
        raw: trio.SocketStream,
        *,
        send_timeout: float,
        progressed: Callable[[], object],
    ) -> None:
        """Take what is connected.

        Args:
            stream: what is written to: TLS, or ``raw`` itself.
            send_timeout: seconds in which the collector must take something.
            progressed: is told when it did.
        """
        self._stream = stream
        self._socket = raw.socket
        self._send_timeout = send_timeout
        self._progressed = progressed
        self._watching = trio.CancelScope()
        self._lost = trio.Event()
        self._loss = ConnectionLost("")
        self._hang_ups = select.poll()
        self._hang_ups.register(self._socket.fileno(), _HANG_UP)
        self.peer = _address_text(self._socket.getpeername())

    async def watch(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read until the collector closes; what it says is not for us."""
        with self._watching:
            task_status.started()
            try:
                while await self._stream.receive_some(65536):
                    pass
                self._lose(ConnectionLost("the collector closed the connection", closed_at=trio.current_time()))
            except trio.BrokenResourceError as exc:
                self._lose(ConnectionLost(f"the connection broke: {cause_of(exc)}"))
            except trio.ClosedResourceError:
                pass  # by us

    async def wait_refused(self) -> None:
        await trio.lowlevel.checkpoint()
        self.check()

    def check(self) -> None:
        if self._lost.is_set():
            raise self._loss
        # The watching task may not have run since the collector's last word came in.
        if self._hang_ups.poll(0):
            self._lose(ConnectionLost("the collector closed the connection", closed_at=trio.current_time()))
            raise self._loss

    async def send(self, octets: bytes) -> None:
        view = memoryview(octets)
        for at in range(0, len(view), _PIECE_OCTETS):
            self.check()
            try:
                with trio.fail_after(self._send_timeout):
                    await self._stream.send_all(view[at : at + _PIECE_OCTETS])
                self._progressed()
            except trio.TooSlowError:
                raise self._stalled() from None
            except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                raise ConnectionLost(f"the connection broke: {cause_of(exc)}") from exc

    async def wait_delivered(self) -> None:
        waiting = self._unacknowledged()
        progress_at, pause = trio.current_time(), _FIRST_POLL_SECONDS
        while waiting:
            with trio.move_on_after(pause):
                await self._lost.wait()
            self.check()
            now = self._unacknowledged()
            if now < waiting:
                progress_at, pause = trio.current_time(), _FIRST_POLL_SECONDS
                self._progressed()
            elif trio.current_time() - progress_at > self._send_timeout:
                raise self._stalled()
            waiting, pause = now, min(2 * pause, _LONGEST_POLL_SECONDS)
        await trio.lowlevel.checkpoint()
        self.check()

    async def aclose(self) -> None:
        self._watching.cancel()
        with trio.move_on_after(_GOODBYE_SECONDS), suppress(trio.BrokenResourceError):  # it may be gone already
            await self._stream.aclose()
        self._socket.close()

    def abort(self) -> None:
        self._watching.cancel()
        self._socket.close()

    def _lose(self, loss: ConnectionLost) -> None:
        if not self._lost.is_set():
            self._loss = loss
            self._lost.set()

    def _stalled(self) -> ConnectionLost:
        return ConnectionLost(f"the collector took nothing for {self._send_timeout:g} s")

    def _unacknowledged(self) -> int:
        """Octets in the send queue that the collector's system has not acknowledged (SIOCOUTQ)."""
        if sys.platform != "linux":
            return 0  # other systems do not tell; what was written counts then
        try:
            octets: int = struct.unpack("i", fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
        except OSError as exc:
            raise ConnectionLost(f"the connection broke: {cause_of(exc)}") from exc
        return octets


async def connect_stream(
    address: Address,
    nursery: trio.Nursery,
    *,
    context: ssl.SSLContext | None,
    server_name: str,
    send_timeout: float,
    progressed: Callable[[], object],
) -> StreamConnection:
    """Resolve the name, connect, and shake hands if there is a TLS context.

    Args:
        nursery: in which the connection is watched.
        progressed: is told when the collector took something.

    Raises:
        ConnectionLost: the collector cannot be reached, or one of us refuses the other.
    """
    try:
        raw = await trio.open_tcp_stream(address.host, address.port)
    except (OSError, UnicodeError) as exc:  # a resolver's own idea of what a name is
        raise ConnectionLost(f"cannot connect to {address}: {cause_of(exc)}") from exc
    try:
        if raw.socket.getsockname() == raw.socket.getpeername():
            # Nobody listens at a port of this machine, and the system chose it for ours: TCP connects it to itself
            # (RFC 9293 section 3.5, simultaneous open), and would acknowledge every row.
            raise ConnectionLost(f"cannot connect to {address}: nobody listens there")
        _keep_alive(raw)
        if context is None:
            connection = StreamConnection(raw, raw, send_timeout=send_timeout, progressed=progressed)
            await nursery.start(connection.watch)
            return connection
        transport = _HeardStream(raw)
        stream = trio.SSLStream(transport, context, server_hostname=server_name)
        began = trio.current_time()
        await stream.do_handshake()
        patience = _HANDSHAKES * (trio.current_time() - began)
        transport.heard = trio.Event()
        connection = StreamConnection(stream, raw, send_timeout=send_timeout, progressed=progressed)
        await nursery.start(connection.watch)
        if stream.version() == "TLSv1.3":
            # A server refuses our certificate after our handshake is done. It sends that, or a ticket for the next
            # session; most send one of both, and the rest is given a few round trips.
            with trio.move_on_after(min(max(patience, _VERDICT_SECONDS[0]), _VERDICT_SECONDS[1])):
                await transport.heard.wait()
        connection.check()
    except (trio.BrokenResourceError, OSError, UnicodeError) as exc:
        raw.socket.close()
        raise ConnectionLost(f"cannot connect to {address}: {cause_of(exc)}") from exc
    except BaseException:
        raw.socket.close()
        raise
    return connection


def _keep_alive(stream: trio.SocketStream) -> None:
    """Find out within half a minute that an idle collector's machine is gone; with data on its way we look ourselves.

    TCP_USER_TIMEOUT (RFC 5482) would overrule these probes and make half a minute a send timeout.
    """
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE_SECONDS.items():
        if hasattr(socket, name):
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _address_text(name: tuple[str, int]) -> str:
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_HANG_UP: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
