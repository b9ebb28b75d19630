"""A stand-in for a ClickHouse server: its HTTP interface over the real engine (chdb), with faults on demand.

``python clickhouse_stand_in.py --path DIR [--port N] [--password P] [--certificate F --key F]`` prints ``READY <url>``.
Statements are run by the engine that servers run; what is ours is HTTP, the check of the password, and the faults.

``POST /__fault`` with a JSON object arms a fault for the next statements that match:
``match`` (a regular expression), ``times``, and one or several of ``status`` with ``code`` and ``message``, ``page`` (a
text, with ``status`` and ``headers``: the answer of something else; with ``reflect`` it repeats the request's headers),
``endless`` (an answer without end), ``octets`` (the answer comes one at a time), ``hold`` (until ``POST /__release``,
which returns when it is done), ``delay`` (seconds before anything is done), ``drop`` (``before`` the statement is run,
in the ``middle`` of reading it, ``after`` it is done and before it is answered), ``kill`` (seconds after the statement
began, SIGKILL). ``POST /__held`` counts what is or was held.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hmac
import io
import json
import os
import re
import signal
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO, NoReturn
from urllib.parse import parse_qsl, urlsplit

import chdb
import lz4.frame

_TRANSPORT = {"query", "database", "wait_end_of_query", "client_protocol_version", "query_id", "default_format"}
_TRANSPORT |= {"enable_http_compression", "send_progress_in_http_headers", "http_headers_progress_interval_ms"}
_INSERT = re.compile(rb"^\s*INSERT\s+INTO\s.*?\bFORMAT\s+(\w+)\s*", re.IGNORECASE | re.DOTALL)
_FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_STATUS = {60: 404, 81: 404, 47: 404, 62: 400, 115: 404, 516: 403, 497: 403, 164: 403, 241: 500, 252: 500}


class _Dropped(Exception):
    """The connection is to be closed without another word."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(("127.0.0.1", arguments.port), _Handler)
        self.path, self.password = arguments.path, arguments.password
        self.root = chdb.connect(self.path)
        self.fault: dict[str, Any] = {}
        self.lock = threading.Lock()
        self.is_released = threading.Event()
        self.held: list[threading.Event] = []  # set when the statement is done
        if arguments.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(arguments.certificate, arguments.key)
            if arguments.client_ca:
                context.load_verify_locations(arguments.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def take_fault(self, statement: bytes) -> dict[str, Any]:
        with self.lock:
            fault = self.fault
            if not fault.get("times") or not re.search(
                fault.get("match", "."), statement[:4000].decode(errors="replace")
            ):
                return {}
            fault["times"] -= 1
            return fault


class _OctetByOctet(io.BufferedIOBase):
    """A slow network."""

    def __init__(self, file: BinaryIO | io.BufferedIOBase) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        for octet in bytes(data):
            self._file.write(bytes((octet,)))
            self._file.flush()
            time.sleep(0.002)
        return len(data)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        parameters = dict(parse_qsl(url.query, keep_blank_values=True))
        try:
            if url.path == "/__fault":
                self.server.fault = {"times": 1} | json.loads(self._body())
                self._answer(200, b"armed\n")
            elif url.path == "/__held":
                self._body()
                self._answer(200, b"%d" % len(self.server.held))
            elif url.path == "/__release":
                self._body()
                self.server.is_released.set()
                for each in self.server.held:
                    each.wait(60)
                self._answer(200, b"released\n")
            else:
                self._answer_statement(parameters)
        except (_Dropped, ConnectionError):
            self.close_connection = True

    def _answer_statement(self, parameters: dict[str, str]) -> None:
        query = parameters.get("query", "").encode()
        fault = self.server.take_fault(query) if query else {}
        if fault.get("drop") == "middle":
            self.rfile.read(100)
            raise _Dropped
        body = self._body()
        if not query:
            fault = self.server.take_fault(body)
        if not self._is_known():
            self._refuse(
                516, "default: Authentication failed: password is incorrect, or there is no user with such name."
            )
            return
        if fault.get("hold"):
            done = threading.Event()
            self.server.held.append(done)
            self.server.is_released.wait(60)
            try:
                self._carry_out(query, body, parameters, {})
            finally:
                done.set()
            return
        self._carry_out(query, body, parameters, fault)

    def _carry_out(self, query: bytes, body: bytes, parameters: dict[str, str], fault: dict[str, Any]) -> None:
        time.sleep(float(fault.get("delay", 0)))
        if fault.get("drop") == "before":
            raise _Dropped
        if fault.get("endless"):
            self._answer_without_end()
        if "page" in fault:
            page = fault["page"] + (str(self.headers) if fault.get("reflect") else "")
            self._answer(fault.get("status", 200), page.encode(), fault.get("headers"), is_ours=False)
            return
        if "code" in fault:
            self._refuse(fault["code"], fault.get("message", "injected"), fault.get("status"))
            return
        if "kill" in fault:
            threading.Timer(fault["kill"], os.kill, (os.getpid(), signal.SIGKILL)).start()
        try:
            data, form, written = self._run(query + b"\n" + body if query and body else query or body, parameters)
        except Exception as exc:
            code = re.search(r"Code: (\d+)\. (?:DB::Exception: )?(.*)", str(exc), re.DOTALL)
            self._refuse(int(code[1]) if code else 1002, code[2] if code else str(exc))
            return
        if fault.get("drop") == "after":
            raise _Dropped
        if fault.get("octets"):
            self.wfile = _OctetByOctet(self.wfile)
        self._answer(200, data, {"X-ClickHouse-Summary": json.dumps({"written_rows": str(written)})}, form)

    def _run(self, statement: bytes, parameters: dict[str, str]) -> tuple[bytes, str, int]:
        connection = chdb.connect(self.server.path)
        try:
            if parameters.get("database"):
                connection.query("USE `{}`".format(parameters["database"].replace("`", "\\`")))
            for name, value in parameters.items():
                if name not in _TRANSPORT:
                    connection.query("SET {} = '{}'".format(name, value.replace("\\", "\\\\").replace("'", "\\'")))
            insert = _INSERT.match(statement)
            if insert:
                head = re.sub(r"\bFORMAT\s+\w+\s*$", "", insert[0].decode(), flags=re.IGNORECASE)
                file = os.memfd_create("block")
                try:
                    os.write(file, statement[insert.end() :])
                    source = f"FROM INFILE '/proc/self/fd/{file}' FORMAT {insert[1].decode()}"
                    result = connection.query(f"{head} {source}", "TabSeparated")
                    return b"", "", result.rows_read()
                finally:
                    os.close(file)
            text = statement.decode()
            named = _FORMAT.search(text)
            form = named[1] if named else parameters.get("default_format", "TabSeparated")
            result = connection.query(text, form)
            return result.bytes() or b"", form, 0
        finally:
            connection.close()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = bytearray()
            while size := int(self.rfile.readline() or b"x", 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = bytearray(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        if self.headers.get("Content-Encoding") == "lz4":
            return lz4.frame.open(io.BytesIO(bytes(body))).read()  # several frames in a row too
        return bytes(body)

    def _is_known(self) -> bool:
        if self.headers.get("X-ClickHouse-SSL-Certificate-Auth") == "on":
            has_certificate = isinstance(self.connection, ssl.SSLSocket) and bool(self.connection.getpeercert())
            return has_certificate and self.headers.get("X-ClickHouse-User") == "default"
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        user, _, password = base64.b64decode(given).decode().partition(":")
        return user == "default" and hmac.compare_digest(password.encode(), self.server.password.encode())

    def _refuse(self, code: int, message: str, status: int | None = None) -> None:
        text = f"Code: {code}. DB::Exception: {message.strip()} (version 26.5.1.1)\n"
        self._answer(status or _STATUS.get(code, 500), text.encode(), {"X-ClickHouse-Exception-Code": str(code)})

    def _answer_without_end(self) -> NoReturn:
        self.send_response(200)
        self.send_header("X-ClickHouse-Timezone", "UTC")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        piece = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        while True:  # until the client has enough of it
            self.wfile.write(piece)

    def _answer(
        self, status: int, data: bytes, headers: dict[str, str] | None = None, form: str = "", *, is_ours: bool = True
    ) -> None:
        self.send_response(status)
        if form:
            self.send_header("X-ClickHouse-Format", form)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if is_ours:
            self.send_header("X-ClickHouse-Timezone", "UTC")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--path", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--password", default="")
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    parser.add_argument("--client-ca")
    server = _Server(parser.parse_args())
    scheme = "https" if isinstance(server.socket, ssl.SSLSocket) else "http"
    print(f"READY {scheme}://127.0.0.1:{server.server_port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
