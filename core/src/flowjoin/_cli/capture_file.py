"""What the commands that read a capture share: its arguments, opening it, progress, and what to say at its end."""

from __future__ import annotations

import argparse
import contextlib
import stat
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from flowjoin._cli.commands import EXIT_FAILED, EXIT_UNUSABLE, CommandError
from flowjoin._cli.streams import forget_output
from flowjoin._collector.capture import CaptureItem, CaptureReader, CaptureStatistics, open_capture
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason

__all__ = [
    "add_capture_arguments",
    "items_of",
    "medium_failed",
    "opened",
    "output_failed",
    "progress_of",
    "unreadable",
    "why_nothing",
]

_LONG_FILE_OCTETS: Final = 8 * 1024 * 1024
_PROGRESS_EVERY_ITEMS: Final = 1024


def add_capture_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare FILE and ``--port``."""
    parser.add_argument("file", metavar="FILE", help="a pcap, pcapng or IPFIX File; - reads standard input")
    parser.add_argument(
        "--port",
        type=_port,
        action="append",
        metavar="N",
        help="only what was sent to this UDP or TCP port; may be given several times (default: any port)",
    )


@contextlib.contextmanager
def opened(file: str, *, ports: Collection[int] | None) -> Iterator[CaptureReader]:
    """The file's reader.

    Raises:
        CommandError: the file cannot be opened, or has no ports that could narrow it.
    """
    with contextlib.ExitStack() as stack:
        try:
            capture = stack.enter_context(open_capture(file, ports=ports))
        except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
            raise medium_failed(exc, file) from exc
        if ports and capture.is_ipfix_file:
            problem = f"{file} is an IPFIX File, which knows no ports: leave --port out"
            raise CommandError(problem, exit_code=EXIT_UNUSABLE)
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
        raise medium_failed(exc, file) from exc


def medium_failed(cause: OSError | ValueError, file: str) -> CommandError:
    """What to say when the file cannot be opened, or its medium fails."""
    said = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return CommandError(f"{file} cannot be read: {said}", exit_code=EXIT_UNUSABLE)


def output_failed(cause: OSError) -> Exception:
    """What to raise when standard output takes nothing more; a closed pipe is the frame's business."""
    if isinstance(cause, BrokenPipeError):
        return cause
    forget_output()
    return CommandError(f"standard output cannot be written: {cause.strerror or cause}", exit_code=EXIT_FAILED)


def unreadable(error: DecodeError, file: str) -> CommandError:
    """What to say when a file cannot be read (further)."""
    if error.reason is Reason.FILE_FORMAT_UNKNOWN:
        problem = f"{file} is neither a pcap, a pcapng nor an IPFIX File (a compressed one must be unpacked first)"
        return CommandError(problem, exit_code=EXIT_UNUSABLE)
    what = "cut short" if error.reason is Reason.FILE_TRUNCATED else "damaged"
    problem = f"input file {what}: {file} was read to octet {error.offset}, everything whole before that counts"
    return CommandError(problem, exit_code=EXIT_FAILED)


@contextlib.contextmanager
def progress_of(capture: CaptureReader, file: str) -> Iterator[Callable[[int], None]]:
    """A bar for a long file when a person waits; gives what to call with the number of items read."""
    size = _size_of(file)
    if size < _LONG_FILE_OCTETS or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda _items: None
        return
    with Progress(
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(file, total=size)
        untold = 0

        def tell(items: int) -> None:
            nonlocal untold
            untold += items
            if untold >= _PROGRESS_EVERY_ITEMS:
                untold = 0
                progress.update(task, completed=capture.offset)

        yield tell


def why_nothing(statistics: CaptureStatistics, ports: list[int] | None) -> str:
    """What a capture without Messages holds instead."""
    where = f" sent to port {', '.join(map(str, ports))}" if ports else ""
    found = ", ".join(f"{count} of NetFlow v{version}" for version, count in statistics.datagrams_netflow.items())
    netflow = f", but UDP datagrams of what this version does not read ({found})" if found else ""
    return (
        f"no IPFIX Message{where}{netflow}: {statistics.frames} frames, of them "
        f"{statistics.datagrams_other} UDP datagrams and {statistics.streams_other} TCP streams of other traffic, "
        f"{statistics.frames_skipped} neither"
    )


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
