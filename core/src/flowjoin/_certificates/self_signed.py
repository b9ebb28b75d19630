"""TLS of a server that nobody was told about: an authority of its own, made in memory and forgotten.

It is made anew long before it ends, so that a process may run for years; and when the clock turns out to have been
fast when it was made, because until then it would not be valid. Connections that live keep what they began with.
"""

from __future__ import annotations

import datetime
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from flowjoin._certificates.files import ServerTls
from flowjoin._certificates.material import TlsMaterial, examine
from flowjoin._certificates.profiles import make_authority, make_server
from flowjoin._certificates.renewal import RENEWED_BEFORE
from flowjoin._certificates.server_context import server_context
from flowjoin.api._types import Logger

__all__ = ["SelfSigned", "open_self_signed"]

_LOOK_SECONDS: Final = 3600.0


@asynccontextmanager
async def open_self_signed(
    names: Sequence[str],
    *,
    minimum_version: ssl.TLSVersion,
    ciphers: str,
    log: Logger,
    wall: Callable[[], float] = time.time,
) -> AsyncIterator[SelfSigned]:
    """Make it, and make it anew in time until the block is left.

    Args:
        names: DNS names and addresses of the server.
        minimum_version: the oldest version that is spoken.
        ciphers: of TLS 1.2, in OpenSSL's words.
        log: told of each that is made anew.
        wall: seconds since the Unix epoch.

    Raises:
        ValueError: no cipher of that name.
    """

    async def make(now: float) -> ServerTls:
        making = partial(_make, names, now, minimum_version=minimum_version, ciphers=ciphers)
        return await trio.to_thread.run_sync(making, abandon_on_cancel=True)

    made = SelfSigned(make, log, wall)
    await made.renew()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run, name="self-signed certificate")
        yield made
        nursery.cancel_scope.cancel()


class SelfSigned:
    """A ``TlsSource``.

    Attributes:
        current: what the next handshake is made with.
    """

    current: ServerTls

    def __init__(self, make: Callable[[float], Awaitable[ServerTls]], log: Logger, wall: Callable[[], float]) -> None:
        """Nothing is made before ``renew``; ``make`` is told what time it is, in seconds since the Unix epoch."""
        self._make = make
        self._log = log
        self._wall = wall
        self._made_at = 0.0

    async def wait_ready(self) -> None:
        """It is, since it was opened."""
        await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        """Look every hour whether it must be made anew, until cancelled."""
        while True:
            await trio.sleep(_LOOK_SECONDS)
            if not self._made_at <= self._wall() < self.current.expires - RENEWED_BEFORE.total_seconds():
                await self.renew()
                self._log.info("certificate_replaced", path="apiServer.tls", expires=self.current.expires_text)

    async def renew(self) -> None:
        """Make it.

        Cancellation: the one before stays.

        Raises:
            ValueError: no cipher of that name.
        """
        now = self._wall()
        self.current = await self._make(now)
        self._made_at = now


def _make(names: Sequence[str], now: float, *, minimum_version: ssl.TLSVersion, ciphers: str) -> ServerTls:
    when = datetime.datetime.fromtimestamp(now, datetime.UTC)
    authority = make_authority("flowjoin-self-signed", when)
    pair = make_server(authority, "flowjoin", when, names=names)
    material = TlsMaterial(certificate=pair.certificate + authority.certificate, key=pair.key)
    context = server_context(material, minimum_version=minimum_version, ciphers=ciphers)
    return ServerTls(context=context, expires=examine(material, when).expires)
