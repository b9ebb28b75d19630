"""An HTTP pool whose sockets another thread can end, so that a stalled request need not be waited for.

Each answer is read here, whole and bounded, and passed on only if ClickHouse may have given it: of a portal's page
with status 200 the library would say that the rows are stored.
"""

from __future__ import annotations

import io
import socket
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from clickhouse_connect.driver import httputil
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

__all__ = ["InterruptiblePool", "NoClickHouseError"]

SocketT = TypeVar("SocketT", bound=socket.socket)

_LONGEST_ANSWER: Final = 256 * 1024 * 1024  # octets; the longest that we ask for names each table of the server
_PIECE: Final = 1024 * 1024
_WORDS: Final = 8192
_SIGN: Final = "x-clickhouse-"
_UNREAD: Final = {"preload_content": False}


class NoClickHouseError(HTTPError):
    """ClickHouse gives no such answer."""


class InterruptiblePool:
    """Owns a pool manager and knows its open sockets.

    Attributes:
        words: how the last answer begins, up to 8192 octets.
    """

    def __init__(self, manager: PoolManager, answered: Callable[[], object]) -> None:
        """Take a manager that nothing was asked of yet, and who is told of each answer, in the thread of the call."""
        self.manager = manager
        self.words = b""
        self._answered = answered
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._is_interrupted = False
        pool = self

        class _Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                return pool._opened(super()._new_conn())

        class _Secure(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                return pool._opened(super()._new_conn())

            def connect(self) -> None:
                super().connect()
                self.is_verified = True  # as far as was asked for: what is not verified is said at start, once
                pool._opened(cast("socket.socket", self.sock))

        class _PlainPool(HTTPConnectionPool):
            ConnectionCls = _Plain

            def urlopen(self, *arguments: Any, **named: Any) -> BaseHTTPResponse:  # whatever the library gives
                return pool._heard(super().urlopen(*arguments, **{**named, **_UNREAD}), named)

        class _SecurePool(HTTPSConnectionPool):
            ConnectionCls = _Secure

            def urlopen(self, *arguments: Any, **named: Any) -> BaseHTTPResponse:  # the same, of another class
                return pool._heard(super().urlopen(*arguments, **{**named, **_UNREAD}), named)

        manager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}

    def interrupt(self) -> None:
        """End every request that is under way, and every one to come; from any thread."""
        self._is_interrupted = True
        for each in list(self._sockets):
            with suppress(OSError):  # closed, or never connected
                socket.socket.shutdown(each, socket.SHUT_RDWR)  # not SSLSocket's, which its own thread is using

    def close(self) -> None:
        """Close idle connections and leave the library's table of managers."""
        self.manager.clear()
        httputil.all_managers.pop(self.manager, None)

    def _opened(self, made: SocketT) -> SocketT:
        self._sockets.add(made)
        if self._is_interrupted:
            made.close()
            raise OSError("the exporter is being closed")
        return made

    def _heard(self, answer: BaseHTTPResponse, named: Mapping[str, Any]) -> BaseHTTPResponse:
        """The same answer, read to its end."""
        if 300 <= answer.status < 400:
            answer.close()
            elsewhere = answer.headers.get("Location", "").partition("?")[0]
            raise NoClickHouseError(f"redirected to {elsewhere}: write that into databaseURL")
        if answer.status < 300 and not any(name.lower().startswith(_SIGN) for name in answer.headers):
            answer.close()
            raise NoClickHouseError("answered as no ClickHouse does: look for a proxy or a portal in between")
        body = bytearray()
        while piece := answer.read(_PIECE, decode_content=False):
            body += piece
            if len(body) > _LONGEST_ANSWER:
                answer.close()
                raise NoClickHouseError(f"answered with more than {_LONGEST_ANSWER} octets")
        self.words = bytes(body[:_WORDS])
        self._answered()
        headers = answer.headers.copy()
        headers.discard("Transfer-Encoding")  # the chunks are joined
        is_preloaded = bool(named.get("preload_content", True))
        return HTTPResponse(
            io.BytesIO(body), headers, answer.status, reason=answer.reason, preload_content=is_preloaded
        )
