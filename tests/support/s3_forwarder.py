"""A network between an exporter and a server that is cut when a test wants it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["Forwarder"]


class Forwarder:
    """Stands before a server and passes octets on, until it is told not to.

    Attributes:
        passed: octets passed on to the server.
        when_passed: what to do, once, when so many octets have passed.
        cut_after: octets after which a connection to the server is cut; None: never.
        swallow_answers: the server gets all of a request, and its answer never arrives.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.passed = 0
        self.cut_after: int | None = None
        self.when_passed: tuple[int, Callable[[], object]] | None = None
        self.swallow_answers = False
        self.connections: set[socket.socket] = set()
        self._accept()

    def close(self) -> None:
        """No more connections, and an end to those there are."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        for connection in list(self.connections):
            _cut(connection)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Nobody listens inside."""
        self.close()
        try:
            yield
        finally:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._accept()

    def _accept(self) -> None:
        self._acceptor = threading.Thread(target=self._serve)
        self._acceptor.start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                near.close()
                continue
            self.connections |= {near, far}
            threading.Thread(target=self._pass_requests, args=(near, far), daemon=True).start()
            threading.Thread(target=self._pass_answers, args=(far, near), daemon=True).start()

    def _pass_requests(self, near: socket.socket, far: socket.socket) -> None:
        try:
            while octets := near.recv(65536):
                self.passed += len(octets)
                if self.when_passed is not None and self.passed >= self.when_passed[0]:
                    (_, action), self.when_passed = self.when_passed, None
                    action()
                if self.cut_after is not None and self.passed >= self.cut_after:
                    break
                far.sendall(octets)
        except OSError:
            pass  # the other side has gone
        self._end(near, far)

    def _pass_answers(self, far: socket.socket, near: socket.socket) -> None:
        try:
            while octets := far.recv(65536):
                if self.swallow_answers and not octets.startswith(b"HTTP/1.1 100"):
                    break
                near.sendall(octets)
        except OSError:
            pass  # the other side has gone
        self._end(near, far)

    def _end(self, *both: socket.socket) -> None:
        for connection in both:
            _cut(connection)
            self.connections.discard(connection)


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # it had ended
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
