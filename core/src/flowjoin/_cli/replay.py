"""``flowjoin replay``: a capture through the whole pipeline, with the capture's own clock."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import trio

from flowjoin._cli.capture_file import (
    add_capture_arguments,
    medium_failed,
    opened,
    output_failed,
    progress_of,
    unreadable,
    why_nothing,
)
from flowjoin._cli.commands import EXIT_FAILED, EXIT_UNUSABLE, CommandError
from flowjoin._cli.configuration import add_config_argument, make_logs, read_config, say_notices
from flowjoin._cli.standard_output import watch_reader, writes_to_standard_output
from flowjoin._cli.terminal_exporter import TERMINAL_NAME, TerminalSettings, terminal_exporter_type
from flowjoin._collector.capture import CapturedMessage, CaptureItem
from flowjoin._config.fields import Settings
from flowjoin._config.load import load_config
from flowjoin._config.model import ExporterEntry
from flowjoin._config.nodes import MappingNode
from flowjoin._config.plugin_settings import BoundConfig, BoundPlugin, bind_plugins
from flowjoin._model.errors import DecodeError
from flowjoin._pipeline.replay_program import ReplayOutcome, run_replay
from flowjoin._pipeline.spool.segment_format import is_spool_file
from flowjoin._pipeline.state_directory import is_state_directory
from flowjoin._plugins.loader import load_plugins
from flowjoin._telemetry.logs import Logs
from flowjoin.api import ExporterType
from flowjoin.wire.registry import default_registry

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_capture_arguments(parser)
    add_config_argument(parser, required=False)
    parser.add_argument(
        "--output",
        choices=("json", "table"),
        help="form of the flows on standard output, where no exporter is configured "
        "(default: table on a terminal, else json)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Replay the file; flows go to the configured exporters, or to standard output when there are none.

    Raises:
        CommandError: the file cannot be read, or not to its end; or rows were not delivered.
        BrokenPipeError: nobody reads standard output any more, and all rows were for it.
    """
    _refuse_state(arguments.file)
    loaded = load_config("") if arguments.config is None else read_config(arguments.config)
    # That there is no collector, or no exporter, is no news here.
    say_notices(notice for notice in loaded.warnings if notice.severity == "warning")
    bound = bind_plugins(loaded, load_plugins, default_registry())
    say_notices(bound.remarks)
    logs = make_logs(bound.config.log, level="warning" if arguments.config is None else None)
    scope = trio.CancelScope()
    output_error: OSError | None = None

    def close_output(cause: OSError) -> None:
        nonlocal output_error
        output_error = cause
        scope.cancel()

    if not bound.exporters:
        bound = dataclasses.replace(bound, exporters=(_terminal(arguments.output, close_output),))
    elif arguments.output is not None:
        raise CommandError(
            "--output is for flows on standard output, and the configuration has exporters", exit_code=EXIT_UNUSABLE
        )
    with opened(arguments.file, ports=arguments.port) as capture, progress_of(capture, arguments.file) as tell:
        outcome = _replayed(
            bound,
            _refuse_spool(iter(capture), arguments.file),
            logs,
            scope,
            tell,
        )
        if outcome is None:
            assert output_error is not None, "nothing else cancels a replay"
            raise output_failed(output_error)
        statistics = capture.statistics()
    for problem in outcome.books.imbalances():
        print(f"flowjoin: the books do not balance, which is a bug: {problem}", file=sys.stderr)
    print(outcome.books.table(), file=sys.stderr)
    if isinstance(outcome.fault, DecodeError):
        raise unreadable(outcome.fault, arguments.file)
    if outcome.fault is not None:
        raise medium_failed(outcome.fault, arguments.file)
    if outcome.books.undelivered:
        problem = f"{outcome.books.undelivered} rows were not delivered within shutdownGracePeriod"
        raise CommandError(problem, exit_code=EXIT_FAILED)
    if not outcome.books.kernel.messages:
        print(f"flowjoin: {why_nothing(statistics, arguments.port)}", file=sys.stderr)
    return 0


def _replayed(
    bound: BoundConfig, items: Iterator[CaptureItem], logs: Logs, scope: trio.CancelScope, tell: Callable[[int], None]
) -> ReplayOutcome | None:
    form = os.environ.get("FLOWJOIN_KERNEL", "auto")
    on_output = [writes_to_standard_output(exporter) for exporter in bound.exporters]
    companions = [watch_reader] if any(on_output) else []
    is_interrupted = is_unread = False
    outcome = None
    try:
        outcome = run_replay(bound, items, logs=logs, form=form, scope=scope, tell=tell, companions=companions)
    except* KeyboardInterrupt:  # trio's nurseries put it into groups
        is_interrupted = True
    except* BrokenPipeError:
        is_unread = True
    if is_interrupted:
        raise KeyboardInterrupt
    if is_unread:
        if all(on_output):
            raise BrokenPipeError
        problem = "nobody reads standard output any more, to which an exporter writes; the others may lack rows"
        raise CommandError(problem, exit_code=EXIT_FAILED)
    return outcome


def _refuse_state(file: str) -> None:
    """Refuse what flowjoin itself keeps on disk.

    Raises:
        CommandError: the file is a directory, or lies in a state directory: its flows are joined already.
    """
    path = Path(file).absolute()
    for folder in () if file == "-" else (path, *path.parents):
        if is_state_directory(folder):
            problem = f"{file} belongs to the state directory {folder}: its flows are joined already, replay would join"
            advice = "replay takes what exporters sent; flowjoin spool resend sends what is in a spool"
            raise CommandError(f"{problem} them again; {advice}", exit_code=EXIT_UNUSABLE)


def _refuse_spool(items: Iterator[CaptureItem], file: str) -> Iterator[CaptureItem]:
    """The items, unless they are a segment of a spool, wherever it was copied to.

    Raises:
        CommandError: they are.
    """
    first = next(items, None)
    if first is None:
        return
    if isinstance(first, CapturedMessage) and first.session.protocol == "file" and is_spool_file(first.payload):
        problem = f"{file} is of a spool: its flows are joined already, replay would join them again"
        raise CommandError(f"{problem}; flowjoin spool resend DIR sends them", exit_code=EXIT_UNUSABLE)
    yield first
    yield from items


def _terminal(
    form: Literal["json", "table"] | None, on_closed: Callable[[OSError], None]
) -> BoundPlugin[ExporterEntry, ExporterType]:
    """Standard output as if a configuration had named it."""
    form = form or ("table" if sys.stdout.isatty() else "json")
    entry = ExporterEntry(type=TERMINAL_NAME, spool="none", settings=Settings(node=MappingNode(entries=(), line=0)))
    settings = TerminalSettings(out=sys.stdout, form=form, on_closed=on_closed)
    return BoundPlugin(entry=entry, type=terminal_exporter_type(), settings=settings)
