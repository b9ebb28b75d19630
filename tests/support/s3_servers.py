"""Servers that speak S3: SeaweedFS for truth, moto for speed, and one of our own for faults."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config
from held_port import HeldPort

__all__ = [
    "ACCESS_KEY",
    "BUCKET",
    "SECRET_KEY",
    "Answer",
    "Fault",
    "Forwarder",
    "Request",
    "Server",
    "StandIn",
    "client_of",
]

BUCKET: Final = "flows"
ACCESS_KEY: Final = "AKWRITES"
SECRET_KEY: Final = "the-secret-of-who-writes"
READER_KEY: Final = "AKREADS"
READER_SECRET: Final = "the-secret-of-who-reads"
_PATIENCE: Final = 120.0  # SeaweedFS has been seen to take 45 s on a machine that others used


def client_of(url: str, *, ca: Path | None = None, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY) -> Any:
    """A client of boto3's that may do everything."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        verify=str(ca) if ca else None,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, connect_timeout=5),
    )


class Server:
    """A server in a process of its own, killed without a word; it keeps its ports until it is closed."""

    def __init__(
        self, command: Sequence[str], ports: Sequence[HeldPort], *, scheme: str = "http", ca: Path | None = None
    ) -> None:
        """Take the command, and the ports that it names: the one for S3 first."""
        self._command = command
        self._ports = ports
        self._scheme = scheme
        self.ca = ca
        self.port = ports[0].number
        self.patience = _PATIENCE
        self._client: Any = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        host = "localhost" if self._scheme == "https" else "127.0.0.1"
        return f"{self._scheme}://{host}:{self.port}"

    def start(self) -> None:
        """Returns when a bucket can be made."""
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        client = self.client()
        deadline = time.monotonic() + self.patience
        while True:
            try:
                client.list_buckets()
                break
            except Exception:
                assert self._process.poll() is None, "the server ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.05)  # it says nowhere when it is ready
        client.close()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Kill it; its ports are anybody's then."""
        self.kill()
        for each in self._ports:
            each.close()

    @contextmanager
    def down(self) -> Iterator[None]:
        self.kill()
        try:
            yield
        finally:
            self.start()

    def client(self) -> Any:
        """Always the same, which takes long to make; closed, it has no connections, and opens new ones when asked."""
        if self._client is None:
            self._client = client_of(self.url, ca=self.ca)
        return self._client


def weed(directory: Path, *, certificate: tuple[Path, Path, Path] | None = None) -> Server:
    """SeaweedFS with its data in the directory; ``certificate``: of the server, its key, its authority."""
    directory.mkdir(parents=True, exist_ok=True)
    identities = [
        (ACCESS_KEY, SECRET_KEY, ["Admin", "Read", "Write", "List", "Tagging"]),
        (READER_KEY, READER_SECRET, ["Read", "List"]),
    ]
    settings = directory / "s3.json"
    settings.write_text(
        json.dumps(
            {
                "identities": [
                    {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
                    for key, secret, actions in identities
                ]
            }
        )
    )
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    ports = [HeldPort() for _ in range(len(names) + 2)]
    s3, s3_grpc, *inner = (each.number for each in ports)
    command = [
        *(program("weed"), "server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-{name}={port}" for name, port in zip(names, inner, strict=True)),
        *("-s3", "-s3.ip.bind=127.0.0.1", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
        *(f"-s3.config={settings}", "-s3.iam=false", "-s3.autoCreateBucket=false"),
        # each bucket takes seven volumes at once, empty or not
        *("-master.volumeSizeLimitMB=64", "-volume.max=500", "-volume.preStopSeconds=0"),
    ]
    if certificate:
        command += [f"-s3.cert.file={certificate[0]}", f"-s3.key.file={certificate[1]}"]
    return Server(
        command,
        ports,
        scheme="https" if certificate else "http",
        ca=certificate[2] if certificate else None,
    )


def moto() -> Server:
    """moto's server: everything is in memory and anybody may do anything."""
    port = HeldPort()
    return Server([program("moto_server"), "-H", "127.0.0.1", "-p", str(port.number)], [port])


def program(name: str) -> str:
    """Where the program is: installed beside Python, or by .ci/setup; a name that leads nowhere if it is not."""
    places = (Path(sys.executable).parent, Path(__file__).parents[2] / ".ci" / "servers" / "bin")
    return next((str(place / name) for place in places if (place / name).exists()), name)


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
