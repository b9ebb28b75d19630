"""An HTTP pool whose sockets another thread can end, so that a stalled request need not be waited for."""

from __future__ import annotations

import socket
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from clickhouse_connect.driver import httputil
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection

__all__ = ["InterruptiblePool"]

SocketT = TypeVar("SocketT", bound=socket.socket)


class InterruptiblePool:
    """Owns a pool manager and knows its open sockets."""

    def __init__(self, manager: PoolManager, answered: Callable[[], object]) -> None:
        """Take a manager that nothing was asked of yet, and who is told of each answer, in the thread of the call."""
        self.manager = manager
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
                answer = super().urlopen(*arguments, **named)
                answered()
                return answer

        class _SecurePool(HTTPSConnectionPool):
            ConnectionCls = _Secure

            def urlopen(self, *arguments: Any, **named: Any) -> BaseHTTPResponse:  # the same, of another class
                answer = super().urlopen(*arguments, **named)
                answered()
                return answer

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
