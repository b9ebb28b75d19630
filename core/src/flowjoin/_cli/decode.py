"""``flowjoin decode``: what is in a capture or an IPFIX File, before anything is joined."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from flowjoin._cli.decode_lines import DecodeLines, Line
from flowjoin._cli.decode_text import print_counters, print_line
from flowjoin._collector.capture import CaptureReader, CaptureStatistics, SessionEnded, open_capture
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason
from flowjoin.wire.decoder import Decoder
from flowjoin.wire.registry import default_registry

__all__ = ["add_arguments", "explain_end", "progress_of", "run"]

_EXIT_FAILED: Final = 1
_EXIT_UNUSABLE: Final = 2
_EXIT_INTERRUPTED: Final = 130
_LONG_FILE_OCTETS: Final = 8 * 1024 * 1024
_PROGRESS_EVERY_ITEMS: Final = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="a pcap, pcapng or IPFIX File; - reads standard input")
    parser.add_argument(
        "--output",
        choices=("json", "table"),
        help="json: one line per Template and record; table: for people (the default on a terminal)",
    )
    parser.add_argument(
        "--port",
        type=_port,
        action="append",
        metavar="N",
        help="only what was sent to this UDP or TCP port; may be given several times (default: any port)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="refuse Templates with elements that the registry does not have"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what the file holds; gives the exit code."""
    as_table = arguments.output == "table" or (arguments.output is None and sys.stdout.isatty())
    try:
        with (
            open_capture(arguments.file, ports=arguments.port) as capture,
            progress_of(capture, arguments.file) as tell,
        ):
            code = _decode(capture, arguments, _table_writer() if as_table else _json_writer(sys.stdout), tell)
            sys.stdout.flush()
            return code
    except BrokenPipeError:
        # Whoever read our output has enough. Python flushes at exit and must not meet the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        _say(f"cannot read {arguments.file}: {error.strerror or error}")
        return _EXIT_UNUSABLE
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED


def explain_end(error: DecodeError, file: str) -> tuple[str, int]:
    """What to say when a file cannot be read (further), and the exit code."""
    if error.reason is Reason.FILE_FORMAT_UNKNOWN:
        return f"{file} is neither a pcap, a pcapng nor an IPFIX File (a compressed one must be unpacked first)", (
            _EXIT_UNUSABLE
        )
    if error.reason is Reason.FILE_TRUNCATED:
        return f"input file cut short at octet {error.offset}; everything whole before that was read", _EXIT_FAILED
    return f"input file is damaged at octet {error.offset}; everything before that was read", _EXIT_FAILED


@contextlib.contextmanager
def progress_of(capture: CaptureReader, file: str) -> Iterator[Callable[[], None]]:
    """A bar for a long file when a person waits; gives what to call after each item."""
    size = _size_of(file)
    if size < _LONG_FILE_OCTETS or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda: None
        return
    with Progress(
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(file, total=size)
        items = 0

        def tell() -> None:
            nonlocal items
            items += 1
            if items % _PROGRESS_EVERY_ITEMS == 0:
                progress.update(task, completed=capture.offset)

        yield tell


def _decode(
    capture: CaptureReader,
    arguments: argparse.Namespace,
    write: Callable[[Line], None],
    tell: Callable[[], None],
) -> int:
    decoder = Decoder(default_registry(), mode="strict" if arguments.strict else "lenient")
    lines = DecodeLines()
    code = 0
    try:
        for item in capture:
            tell()
            decoder.expire(item.time)
            if isinstance(item, SessionEnded):
                if item.error is not None:
                    lines.count_malformed_message(item.error)
                decoder.close_session(item.session)
                continue
            for line in lines.lines_of(item.session, decoder.receive_message(item.payload, item.session, item.time)):
                write(line)
    except DecodeError as error:
        message, code = explain_end(error, arguments.file)
        if code == _EXIT_UNUSABLE:
            _say(message)
            return code
        lines.count_reason(error.reason)
        _say(message)
    counters = lines.counters()
    write(counters)
    if not code and not counters["messages"] and not counters["malformed_messages"]:
        _say(_why_nothing(capture.statistics(), arguments.port))
    return code


def _why_nothing(statistics: CaptureStatistics, ports: list[int] | None) -> str:
    where = f" sent to port {', '.join(map(str, ports))}" if ports else ""
    return (
        f"no IPFIX Message{where}: {statistics.frames} frames, of them {statistics.datagrams_other} UDP datagrams and "
        f"{statistics.streams_other} TCP streams of other traffic, {statistics.frames_skipped} neither"
    )


def _json_writer(out: TextIO) -> Callable[[Line], None]:
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

    def write(line: Line) -> None:
        out.write(encode(line) + "\n")

    return write


def _table_writer() -> Callable[[Line], None]:
    console = Console(highlight=False)
    return lambda line: (print_counters if line["type"] == "counters" else print_line)(console, line)


def _size_of(file: str) -> int:
    """Octets of a regular file; 0 of anything else."""
    if file == "-":
        return 0
    status = Path(file).stat()
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port <= 65_535:
        raise argparse.ArgumentTypeError(f"{text} is no port: 1 to 65535")
    return port


def _say(message: str) -> None:
    print(f"flowjoin: {message}", file=sys.stderr)
