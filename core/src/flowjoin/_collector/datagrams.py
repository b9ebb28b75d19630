"""What a UDP socket has received, read without waiting: one call for all that is there.

Two forms do the same: ``recvmmsg`` where the compiled part was built, and a loop of ``recvfrom``.
Invariant: a datagram that was read is given, whatever happens next.
"""

from __future__ import annotations

import socket
from typing import Any, Final, Protocol

from flowjoin._collector.peers import PeerSessions
from flowjoin._model.transport_session import TransportSession

__all__ = ["DatagramReader", "PlainDatagrams", "datagram_reader"]

# One octet more than any UDP payload can have, so that none is ever cut.
_BUFFER_OCTETS: Final = 65536


class DatagramReader(Protocol):
    """Reads from one socket after the other; its sessions are those of one ``PeerSessions``."""

    def receive(
        self, receiving: socket.socket, budget: int
    ) -> tuple[int, list[bytes | memoryview], list[TransportSession], list[Any], OSError | None]:
        """Read up to the budget.

        Returns:
            How many datagrams were read; those of peers with a session, and their sessions; the socket
            addresses of the others; the socket's error.
        """
        ...


class PlainDatagrams:
    """A loop of ``recvfrom``."""

    def __init__(self, peers: PeerSessions) -> None:
        self._peers = peers
        self._buffer = bytearray(_BUFFER_OCTETS)
        self._view = memoryview(self._buffer)

    def receive(
        self, receiving: socket.socket, budget: int
    ) -> tuple[int, list[bytes | memoryview], list[TransportSession], list[Any], OSError | None]:
        messages: list[bytes | memoryview] = []
        sessions: list[TransportSession] = []
        refused: list[Any] = []
        read = 0
        while read < budget:
            try:
                length, address = receiving.recvfrom_into(self._buffer)
            except BlockingIOError:
                break  # that was all of it
            except OSError as exc:
                return read, messages, sessions, refused, exc
            read += 1
            session = self._peers.session_of(address)
            if session is None:
                refused.append(address)
                continue
            messages.append(bytes(self._view[:length]))
            sessions.append(session)
        return read, messages, sessions, refused, None


def datagram_reader(peers: PeerSessions) -> DatagramReader:
    """The fastest at hand."""
    try:
        from flowjoin._collector._recvmmsg import Datagrams
    except ImportError:  # it was not built, or this is no Linux
        return PlainDatagrams(peers)
    return Datagrams(peers)
