"""A bucket in memory that answers as a test tells it."""

from __future__ import annotations

import re
import ssl
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from s3_servers import BUCKET

__all__ = ["Answer", "Fault", "Request", "StandIn"]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def action(self) -> str:
        """What a person would call it."""
        return {
            ("HEAD", False): "look",
            ("PUT", False): "put",
            ("PUT", True): "part",
            ("GET", False): "list",
            ("DELETE", True): "abort",
            ("POST", False): "begin",
            ("POST", True): "complete",
        }[self.method, "uploadId" in self.query]

    @property
    def region(self) -> str:
        """That the request was signed for."""
        match = re.search(r"Credential=[^/]+/\d+/([^/]+)/", self.headers.get("authorization", ""))
        return match[1] if match else ""


@dataclass(frozen=True)
class Answer:
    """Of an HTTP server; ``hang`` waits until the stand-in closes, ``drop`` closes the connection."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    is_processed: bool = False  # the request had its effect all the same
    hang: bool = False
    drop: bool = False

    @classmethod
    def error(cls, status: int, code: str, message: str = "", **headers: str) -> Answer:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, body.encode(), named)


Fault = Callable[[Request], "Answer | None"]


class _CountingServer(ThreadingHTTPServer):
    """Knows how many connections it holds."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.held = 0
        self._counting = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._count(1)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._counting:
            self.held += more


class StandIn:
    """A bucket in memory that answers as it is told; it checks no signature.

    Attributes:
        objects: by key.
        uploads: unfinished ones: parts by number, by (key, id).
        requests: every one, in order.
        fault: gives the answer to a request, or None for the usual one.
    """

    def __init__(self, *, certificate: tuple[Path, Path] | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[tuple[str, str], dict[int, bytes]] = {}
        self.requests: list[Request] = []
        self.fault: Fault = lambda _request: None
        self.closing = threading.Event()
        self._lock = threading.Lock()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            timeout = 60

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def _serve(self) -> None:
                stand_in._serve(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

        self._server = _CountingServer(Handler)
        scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://localhost:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def connections(self) -> int:
        """Sockets it holds, which are this process's too."""
        return self._server.held

    def of(self, action: str) -> list[Request]:
        """The requests of that action."""
        return [request for request in self.requests if request.action == action]

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urllib.parse.urlsplit(handler.path)
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = Request(handler.command, urllib.parse.unquote(parts.path), query, headers, body)
        with self._lock:
            self.requests.append(request)
            answer = self.fault(request)
            if answer is None or answer.is_processed:
                usual = self._usual(request)
                answer = usual if answer is None else answer
        if answer.hang:
            self.closing.wait()
        if answer.drop or answer.hang:
            handler.close_connection = True
            return
        handler.send_response_only(answer.status)
        usual_headers = {"Content-Length": str(len(answer.body)), "Date": handler.date_time_string()}
        for name, value in {**usual_headers, **answer.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(answer.body)

    def _usual(self, request: Request) -> Answer:
        key = request.path.removeprefix(f"/{BUCKET}/")
        upload_id = request.query.get("uploadId", "")
        match request.action:
            case "put":
                self.objects[key] = request.body
                return Answer(headers={"ETag": '"whole"'})
            case "begin":
                upload_id = f"upload-{len(self.requests)}"
                self.uploads[key, upload_id] = {}
                return _xml(
                    f"<InitiateMultipartUploadResult><UploadId>{upload_id}</UploadId>", "InitiateMultipartUpload"
                )
            case "part" if (key, upload_id) in self.uploads:
                number = request.query["partNumber"]
                self.uploads[key, upload_id][int(number)] = request.body
                return Answer(headers={"ETag": f'"part-{number}"'})
            case "complete" if (key, upload_id) in self.uploads:
                given = self.uploads.pop((key, upload_id))
                self.objects[key] = b"".join(given[number] for number in sorted(given))
                return _xml("<CompleteMultipartUploadResult><ETag>whole</ETag>", "CompleteMultipartUpload")
            case "abort" if (key, upload_id) in self.uploads:
                del self.uploads[key, upload_id]
                return Answer(204)
            case "list":
                prefix = request.query.get("prefix", "")
                found = "".join(
                    f"<Upload><Key>{name}</Key><UploadId>{each}</UploadId></Upload>"
                    for name, each in self.uploads
                    if name.startswith(prefix)
                )
                return _xml(f"<ListMultipartUploadsResult>{found}", "ListMultipartUploads")
            case "look":
                return Answer()
        return Answer.error(404, "NoSuchUpload")


def _xml(inside: str, operation: str) -> Answer:
    return Answer(body=f"<?xml version='1.0'?>{inside}</{operation}Result>".encode())
