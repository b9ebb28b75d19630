"""What a UDP socket has received, read without waiting: one call for all that is there.

Two forms do the same: ``recvmmsg`` where the compiled part was built, and a loop of ``recvfrom``.
Invariant: a datagram that was read is given, whatever happens next.
"""

from __future__ import annotations

import socket
from typing import Any, Final, NamedTuple, Protocol

from flowjoin._collector.peers import PeerSessions
from flowjoin._model.transport_session import TransportSession

__all__ = ["DatagramReader", "PlainDatagrams", "Received", "datagram_reader"]

# One octet more than any UDP payload can have, so that none is ever cut.
_BUFFER_OCTETS: Final = 65536


class Received(NamedTuple):
    """What one call brought.

    Attributes:
        read: datagrams that were read, also those without a session.
        messages: the others.
        sessions: theirs.
        refused: socket addresses of peers without a session, one a datagram.
        error: the socket's.
        is_all: no more was there.
    """

    read: int
    messages: list[bytes | memoryview]
    sessions: list[TransportSession]
    refused: list[Any]
    error: OSError | None
    is_all: bool


class DatagramReader(Protocol):
    """Reads from one socket after the other; its sessions are those of one ``PeerSessions``."""

    def receive(self, receiving: socket.socket, budget: int, octets: int) -> Received:
        """Read at most so many datagrams, and until there are so many octets."""
        ...


class PlainDatagrams:
    """A loop of ``recvfrom``."""

    def __init__(self, peers: PeerSessions) -> None:
        self._peers = peers
        self._buffer = bytearray(_BUFFER_OCTETS)
        self._view = memoryview(self._buffer)

    def receive(self, receiving: socket.socket, budget: int, octets: int) -> Received:
        messages: list[bytes | memoryview] = []
        sessions: list[TransportSession] = []
        refused: list[Any] = []
        count = 0
        while count < budget and octets > 0:
            try:
                length, address = receiving.recvfrom_into(self._buffer)
            except BlockingIOError:
                return Received(count, messages, sessions, refused, None, True)
            except OSError as exc:
                return Received(count, messages, sessions, refused, exc, True)
            count += 1
            octets -= length
            session = self._peers.session_of(address)
            if session is None:
                refused.append(address)
                continue
            messages.append(bytes(self._view[:length]))
            sessions.append(session)
        return Received(count, messages, sessions, refused, None, False)


def datagram_reader(peers: PeerSessions) -> DatagramReader:
    """The fastest at hand."""
    try:
        from flowjoin._collector._recvmmsg import Datagrams
    except ImportError:  # it was not built, or this is no Linux
        return PlainDatagrams(peers)
    return Datagrams(peers)
