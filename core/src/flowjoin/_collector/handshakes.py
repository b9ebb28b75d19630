"""The door of a TLS Collecting Process: who has not yet shown who he is, waits here, and not for long.

Strategy: handshakes in progress are bounded, and each has a deadline. When there is no place, nobody is accepted
until one is free; but a client that has been at it for a second while others wait gives its place up. So a thousand
exporters that connect at once are taken one after the other, as fast as we can compute, and a thousand connections
that say nothing hold up an honest one by seconds at most.

Invariant: a handshake that was begun ends in a stream that is given to the caller, or in one count of a reason, unless
the intake stopped meanwhile.
"""

from __future__ import annotations

import ssl
from typing import Final

import trio

from flowjoin._certificates.files import TlsSource
from flowjoin._collector.config import CollectorLimits
from flowjoin._collector.handshake_faults import refusal_of
from flowjoin._collector.metrics import CollectorCounters
from flowjoin._collector.tls_stream import TlsReceiveStream
from flowjoin._model.reasons import Reason
from flowjoin.api._types import Logger

__all__ = ["Handshakes"]

_GRACE_SECONDS: Final = 1.0


class Handshakes:
    """Those of one listening socket."""

    def __init__(
        self,
        tls: TlsSource,
        limits: CollectorLimits,
        counters: CollectorCounters,
        log: Logger,
        *,
        address: str,
    ) -> None:
        """Nothing happens yet; ``tls`` is asked before each handshake."""
        self._tls = tls
        self._limits = limits
        self._counters = counters
        self._log = log
        self._address = address
        self._unfinished: dict[trio.CancelScope, float] = {}  # the oldest first; with the time it began
        self._freed = trio.Event()
        self._is_stopping = False

    def __len__(self) -> int:
        return len(self._unfinished)

    @property
    def expires(self) -> float | None:
        """When the certificate expires that is shown now, seconds since the Unix epoch; None while there is none."""
        return None if self._tls.current is None else self._tls.current.expires

    async def wait_place(self) -> None:
        """Wait until one more may begin."""
        await self._tls.wait_ready()
        while len(self._unfinished) >= self._limits.handshakes:
            oldest, began = next(iter(self._unfinished.items()))
            with trio.move_on_at(began + _GRACE_SECONDS):
                await self._freed.wait()
                continue
            self.leave(oldest)
            oldest.cancel()

    def enter(self) -> trio.CancelScope:
        """Take the place of a connection that was accepted; ``admit`` or ``leave`` gives it back."""
        now = trio.current_time()
        place = trio.CancelScope(deadline=now + self._limits.handshake_seconds)
        self._unfinished[place] = now
        return place

    def leave(self, place: trio.CancelScope) -> None:
        """Give a place back, once or again."""
        if self._unfinished.pop(place, None) is not None:
            self._freed.set()
            self._freed = trio.Event()

    async def admit(
        self, place: trio.CancelScope, transport: trio.abc.HalfCloseableStream, *, peer: str, port: int
    ) -> TlsReceiveStream | None:
        """Shake hands; None, and the reason is counted, when that fails. Closing the transport is the caller's duty."""
        tls = self._tls.current
        assert tls is not None, "nobody enters before it is ready"
        stream = TlsReceiveStream(transport, tls.context)
        detail = ""
        try:
            with place:
                await stream.do_handshake()
                return stream
            reason = Reason.TLS_HANDSHAKE_TIMEOUT if place in self._unfinished else Reason.TLS_HANDSHAKE_LIMIT
        except ssl.SSLError as exc:
            reason = refusal_of(exc)
            detail = getattr(exc, "verify_message", "") or exc.reason or ""
        except trio.BrokenResourceError:
            reason = Reason.TLS_HANDSHAKE_CUT
        finally:
            self.leave(place)
        if self._is_stopping:
            return None
        self._counters.refuse(reason.value)
        # Who only looks whether the port is open says nothing and leaves.
        is_probe = reason is Reason.TLS_HANDSHAKE_CUT and not stream.has_heard
        report = self._log.debug if is_probe else self._log.warning
        report(
            "handshake_failed",
            address=self._address,
            original_exporter=peer,
            port=port,
            reason=reason.value,
            **({"detail": detail} if detail else {}),
        )
        return None

    def stop(self) -> None:
        """Give up those that are not finished."""
        self._is_stopping = True
        for scope in list(self._unfinished):
            scope.cancel()
