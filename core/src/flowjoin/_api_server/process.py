"""The HTTP server: hypercorn's connections on listeners of our own, which bound what a client can hold.

hypercorn writes to a client in a shielded scope, so that no reply is cut in the middle of a piece. One that does not
read would hold the program back at its end: therefore each piece has a deadline in the stream itself, and at the end
every connection is closed under whoever waits for it. What fails in one connection ends that connection.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.logging import Logger as HypercornLogger
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from flowjoin._api_server.access import Access
from flowjoin._api_server.app import HttpApi, Scope
from flowjoin._api_server.config import ApiServerConfig, ApiServerLimits
from flowjoin._api_server.figures import Figures
from flowjoin._api_server.places import Places
from flowjoin._certificates.files import TlsSource
from flowjoin._certificates.identity import identity_of
from flowjoin._config.endpoint import Endpoint
from flowjoin._model.errors import BindError, ConfigError
from flowjoin.api._cluster import User
from flowjoin.api._types import Logger

__all__ = ["ApiServer", "open_api_server"]

_BACKLOG: Final = 128
_REVIEW_SECONDS: Final = 10.0
_ACCEPT_PAUSE_SECONDS: Final = 0.2  # without file descriptors: until somebody gives some back

Receive = Callable[[], Awaitable[dict[str, Any]]]


class ApiServer:
    """Listens; ``run`` answers."""

    def __init__(
        self,
        listeners: Sequence[trio.SocketListener],
        api: HttpApi,
        limits: ApiServerLimits,
        log: Logger,
        count_cut: Callable[[str], object],
        tls: TlsSource | None = None,
    ) -> None:
        self._listeners = listeners
        self._api = api
        self._limits = limits
        self._log = log
        self._tls = tls
        self._count_cut = count_cut
        self._places = Places(limits.connections, partial(count_cut, "silent"))

    @property
    def addresses(self) -> tuple[Endpoint, ...]:
        """Where it listens, with the ports it has."""
        names = [listener.socket.getsockname() for listener in self._listeners]
        return tuple(Endpoint(host=name[0], port=name[1]) for name in names)

    async def run(self) -> None:
        """Answer until cancelled; what is being answered then is cut."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._close_at_the_end)
            context = WorkerContext(None)
            for listener in self._listeners:
                nursery.start_soon(self._accept, listener, context, nursery)

    async def _close_at_the_end(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._places.close()

    async def _accept(self, listener: trio.SocketListener, context: WorkerContext, nursery: trio.Nursery) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError as exc:
                self._log.warning("api_accept_failed", problem=os.strerror(exc.errno or 0))
                await trio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            try:
                life = await self._places.take(stream)
            except BaseException:
                stream.socket.close()
                raise
            nursery.start_soon(self._serve, stream, life, context)

    async def _serve(self, stream: trio.SocketStream, life: trio.CancelScope, context: WorkerContext) -> None:
        life.deadline = trio.current_time() + self._limits.connection_seconds
        try:
            with life:
                await self._talk(stream, context)
        except* (trio.ClosedResourceError, trio.BrokenResourceError):
            pass  # it left, or the end has come
        except* Exception as group:  # noqa: BLE001 - hypercorn's code, on what anybody sends
            self._log.error("api_connection_failed", exc_info=group)
        finally:
            self._places.leave(stream)
            stream.socket.close()

    async def _talk(self, stream: trio.SocketStream, context: WorkerContext) -> None:
        served, identity = await self._shake_hands(stream)
        if served is None:
            return

        def cut() -> None:
            self._count_cut("slow")
            self._places.end(stream)

        patient = _PatientStream(served, stream.socket, self._limits, cut)
        config = _Config(self._limits, self._log)
        answer = partial(self._answer, stream, identity)
        server = TCPServer(answer, config, context, ConnectionState({}), patient)  # type: ignore[arg-type]  # as much of a stream as it uses
        await server.run()

    async def _shake_hands(
        self, stream: trio.SocketStream
    ) -> tuple[trio.SocketStream | trio.SSLStream[trio.SocketStream] | None, str | None]:
        """The stream to speak HTTP over, and the name in the client's certificate; None when TLS fails."""
        if self._tls is None:
            return stream, None
        current = self._tls.current
        if current is None:
            return None, None
        secure = trio.SSLStream(stream, current.context, server_side=True, https_compatible=True)
        with trio.move_on_after(self._limits.idle_seconds):
            try:
                await secure.do_handshake()
            except trio.BrokenResourceError as exc:
                cause = exc.__cause__
                reason = cause.reason if isinstance(cause, ssl.SSLError) else None
                self._log.debug("api_handshake_failed", problem=(reason or "it left").lower().replace("_", " "))
                return None, None
            # OpenSSL's object, not trio's stream, knows the certificate; trio forwards to it what it does not have.
            return secure, identity_of(secure.getpeercert() or None)
        return None, None

    async def _answer(
        self,
        stream: trio.SocketStream,
        identity: str | None,
        scope: Scope,
        receive: Receive,
        send: Any,
        *_threads: object,
    ) -> None:
        """What hypercorn calls for each request; hypercorn's own types for it are wider than ours: Any."""
        if scope["type"] != "http":
            return  # a WebSocket, which hypercorn then refuses
        self._places.asks(stream)
        try:
            await self._answer_http(identity, scope, receive, send)
        finally:
            self._places.is_answered(stream)

    async def _answer_http(self, identity: str | None, scope: Scope, receive: Receive, send: Any) -> None:
        is_gone = False

        async def discard_body() -> None:
            # A body that nobody takes would block hypercorn's reading, and with it the end of the reply.
            nonlocal is_gone
            while (await receive())["type"] != "http.disconnect":
                pass
            is_gone = True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(discard_body)
            peer = (scope.get("client") or ("",))[0].removeprefix("::ffff:")  # IPv4 at a socket of both families
            await self._api.answer(scope, send, lambda: is_gone, peer=peer, identity=identity)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_api_server(config: ApiServerConfig, figures: Figures, *, log: Logger) -> AsyncIterator[ApiServer]:
    """Listen; whoever runs it answers.

    Raises:
        BindError: the address cannot be had.
        ConfigError: the name stands for an address that others reach.
    """
    is_guarded = config.access.is_required and config.tls is not None
    listeners = await _open_listeners(config.endpoint, is_for_others=is_guarded)
    try:
        access = Access(config.access, log, clock=trio.current_time, bound=_in_time)
        api = HttpApi(figures, config.limits, give_way=_Turns().take, access=access, clock=trio.current_time)
        yield ApiServer(listeners, api, config.limits, log, figures.count_cut, config.tls)
    finally:
        for listener in listeners:
            listener.socket.close()


async def _in_time(review: Awaitable[User | bool | None]) -> User | bool | None:
    with trio.fail_after(_REVIEW_SECONDS):
        return await review


async def _open_listeners(endpoint: Endpoint, *, is_for_others: bool) -> list[trio.SocketListener]:
    try:
        if endpoint.host == "::":
            listeners = [_open_everywhere(endpoint.port)]
        else:
            listeners = await trio.open_tcp_listeners(endpoint.port, host=endpoint.host, backlog=_BACKLOG)
    except OSError as exc:
        in_use = exc.errno == errno.EADDRINUSE
        cause = "is in use; stop what uses it, or give another" if in_use else f"cannot be had: {exc.strerror or exc}"
        raise BindError(f"apiServer.address: {endpoint} {cause}", address=str(endpoint)) from exc
    for listener in listeners:
        host = listener.socket.getsockname()[0]
        if not is_for_others and not Endpoint(host=host, port=endpoint.port).is_loopback:
            for each in listeners:
                each.socket.close()
            raise ConfigError(f"{endpoint.host} is {host} here, which others reach", path="apiServer.address")
    return listeners


def _open_everywhere(port: int) -> trio.SocketListener:
    """One socket for both families: trio's own at "::" would refuse IPv4, which most Pods' addresses are."""
    try:
        opened = socket.create_server(("::", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
    except (OSError, ValueError) as exc:  # ValueError: this machine cannot have both families in one socket
        if isinstance(exc, OSError) and exc.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
        opened = socket.create_server(("0.0.0.0", port), backlog=_BACKLOG)  # noqa: S104 - the operator asked for all
    return trio.SocketListener(trio.socket.from_stdlib_socket(opened))


class _Turns:
    """Long replies take turns, so that between two slices of any of them everybody else has had theirs."""

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def take(self) -> None:
        """Wait for the next turn."""
        async with self._lock:
            await trio.lowlevel.checkpoint()


class _PatientStream:
    """A stream, as far as hypercorn uses one, whose peer must read each piece in time.

    It is read in pieces as large as a request may be, because hypercorn's limit holds for what is still incomplete.
    """

    def __init__(
        self,
        stream: trio.SocketStream | trio.SSLStream[trio.SocketStream],
        connected: trio.socket.SocketType,
        limits: ApiServerLimits,
        cut: Callable[[], object],
    ) -> None:
        self._stream = stream
        self.socket = connected
        self._limits = limits
        self._cut = cut

    async def receive_some(self, _max_octets: int) -> bytes | bytearray:
        return await self._stream.receive_some(self._limits.request_octets)

    async def send_all(self, data: bytes) -> None:
        with trio.move_on_after(self._limits.send_seconds) as patience:
            await self._stream.send_all(data)
        if patience.cancelled_caught:
            self._cut()
            self.socket.close()  # in the middle of the reply, which must not be taken for a whole one
            raise trio.BrokenResourceError("the client does not read")

    async def send_eof(self) -> None:
        if isinstance(self._stream, trio.SocketStream):  # TLS has no half-closed connections
            await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Log(HypercornLogger):
    """hypercorn's log, in ours: only what went wrong in it."""

    def __init__(self, log: Logger) -> None:
        self._log = log

    async def access(self, *_facts: Any, **_more: Any) -> None:
        await trio.lowlevel.checkpoint()

    async def exception(self, message: str, *_arguments: Any, **_more: Any) -> None:
        self._log.error("api_request_failed", problem=message, exc_info=True)
        await trio.lowlevel.checkpoint()

    async def error(self, message: str, *_arguments: Any, **_more: Any) -> None:
        self._log.error("api_failed", problem=message)
        await trio.lowlevel.checkpoint()

    critical = error

    async def warning(self, message: str, *_arguments: Any, **_more: Any) -> None:
        self._log.warning("api_warning", problem=message)
        await trio.lowlevel.checkpoint()

    async def info(self, *_facts: Any, **_more: Any) -> None:
        await trio.lowlevel.checkpoint()

    debug = info


class _Config(HypercornConfig):
    """hypercorn's settings."""

    def __init__(self, limits: ApiServerLimits, log: Logger) -> None:
        self._log = _Log(log)
        self.h11_max_incomplete_size = limits.request_octets
        self.keep_alive_timeout = limits.idle_seconds
        self.include_server_header = False
