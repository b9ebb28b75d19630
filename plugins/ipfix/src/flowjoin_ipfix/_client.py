"""What a connection to a collector is, whatever its transport."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Protocol

import trio

__all__ = ["Connection", "ConnectionLost", "cause_of"]


class ConnectionLost(Exception):
    """The collector cannot be reached, or went away.

    Attributes:
        closed_at: when the collector said that it closes, on trio's clock; None if nobody can tell when it went.
    """

    def __init__(self, problem: str, *, closed_at: float | None = None) -> None:
        super().__init__(problem)
        self.closed_at = closed_at


class Connection(Protocol):
    """A way to one collector, open."""

    @property
    def peer(self) -> str:
        """Its address and port, as they were resolved."""
        ...

    @property
    def is_stream(self) -> bool:
        """Whether what is sent arrives in order and whole, and is acknowledged."""
        ...

    @property
    def limit(self) -> int:
        """The most octets that one ``send`` can carry in one piece."""
        ...

    @property
    def packing(self) -> int:
        """How large a Message of several records should grow: many collectors' buffers are made for Ethernet."""
        ...

    def check(self) -> None:
        """See, without waiting, whether the collector is still there.

        Raises:
            ConnectionLost: it is not.
        """
        ...

    async def send(self, octets: bytes) -> None:
        """Hand over one piece.

        Raises:
            ConnectionLost: it cannot be sent; how much of it was is unknown.

        Cancellation: a stream cannot be used after it.
        """
        ...

    async def wait_refused(self) -> None:
        """After connecting: give a refusal that comes late a moment.

        Raises:
            ConnectionLost: the collector does not want us.
        """
        ...

    async def wait_delivered(self) -> None:
        """Wait until the collector's system has acknowledged all that was sent, as far as the transport tells.

        Raises:
            ConnectionLost: the collector went away before that.
        """
        ...

    async def aclose(self) -> None:
        """Say goodbye and close."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


def cause_of(exc: BaseException) -> str:
    """The system's or the TLS library's own words for what went wrong."""
    while True:
        if isinstance(exc, ssl.SSLCertVerificationError):
            return f"the collector's certificate is refused: {exc.verify_message}"
        if isinstance(exc, BaseExceptionGroup):
            exc = exc.exceptions[0]
        elif isinstance(exc, OSError) and exc.errno is None and exc.__cause__ is not None:
            exc = exc.__cause__  # trio's summary of all the addresses it tried
        elif isinstance(exc, trio.BrokenResourceError) and exc.__cause__ is not None:
            exc = exc.__cause__
        elif isinstance(exc, ssl.SSLError):
            return f"TLS: {exc.reason or exc}"
        elif isinstance(exc, socket.gaierror):
            return f"its name is not known: {exc.strerror}"
        elif isinstance(exc, OSError):  # by number: trio's own text repeats the address
            return os.strerror(exc.errno) if exc.errno else str(exc)
        else:
            return str(exc) or type(exc).__name__
