"""Ports that the kernel gave and nobody else gets, whether somebody listens there or not."""

from __future__ import annotations

import socket

__all__ = ["HeldPort"]


class HeldPort:
    """A TCP port that nobody else is given while the one who listens there is away: bound, and never listened to.

    Whoever listens there says SO_REUSEADDR, as servers do. Until then a connection is refused.
    """

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Give it back."""
        self._socket.close()
