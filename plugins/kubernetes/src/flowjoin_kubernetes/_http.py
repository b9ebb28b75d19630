"""HTTP/1.1 over trio: one connection to the API server, whose answers can be left at any octet.

The official client blocks a thread in each watch, and no thread can be cancelled. This waits in trio alone, so whatever
is going on ends at once; h11 does the protocol.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import IPPROTO_TCP, SO_KEEPALIVE, SOL_SOCKET
from typing import Final

import h11
import trio

from flowjoin_kubernetes._threads import in_thread

__all__ = ["Connection", "Endpoint", "HttpTrouble", "Proxy", "Response", "open_connection"]

CONNECT_SECONDS: Final = 10.0
HEADER_SECONDS: Final = 60.0  # a server that is busy with a large list answers late
_PIECE: Final = 64 * 1024
# A server whose machine is gone says nothing more: found out after 30 + 3 * 10 s.
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class HttpTrouble(Exception):
    """The server cannot be reached, went away, or does not speak HTTP; its text is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An HTTP proxy on the way to the server.

    Attributes:
        authorization: what its users show; never printed.
    """

    host: str
    port: int
    authorization: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the server is.

    Attributes:
        tls: makes the context of a connection; blocking, for it reads files; None for plain HTTP.
        server_name: what its certificate is verified for.
    """

    host: str
    port: int
    server_name: str
    tls: Callable[[], ssl.SSLContext] | None
    proxy: Proxy | None = None

    @property
    def authority(self) -> str:
        """As it stands in the Host header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Response:
    """An answer whose body is still to be read."""

    def __init__(self, connection: Connection, head: h11.Response) -> None:
        self.status = head.status_code
        self._headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers}
        self._connection = connection

    def header(self, name: str) -> str:
        """The last header of that name; empty without one."""
        return self._headers.get(name.lower(), "")

    async def next_piece(self) -> bytes:
        """The next octets of the body; none at its end.

        Raises:
            HttpTrouble: it ends before its end.
        """
        event = await self._connection.next_event()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def read(self, most_octets: int) -> bytes:
        """The whole body.

        Raises:
            HttpTrouble: it ends before its end, or is longer than ``most_octets``.
        """
        body = bytearray()
        while piece := await self.next_piece():
            body += piece
            if len(body) > most_octets:
                raise HttpTrouble(f"the server's answer is longer than {most_octets} octets")
        return bytes(body)


class Connection:
    """One connection; an answer is read to its end before the next request."""

    def __init__(self, stream: trio.abc.Stream, authority: str) -> None:
        self._stream = stream
        self._authority = authority
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_PIECE)

    @property
    def is_reusable(self) -> bool:
        """Whether another request can follow."""
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def get(self, target: str, headers: Sequence[tuple[str, str]]) -> Response:
        """Send a GET request, wait for the head of its answer.

        Raises:
            HttpTrouble: no answer comes, or none that is HTTP.
        """
        return await self.request("GET", target, headers)

    async def request(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes = b""
    ) -> Response:
        """Send a request, wait for the head of its answer.

        Raises:
            HttpTrouble: no answer comes, or none that is HTTP.
        """
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        try:
            request = h11.Request(method=method, target=target, headers=[("Host", self._authority), *headers])
        except h11.LocalProtocolError:  # its text would show the token
            raise HttpTrouble("the request cannot be sent: a name or the token has characters not allowed") from None
        events = (request, h11.Data(body), h11.EndOfMessage()) if body else (request, h11.EndOfMessage())
        octets = b"".join([self._http.send(event) or b"" for event in events])
        try:
            with trio.fail_after(HEADER_SECONDS):
                await self._stream.send_all(octets)
                event = await self.next_event()
                while isinstance(event, h11.InformationalResponse):
                    event = await self.next_event()
        except trio.TooSlowError:
            raise HttpTrouble(f"the server did not answer within {HEADER_SECONDS:g} s") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as exc:
            raise HttpTrouble(f"the connection broke: {_cause(exc)}") from exc
        assert isinstance(event, h11.Response), "h11 gives a head before anything else"
        return Response(self, event)

    async def next_event(self) -> h11.Event:
        """What comes next of the answer.

        Raises:
            HttpTrouble: the connection breaks, or what comes is no HTTP.
        """
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(bytes(await self._stream.receive_some(_PIECE)))
        except h11.RemoteProtocolError as exc:
            raise HttpTrouble(f"the server broke off: {exc}") from exc
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as exc:
            raise HttpTrouble(f"the connection broke: {_cause(exc)}") from exc
        if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            raise HttpTrouble("the server closed the connection before it answered")
        assert not isinstance(event, type), "need and pause were dealt with"
        await trio.lowlevel.checkpoint_if_cancelled()
        return event


@asynccontextmanager
async def open_connection(endpoint: Endpoint) -> AsyncIterator[Connection]:
    """Connect; on leaving the connection is closed at once, with nothing waited for.

    Raises:
        HttpTrouble: the server cannot be reached, or its certificate is not what was expected.
    """
    stream: trio.abc.Stream | None = None
    try:
        try:
            with trio.fail_after(CONNECT_SECONDS):
                first = endpoint.proxy or endpoint
                stream = socket_stream = await trio.open_tcp_stream(first.host, first.port)
                socket_stream.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
                for name, value in _KEEP_ALIVE:
                    if hasattr(trio.socket, name):
                        socket_stream.setsockopt(IPPROTO_TCP, getattr(trio.socket, name), value)
                if endpoint.proxy is not None:
                    await _pass_through(stream, endpoint.authority, endpoint.proxy)
                if endpoint.tls is not None:
                    context = await in_thread(endpoint.tls)
                    tls = trio.SSLStream(stream, context, server_hostname=endpoint.server_name, https_compatible=True)
                    stream = tls
                    await tls.do_handshake()
        except trio.TooSlowError:
            raise HttpTrouble(f"{endpoint.authority} did not take a connection within {CONNECT_SECONDS:g} s") from None
        except (trio.BrokenResourceError, OSError) as exc:
            raise HttpTrouble(f"no connection to {endpoint.authority}: {_cause(exc)}") from exc
        except h11.RemoteProtocolError as exc:
            raise HttpTrouble(f"the proxy does not speak HTTP: {exc}") from exc
        yield Connection(stream, endpoint.authority)
    finally:
        if stream is not None:
            await trio.aclose_forcefully(stream)


async def _pass_through(stream: trio.abc.Stream, authority: str, proxy: Proxy) -> None:
    """Have the proxy connect to the server (RFC 9110 section 9.3.6).

    Raises:
        HttpTrouble: it will not.
        h11.RemoteProtocolError: it does not speak HTTP.
    """
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_PIECE)
    headers = [("Host", authority)]
    if proxy.authorization:
        headers.append(("Proxy-Authorization", proxy.authorization))
    request = h11.Request(method="CONNECT", target=authority, headers=headers)
    await stream.send_all((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
    while (event := http.next_event()) is h11.NEED_DATA or isinstance(event, h11.InformationalResponse):
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(_PIECE)))
    if not isinstance(event, h11.Response) or not 200 <= event.status_code < 300:
        status = event.status_code if isinstance(event, h11.Response) else "nothing"
        raise HttpTrouble(f"the proxy {proxy.host}:{proxy.port} answers {status}")


def _cause(exc: BaseException) -> str:
    """The innermost reason: trio wraps what the system and TLS say."""
    while exc.__cause__ is not None:
        exc = exc.__cause__
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {exc.verify_message}"
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return str(exc) or type(exc).__name__
