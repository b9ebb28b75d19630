"""Asks a running flowjoin's HTTP API."""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from flowjoin._cli.commands import EXIT_FAILED, EXIT_UNUSABLE, CommandError
from flowjoin._cli.configuration import read_config
from flowjoin._cli.tls_arguments import add_tls_arguments, tls_context
from flowjoin._config.endpoint import Endpoint
from flowjoin._config.model import ApiServer
from flowjoin.api._settings import Secret

__all__ = [
    "Answer",
    "NoAnswer",
    "Server",
    "add_server_arguments",
    "ask",
    "read_array",
    "read_events",
    "refusal",
    "server_of",
]

_TIMEOUT_SECONDS: Final = 30.0
_PIECE: Final = 64 * 1024
_MAX_REFUSAL: Final = 4096
_COMPATIBILITY: Final = "antrea-2.7"


class NoAnswer(CommandError):
    """Nobody answers, or not to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply whose body has not been read yet.

    Attributes:
        compatibility: whose keys it has.
        log_level: in force, where that was asked for; else empty.
        pieces: gives the body.
    """

    status: int
    compatibility: str
    log_level: str
    pieces: Callable[[], Iterator[bytes]]

    def body(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces())


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Whom to ask, and how.

    Attributes:
        tls: None over plain HTTP.
        server_name: that its certificate must have; None, the host of the address.
    """

    endpoint: Endpoint
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    token: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"https://{self.endpoint}" if self.tls is not None else str(self.endpoint)


class _NamedConnection(http.client.HTTPSConnection):
    """Verifies a name that is not the one it connects to."""

    def __init__(self, server: Server, tls: ssl.SSLContext) -> None:
        super().__init__(server.endpoint.host, server.endpoint.port, timeout=_TIMEOUT_SECONDS, context=tls)
        self._tls = tls
        self._name = server.server_name or server.endpoint.host

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--server``, ``-c``, and what TLS and authentication need."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--server",
        type=_address,
        metavar="[https://]HOST:PORT",
        help=f"where the running flowjoin answers (default: {ApiServer().endpoint})",
    )
    group.add_argument("-c", "--config", metavar="FILE", help="its configuration, which says where it answers")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="the bearer token to show")
    add_tls_arguments(parser)
    parser.add_argument(
        "--insecure", action="store_true", help="take any certificate: anybody in between can read the token"
    )


def server_of(arguments: argparse.Namespace) -> Server:
    """Whom to ask.

    Raises:
        ConfigError: the configuration cannot be used, or its token cannot be read.
        CommandError: it switches the API off, or leaves the port to the system; a file cannot be used.
    """
    is_tls, endpoint = arguments.server or (False, ApiServer().endpoint)
    secret = None
    if arguments.config is not None:
        settings = read_config(arguments.config).config.api_server
        is_tls, endpoint, secret = settings.tls != "none", _reachable(settings.endpoint), settings.token
    if endpoint is None:
        problem = f"{arguments.config} switches the HTTP API off: apiServer.address is none"
        raise CommandError(problem, exit_code=EXIT_UNUSABLE)
    if endpoint.port == 0:
        problem = f"{arguments.config} leaves the port to the system; the log line api_ready has it: use --server"
        raise CommandError(problem, exit_code=EXIT_UNUSABLE)
    if arguments.token_file is not None:
        secret = Secret("file", str(arguments.token_file))
    tls = tls_context(arguments, is_tls=is_tls)
    if arguments.insecure and tls is not None:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    token = None if secret is None else secret.reveal().strip()
    if token and tls is None and not endpoint.is_loopback:
        problem = f"the token would be readable on the way to {endpoint}; write --server https://{endpoint}"
        raise CommandError(problem, exit_code=EXIT_UNUSABLE)
    return Server(endpoint=endpoint, tls=tls, server_name=arguments.server_name, token=token)


def _reachable(endpoint: Endpoint | None) -> Endpoint | None:
    """Where a server is asked that listens everywhere."""
    everywhere = {"::": "::1", "0.0.0.0": "127.0.0.1"}  # noqa: S104 - compared with, not bound
    if endpoint is None or endpoint.host not in everywhere:
        return endpoint
    return Endpoint(host=everywhere[endpoint.host], port=endpoint.port)


@contextmanager
def ask(
    server: Server, path: str, parameters: Mapping[str, str] | None = None, *, is_stream: bool = False
) -> Iterator[Answer]:
    """GET a path; the body is read inside the block, of a stream each piece as soon as it comes.

    Raises:
        NoAnswer: nobody answers, or not to the end.
    """
    connection: http.client.HTTPConnection
    if server.tls is None:
        connection = http.client.HTTPConnection(server.endpoint.host, server.endpoint.port, timeout=_TIMEOUT_SECONDS)
    else:
        connection = _NamedConnection(server, server.tls)
    headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
    try:
        with _translated(server):
            connection.request("GET", f"{path}?{urlencode(parameters)}" if parameters else path, headers=headers)
            response = connection.getresponse()

        def pieces() -> Iterator[bytes]:
            while True:
                with _translated(server):
                    piece = response.read1(_PIECE) if is_stream else response.read(_PIECE)
                if not piece:
                    return
                yield piece

        yield Answer(
            status=response.status,
            compatibility=response.getheader("flowjoin-compatibility", _COMPATIBILITY),
            log_level=response.getheader("flowjoin-log-level", ""),
            pieces=pieces,
        )
    finally:
        connection.close()


@contextmanager
def _translated(server: Server) -> Iterator[None]:
    try:
        yield
    except ConnectionRefusedError as exc:
        problem = f"nobody answers at {server}; is flowjoin running, and is that its apiServer.address?"
        raise NoAnswer(problem, exit_code=EXIT_FAILED) from exc
    except ssl.SSLCertVerificationError as exc:
        problem = (
            f"the certificate of {server} is not trusted ({exc.verify_message}); write --ca FILE, or --server-name"
        )
        raise NoAnswer(problem, exit_code=EXIT_FAILED) from exc
    except (OSError, http.client.HTTPException) as exc:
        cause = (exc.strerror if isinstance(exc, OSError) else None) or f"{type(exc).__name__}: {exc}"
        raise NoAnswer(f"no whole answer from {server}: {cause}", exit_code=EXIT_FAILED) from exc


def refusal(answer: Answer) -> CommandError:
    """What a reply that is not 200 says."""
    said = _said(answer.body()[:_MAX_REFUSAL].decode(errors="replace").strip())
    if answer.status == 401:
        said = f"{said}; write --token-file FILE, or --certificate FILE and --key FILE"
    is_question = answer.status in (400, 404)
    return CommandError(f"{said or answer.status}", exit_code=EXIT_UNUSABLE if is_question else EXIT_FAILED)


def _said(text: str) -> str:
    """The message of a Kubernetes Status, or the text that it is."""
    try:
        status = json.loads(text)
    except ValueError:
        return text
    return str(status["message"]) if isinstance(status, dict) and "message" in status else text


def read_array(pieces: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """The objects of a JSON array (ASCII, as flowjoin writes it) as they come; none of ``null``.

    Raises:
        NoAnswer: it is no such array.
    """
    decoder = json.JSONDecoder()
    text = ""
    is_over = False
    for piece in pieces:
        text += piece.decode("utf-8", errors="replace")
        at = 0
        while not is_over:
            at = _skip(text, at)
            if text.startswith(("]", "null"), at):
                is_over = True
                break
            try:
                item, end = decoder.raw_decode(text, at)
            except json.JSONDecodeError:
                break  # the rest of it comes with the next piece
            if not isinstance(item, dict):
                raise NoAnswer("what answers is no flowjoin: it sent no flow records", exit_code=EXIT_FAILED)
            yield item
            at = end
        text = "" if is_over else text[at:]
    if not is_over:
        raise NoAnswer("the answer is cut short", exit_code=EXIT_FAILED)


def read_events(pieces: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    """The name and the data of each server-sent event as it comes; flowjoin's have one line of data."""
    rest = b""
    name = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            field_name, _, value = line.decode("utf-8", errors="replace").partition(": ")
            if field_name == "event":
                name = value
            elif field_name == "data":
                yield name, value
            elif not line:
                name = ""


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,[":
        at += 1
    return at


def _address(text: str) -> tuple[bool, Endpoint]:
    """Whether TLS is spoken there, and the address."""
    scheme, has_scheme, rest = text.rpartition("://")
    if has_scheme and scheme not in ("http", "https"):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, http://HOST:PORT or https://HOST:PORT")
    try:
        endpoint = Endpoint.from_text(rest.removesuffix("/"))
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc
    if endpoint.port == 0:
        raise argparse.ArgumentTypeError(f"{text!r} needs a port, from 1 to 65535")
    return scheme == "https", endpoint
