"""Asks a running flowjoin's HTTP API."""

from __future__ import annotations

import argparse
import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from flowjoin._cli.commands import EXIT_FAILED, EXIT_UNUSABLE, CommandError
from flowjoin._cli.configuration import read_config
from flowjoin._config.endpoint import Endpoint
from flowjoin._config.model import ApiServer

__all__ = ["Answer", "NoAnswer", "add_server_arguments", "ask", "read_array", "refusal", "server_of"]

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


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--server`` and ``-c``."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--server",
        type=_endpoint,
        metavar="HOST:PORT",
        help=f"where the running flowjoin answers (default: {ApiServer().endpoint})",
    )
    group.add_argument("-c", "--config", metavar="FILE", help="its configuration, which says where it answers")


def server_of(arguments: argparse.Namespace) -> Endpoint:
    """Whom to ask.

    Raises:
        ConfigError: the configuration cannot be used.
        CommandError: it switches the API off, or leaves the port to the system.
    """
    server: Endpoint | None = arguments.server or ApiServer().endpoint
    if arguments.config is not None:
        server = read_config(arguments.config).config.api_server.endpoint
    if server is None:
        problem = f"{arguments.config} switches the HTTP API off: apiServer.address is none"
        raise CommandError(problem, exit_code=EXIT_UNUSABLE)
    if server.port == 0:
        problem = f"{arguments.config} leaves the port to the system; the log line api_ready has it: use --server"
        raise CommandError(problem, exit_code=EXIT_UNUSABLE)
    return server


@contextmanager
def ask(server: Endpoint, path: str, parameters: Mapping[str, str] | None = None) -> Iterator[Answer]:
    """GET a path; the body is read inside the block.

    Raises:
        NoAnswer: nobody answers, or not to the end.
    """
    connection = http.client.HTTPConnection(server.host, server.port, timeout=_TIMEOUT_SECONDS)
    try:
        with _translated(server):
            connection.request("GET", f"{path}?{urlencode(parameters)}" if parameters else path)
            response = connection.getresponse()

        def pieces() -> Iterator[bytes]:
            while True:
                with _translated(server):
                    piece = response.read(_PIECE)
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
def _translated(server: Endpoint) -> Iterator[None]:
    try:
        yield
    except ConnectionRefusedError as exc:
        problem = f"nobody answers at {server}; is flowjoin running, and is that its apiServer.address?"
        raise NoAnswer(problem, exit_code=EXIT_FAILED) from exc
    except (OSError, http.client.HTTPException) as exc:
        cause = (exc.strerror if isinstance(exc, OSError) else None) or f"{type(exc).__name__}: {exc}"
        raise NoAnswer(f"no whole answer from {server}: {cause}", exit_code=EXIT_FAILED) from exc


def refusal(answer: Answer) -> CommandError:
    """What a reply that is not 200 says."""
    said = answer.body()[:_MAX_REFUSAL].decode(errors="replace").strip()
    is_question = answer.status in (400, 404)
    return CommandError(f"{said or answer.status}", exit_code=EXIT_UNUSABLE if is_question else EXIT_FAILED)


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


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,[":
        at += 1
    return at


def _endpoint(text: str) -> Endpoint:
    try:
        endpoint = Endpoint.from_text(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc
    if endpoint.port == 0:
        raise argparse.ArgumentTypeError(f"{text!r} needs a port, from 1 to 65535")
    return endpoint
