"""TLS over a byte stream, as far as a Collecting Process uses one: the server's handshake, and reading.

Strategy: OpenSSL works on two buffers in memory; we carry octets between them and the transport. One read gives all
records that have arrived, because original exporters send a Message a record, and each call into the loop costs more
than decrypting one. What OpenSSL wants to say is sent before we wait or give up, so that a client that is refused
learns why from the alert.

Invariant: what was decrypted before a fault is given before the fault is told.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import trio

__all__ = ["TlsReceiveStream"]

_TRANSPORT_OCTETS: Final = 65536
_RECORD_OCTETS: Final = 16384  # RFC 8446 section 5.1: the most that one record carries

_LINGER_SECONDS: Final = 0.5


class TlsReceiveStream(trio.abc.ReceiveStream):
    """The receiving side of a connection; its ``aclose`` sends close_notify.

    Attributes:
        has_heard: whether the client has sent anything at all.
    """

    def __init__(self, transport: trio.abc.HalfCloseableStream, context: ssl.SSLContext) -> None:
        self._transport = transport
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._fault: ssl.SSLError | None = None
        self.has_heard = False

    async def do_handshake(self) -> None:
        """Shake hands, and verify the client where that is asked for.

        Raises:
            ssl.SSLError: it failed; the client has been told why.
            trio.BrokenResourceError: the connection broke.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._take_in()
            except ssl.SSLError:
                await self._tell_why()
                raise
            else:
                await self._flush()
                return

    @property
    def peer_certificate(self) -> Mapping[str, object] | None:
        """What the client showed and was verified, in the ssl module's words; None without one."""
        return self._tls.getpeercert() or None

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Decrypted octets, all that have arrived up to ``max_bytes``; empty after the client's close_notify.

        Raises:
            trio.BrokenResourceError: the connection ended without close_notify, or its octets are no TLS any more.
        """
        limit = _TRANSPORT_OCTETS if max_bytes is None else max_bytes
        while True:
            data, is_end = self._decrypt(limit)
            if self._outgoing.pending:  # the answer to a key update
                await self._flush()
            if data or is_end:
                await trio.lowlevel.checkpoint()
                return data
            if self._fault is not None:
                await self._flush()
                raise trio.BrokenResourceError("TLS broke") from self._fault
            await self._take_in()

    async def aclose(self) -> None:
        """Say that we read no more, and close.

        Cancellation: the transport is closed all the same.
        """
        try:
            if self._fault is None:
                # It raises while the client has not said the same; what we say is written by then.
                with suppress(ssl.SSLError):
                    self._tls.unwrap()
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._flush()
        finally:
            await self._transport.aclose()

    def _decrypt(self, limit: int) -> tuple[bytes, bool]:
        """What there is to read without waiting, and whether the client has said that nothing comes after it."""
        pieces: list[bytes] = []
        while limit > 0 and self._fault is None:
            try:
                piece = self._tls.read(min(limit, _RECORD_OCTETS))
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as exc:
                self._fault = exc
                break
            if not piece:
                return b"".join(pieces), True
            pieces.append(piece)
            limit -= len(piece)
        return b"".join(pieces), False

    async def _take_in(self) -> None:
        data = await self._transport.receive_some(_TRANSPORT_OCTETS)
        if data:
            self.has_heard = True
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _tell_why(self) -> None:
        """Let the alert arrive: who closes with octets unread resets, and a reset overtakes what was sent."""
        with suppress(trio.BrokenResourceError), trio.move_on_after(_LINGER_SECONDS):
            await self._flush()
            await self._transport.send_eof()
            while await self._transport.receive_some(_TRANSPORT_OCTETS):
                pass

    async def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            await self._transport.send_all(data)
