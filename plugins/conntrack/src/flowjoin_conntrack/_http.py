"""One GET over trio: HTTP/1.1 by h11, TLS verified, bounded in time and size, left at any octet."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import h11
import trio

__all__ = ["Answer", "HttpTrouble", "Target", "get", "target_of"]

_PIECE: Final = 64 * 1024


class HttpTrouble(Exception):
    """No answer, or none that is HTTP; its text is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a URL says."""

    is_tls: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """As it stands in the Host header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether what is sent stays on this host."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer."""

    status: int
    etag: str
    body: bytes


def target_of(url: str) -> Target:
    """Read a URL.

    Raises:
        ValueError: it is none that can be asked.
    """
    parts = urlsplit(url)  # raises ValueError for addresses that are none
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.fragment:
        raise ValueError("no such URL")
    is_tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or not path.isprintable() or " " in path:
        raise ValueError("no such URL")
    return Target(is_tls=is_tls, host=parts.hostname, port=parts.port or (443 if is_tls else 80), path=path)


async def get(
    target: Target, tls: Callable[[], ssl.SSLContext], headers: Sequence[tuple[str, str]], *, most_octets: int
) -> Answer:
    """Ask, over a connection for this alone; the caller sets the time.

    Args:
        target: what is asked for.
        tls: makes the context of a connection; blocking, for it reads files.
        headers: beside Host.
        most_octets: of the body.

    Raises:
        HttpTrouble: no answer comes, or none that is HTTP, or one that is too long.
    """
    stream: trio.abc.Stream | None = None
    try:
        stream = await trio.open_tcp_stream(target.host, target.port)
        if target.is_tls:
            context = await trio.to_thread.run_sync(tls)
            stream = secured = trio.SSLStream(stream, context, server_hostname=target.host, https_compatible=True)
            await secured.do_handshake()
        return await _exchange(stream, target, headers, most_octets)
    except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as exc:
        raise HttpTrouble(f"{target.authority} cannot be reached: {_cause(exc)}") from exc
    except h11.RemoteProtocolError as exc:
        raise HttpTrouble(f"{target.authority} broke off, or does not speak HTTP: {exc}") from exc
    finally:
        if stream is not None:
            await trio.aclose_forcefully(stream)


async def _exchange(
    stream: trio.abc.Stream, target: Target, headers: Sequence[tuple[str, str]], most_octets: int
) -> Answer:
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_PIECE)
    try:
        request = h11.Request(
            method="GET", target=target.path, headers=[("Host", target.authority), ("Connection", "close"), *headers]
        )
    except h11.LocalProtocolError:  # its text would show the token
        raise HttpTrouble("the request cannot be sent: the token has characters that are not allowed") from None
    await stream.send_all((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
    head: h11.Response | None = None
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(_PIECE)))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > most_octets:
                raise HttpTrouble(f"{target.authority}'s answer is longer than {most_octets} octets")
        elif isinstance(event, h11.EndOfMessage):
            break
        elif not isinstance(event, h11.InformationalResponse):
            raise HttpTrouble(f"{target.authority} closed the connection before it answered")
    assert head is not None, "h11 gives a head before an end"
    etag = next((value.decode("latin-1") for name, value in head.headers if name.lower() == b"etag"), "")
    return Answer(status=head.status_code, etag=etag, body=bytes(body))


def _cause(exc: BaseException) -> str:
    """The innermost reason: trio wraps what the system and TLS say."""
    while exc.__cause__ is not None:
        exc = exc.__cause__
    if isinstance(exc, BaseExceptionGroup):  # one for each address of a name
        first = exc.exceptions[0]
        if isinstance(first, OSError) and first.errno:
            return os.strerror(first.errno)  # its own text says the address once more
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {exc.verify_message}"
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return str(exc) or type(exc).__name__
