"""``flowjoin decode``: what is in a capture or an IPFIX File, before anything is joined."""

from __future__ import annotations

import argparse
import contextlib
import json
import stat
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from flowjoin._cli.commands import CommandError
from flowjoin._cli.decode_lines import DecodeLines, Line
from flowjoin._cli.decode_text import print_counters, print_line
from flowjoin._collector.capture import CaptureItem, CaptureReader, CaptureStatistics, SessionEnded, open_capture
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason
from flowjoin.wire.decoder import Decoder
from flowjoin.wire.registry import default_registry

__all__ = ["add_arguments", "items_of", "opened", "progress_of", "run", "unreadable"]

EXIT_FAILED: Final = 1
EXIT_UNUSABLE: Final = 2
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
    """Print what the file holds.

    Raises:
        CommandError: the file cannot be read, or not to its end.
    """
    as_table = arguments.output == "table" or (arguments.output is None and sys.stdout.isatty())
    write = _table_writer() if as_table else _json_writer(sys.stdout)
    with opened(arguments.file, ports=arguments.port) as capture, progress_of(capture, arguments.file) as tell:
        _decode(capture, arguments, write, tell)
    return 0


@contextlib.contextmanager
def opened(file: str, *, ports: Collection[int] | None) -> Iterator[CaptureReader]:
    """The file's reader.

    Raises:
        CommandError: the file cannot be opened.
    """
    with contextlib.ExitStack() as stack:
        try:
            capture = stack.enter_context(open_capture(file, ports=ports))
        except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
            raise _unreadable_for(exc, file) from exc
        yield capture


def items_of(capture: CaptureReader, file: str) -> Iterator[CaptureItem]:
    """The reader's items.

    Raises:
        CommandError: the file cannot be read further, because its medium says so.
        DecodeError: because of what is in it.
    """
    try:
        yield from capture
    except OSError as exc:
        raise _unreadable_for(exc, file) from exc


def _unreadable_for(cause: OSError | ValueError, file: str) -> CommandError:
    said = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return CommandError(f"{file} cannot be read: {said}", exit_code=EXIT_UNUSABLE)


def unreadable(error: DecodeError, file: str) -> CommandError:
    """What to say when a file cannot be read (further)."""
    if error.reason is Reason.FILE_FORMAT_UNKNOWN:
        problem = f"{file} is neither a pcap, a pcapng nor an IPFIX File (a compressed one must be unpacked first)"
        return CommandError(problem, exit_code=EXIT_UNUSABLE)
    what = "cut short" if error.reason is Reason.FILE_TRUNCATED else "damaged"
    problem = f"input file {what}: {file} was read to octet {error.offset}, everything whole before that counts"
    return CommandError(problem, exit_code=EXIT_FAILED)


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
    capture: CaptureReader, arguments: argparse.Namespace, write: Callable[[Line], None], tell: Callable[[], None]
) -> None:
    decoder = Decoder(default_registry(), mode="strict" if arguments.strict else "lenient")
    lines = DecodeLines()
    end: CommandError | None = None
    try:
        for item in items_of(capture, arguments.file):
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
        print(f"flowjoin: {_why_nothing(capture.statistics(), arguments.port)}", file=sys.stderr)


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
