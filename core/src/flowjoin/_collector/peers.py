"""The Transport Sessions of one UDP socket, one object per peer's address and port.

Strategy: two generations. A peer heard in this period sits in the young one; at the period's end the
young become the old, and the old that were not heard meanwhile are dropped. So a datagram costs one
look-up, and a silent peer is forgotten after one to two periods, without a timer for each.

Invariant: both generations together never hold more than ``limit`` peers.
"""

from __future__ import annotations

from typing import Any

from flowjoin._model.transport_session import TransportSession

__all__ = ["PeerSessions", "peer_text"]

_MAPPED_PREFIX = "::ffff:"


def peer_text(host: str) -> str:
    """Address text as we show it: what a dual-stack socket calls ``::ffff:192.0.2.1`` came over IPv4."""
    if host.startswith(_MAPPED_PREFIX) and "." in host:
        return host[len(_MAPPED_PREFIX) :]
    return host


class PeerSessions:
    """Gives the session of a datagram's sender.

    Attributes:
        generation: another one when each session must be asked for again, to be heard in this period.
    """

    def __init__(self, *, local: str, local_port: int, limit: int, period: float, now: float) -> None:
        self._local = local
        self._local_port = local_port
        self._limit = limit
        self._period = period
        self._turn_at = now + period
        self.generation = 0
        self._young: dict[Any, TransportSession] = {}  # keyed by the socket's own address tuples
        self._old: dict[Any, TransportSession] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def session_of(self, address: Any) -> TransportSession | None:
        """The session of a socket address (``recvfrom``'s tuple); None when there is no room for a new one."""
        session = self._young.get(address)
        if session is not None:
            return session
        session = self._old.pop(address, None)
        if session is None:
            if len(self) >= self._limit:
                return None
            session = TransportSession(
                protocol="udp",
                peer=peer_text(address[0]),
                peer_port=address[1],
                local=self._local,
                local_port=self._local_port,
            )
        self._young[address] = session
        return session

    def advance(self, now: float) -> None:
        """Let time pass: forget who was silent for a whole period."""
        if now < self._turn_at:
            return
        # After more than a period without any datagram nobody was heard in the last one.
        self._old = self._young if now < self._turn_at + self._period else {}
        self._young = {}
        self.generation += 1
        self._turn_at = now + self._period
