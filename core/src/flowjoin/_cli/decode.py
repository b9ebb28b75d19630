"""``flowjoin decode``: what is in a capture or an IPFIX File, before anything is joined."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TextIO

from rich.console import Console

from flowjoin._cli.capture_file import (
    add_capture_arguments,
    items_of,
    opened,
    output_failed,
    progress_of,
    unreadable,
    why_nothing,
)
from flowjoin._cli.commands import EXIT_UNUSABLE, CommandError
from flowjoin._cli.decode_lines import DecodeLines, Line
from flowjoin._cli.decode_text import print_counters, print_line
from flowjoin._collector.capture import CaptureReader, SessionEnded
from flowjoin._model.errors import DecodeError
from flowjoin.wire.decoder import Decoder
from flowjoin.wire.registry import default_registry

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_capture_arguments(parser)
    parser.add_argument(
        "--output",
        choices=("json", "table"),
        help="json: one line per Template and record; table: for people (the default on a terminal)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="refuse Templates with elements that the registry does not have"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what the file holds.

    Raises:
        CommandError: the file cannot be read, or not to its end.
    """
    as_table = arguments.output == "table" or (arguments.output is None and sys.stdout.isatty())
    write = _table_writer() if as_table else _json_writer(sys.stdout)
    with opened(arguments.file, ports=arguments.port) as capture, progress_of(capture, arguments.file) as tell:
        try:
            _decode(capture, arguments, write, tell)
        except OSError as exc:  # of our output: those of the file have become sentences already
            raise output_failed(exc) from exc
    return 0


def _decode(
    capture: CaptureReader, arguments: argparse.Namespace, write: Callable[[Line], None], tell: Callable[[int], None]
) -> None:
    decoder = Decoder(default_registry(), mode="strict" if arguments.strict else "lenient")
    lines = DecodeLines()
    end: CommandError | None = None
    try:
        for item in items_of(capture, arguments.file):
            tell(1)
            decoder.expire(item.time)
            if isinstance(item, SessionEnded):
                if item.error is not None:
                    lines.count_malformed_message(item.error)
                decoder.close_session(item.session)
                continue
            for line in lines.lines_of(item.session, decoder.receive_message(item.payload, item.session, item.time)):
                write(line)
            if arguments.file == "-":
                sys.stdout.flush()  # what comes through a pipe may come live
    except DecodeError as error:
        end = unreadable(error, arguments.file)
        if end.exit_code == EXIT_UNUSABLE:
            raise end from error
        lines.count_reason(error.reason)
    counters = lines.counters()
    write(counters)
    sys.stdout.flush()
    if end is not None:
        raise end
    if not counters["messages"] and not counters["malformed_messages"]:
        print(f"flowjoin: {why_nothing(capture.statistics(), arguments.port)}", file=sys.stderr)


def _json_writer(out: TextIO) -> Callable[[Line], None]:
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

    def write(line: Line) -> None:
        out.write(encode(line) + "\n")

    return write


def _table_writer() -> Callable[[Line], None]:
    console = Console(highlight=False)
    return lambda line: (print_counters if line["type"] == "counters" else print_line)(console, line)
