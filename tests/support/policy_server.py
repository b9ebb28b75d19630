"""A server of policy rules in a process of its own: the kits count what the test's process holds.

It answers with the file ``rules.json`` of its directory, under an ETag; while the file ``mode`` is there, as that says.
Each request's headers go to ``asked``.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PolicyServer"]


class PolicyServer:
    """Starts it; ends it at the latest with the test."""

    def __init__(self, directory: Path, *, certificate: Path | None = None, client_ca: Path | None = None) -> None:
        self.directory = directory
        self._tls = [str(path) for path in (certificate, client_ca) if path is not None]
        self._scheme = "http" if certificate is None else "https"
        self.url = ""

    def write(self, *rules: dict[str, object]) -> None:
        """What it answers from now on."""
        self._replace("rules.json", json.dumps({"policies": rules}))

    def asked(self) -> list[dict[str, str]]:
        """Headers of each request so far."""
        path = self.directory / "asked"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @contextmanager
    def mode(self, how: str) -> Iterator[None]:
        """Inside it answers so: a status, or ``silent``, ``cut``, ``no-http``, ``endless``."""
        self._replace("mode", how)
        try:
            yield
        finally:
            (self.directory / "mode").unlink()

    @contextmanager
    def running(self, inside: Callable[..., list[str]] = lambda *words: list(words)) -> Iterator[None]:
        """Inside, it answers; the command may be made one that runs elsewhere, as in a namespace."""
        command = inside(sys.executable, __file__, str(self.directory), *self._tls)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            self.url = f"{self._scheme}://127.0.0.1:{int(process.stdout.readline())}/rules"
            yield
        finally:
            process.kill()
            process.communicate()

    def _replace(self, name: str, text: str) -> None:
        new = self.directory / f"{name}.new"
        new.write_text(text)
        new.replace(self.directory / name)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    directory = Path()

    def do_GET(self) -> None:
        with (self.directory / "asked").open("a") as asked:
            asked.write(json.dumps(dict(self.headers)) + "\n")
        mode = self.directory / "mode"
        how = mode.read_text() if mode.exists() else "200"
        body = (self.directory / "rules.json").read_bytes()
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        if how == "silent":
            time.sleep(3600)
        elif how == "no-http":
            self.wfile.write(b"220 mail.example.com ESMTP\r\n\r\n")
        elif how == "endless":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            while True:
                self.wfile.write(b" " * 65536)
        elif how == "cut":
            self._answer(200, etag, body, length=len(body) + 1)
        elif how == "200" and self.headers["If-None-Match"] == etag:
            self._answer(304, etag, b"")
        else:
            self._answer(int(how), etag, body)
        self.close_connection = True

    def _answer(self, status: int, etag: str, body: bytes, *, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is said."""


def main(directory: str, certificate: str = "", client_ca: str = "") -> None:
    _Handler.directory = Path(directory)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that leaves is nobody's error
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        if client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(client_ca)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
