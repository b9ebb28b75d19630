"""The exporter's life: renders on trio's thread in short slices, writes in a worker thread.

Rendering stays on trio's thread, with a checkpoint after each slice: a worker thread that computes would hold the
interpreter's lock for whole switch intervals, and every system call of the collectors would wait for it.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

import trio

from flowjoin.api import ConfigError, Exporter, FlowBatch, PluginContext, RetryableExportError
from flowjoin.api.lines import CsvLines, JsonLines, refuse_unknown_elements
from flowjoin_log._backups import Backups
from flowjoin_log._columns import columns_of
from flowjoin_log._config import STANDARD_OUTPUT, LogConfig
from flowjoin_log._file import Destination, RotatingFile, StandardOutput
from flowjoin_log._filters import FlowFilters
from flowjoin_log._pretty import PRETTY
from flowjoin_log._progress import NoteError, Progress
from flowjoin_log._table import TableWriter

__all__ = ["RowWriter", "make_writer", "open_log"]

_MEGABYTE: Final = 1024 * 1024
_MOST_LINES: Final = 256  # between two chunks of lines the file may be rotated
_RETRY_SECONDS: Final = 1.0
_TIDY_SECONDS: Final = 3600.0  # files also grow too old while nothing is rotated
_CLOSE_SECONDS: Final = 5.0
_FILE_WIDTH: Final = 160
# What a full disk or a busy machine answers: no reason to refuse the configuration.
_MOMENTARY: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ENFILE, errno.EMFILE})


class RowWriter(Protocol):
    """Makes lines of flows."""

    @property
    def header(self) -> bytes: ...
    def render(self, batch: FlowBatch) -> Iterable[bytes]: ...


def make_writer(config: LogConfig, *, compatibility: str, terminal_width: int | None, colours: bool) -> RowWriter:
    """The writer that the configuration asks for.

    Args:
        terminal_width: cells of a line; None when no terminal is written to.
    """
    iso_times = config.time_format == "iso8601"
    match config.format:
        case "csv":
            return CsvLines(
                columns_of(compatibility, config.elements),
                is_quoted=config.csv_quoting == "rfc4180",
                words=PRETTY if config.pretty_print else None,
                iso_times=iso_times,
                unset_addresses_empty=compatibility != "antrea-2.3",
                most_lines=_MOST_LINES,
            )
        case "jsonLines":
            return JsonLines(
                config.elements, iso_times=iso_times, omit_defaults=config.omit_defaults, most_lines=_MOST_LINES
            )
        case "table":
            return TableWriter(width=terminal_width or _FILE_WIDTH, colours=colours)


class _LogExporter:
    def __init__(
        self, writer: RowWriter, filters: FlowFilters, destination: Destination, path: str, context: PluginContext
    ) -> None:
        self._writer = writer
        self._filters = filters
        self._destination = destination
        self._path = path
        self._log = context.log
        self._rows = context.counter("rows_delivered", "Rows written to the log")
        self._filtered = context.counter("rows_filtered", "Rows that no filter matched")
        self._octets = context.counter("octets", "Octets written to the log")
        self._rotations = context.counter("rotations", "Files that were rotated")
        self._limiter = trio.CapacityLimiter(1)
        self.rotated = trio.Event()

    async def export(self, batch: FlowBatch) -> None:
        wanted = self._filters.apply(batch)
        chunks = []
        for chunk in self._writer.render(wanted):
            chunks.append(chunk)
            await trio.lowlevel.checkpoint()
        if chunks:
            try:
                written = await trio.to_thread.run_sync(
                    self._destination.write,
                    chunks,
                    batch.id,
                    abandon_on_cancel=self._destination.may_stall,
                    limiter=self._limiter,
                )
            except OSError as exc:
                problem = f"cannot write {self._path}: {exc.strerror or exc}"
                raise RetryableExportError(problem, retry_after=_RETRY_SECONDS) from exc
            if written.was_there:
                self._log.info("batch_was_written", batch=batch.id, cause="a crash came before it was acknowledged")
            self._octets.inc(written.octets)
            self._rotations.inc(written.rotations)
            if written.rotations:
                self._log.info("file_rotated", path=self._path, files=written.rotations)
                self.rotated.set()
            if written.reopened:
                self._log.info("file_reopened", path=self._path, cause="it was moved or deleted")
        else:
            await trio.lowlevel.checkpoint()
        self._rows.inc(len(wanted))
        self._filtered.inc(len(batch) - len(wanted))


async def _keep_tidy(exporter: _LogExporter, backups: Backups, context: PluginContext) -> None:
    limiter = trio.CapacityLimiter(1)
    while True:
        exporter.rotated = trio.Event()
        try:
            await trio.to_thread.run_sync(backups.tidy, limiter=limiter)
        except OSError as exc:
            context.log.warning("rotated_files_not_tidied", path=str(backups.path), cause=str(exc))
        with trio.move_on_after(_TIDY_SECONDS):
            await exporter.rotated.wait()


@asynccontextmanager
async def open_log(config: LogConfig, context: PluginContext) -> AsyncIterator[Exporter]:
    """Open the log.

    Raises:
        ConfigError: the path cannot be a log, another instance writes to it, or an element is unknown.
    """
    refuse_unknown_elements(config.elements, context.registry)
    filters = FlowFilters(config.filters)
    to_standard_output = config.path in STANDARD_OUTPUT
    is_terminal = to_standard_output and os.isatty(1)
    writer = make_writer(
        config,
        compatibility=context.compatibility,
        terminal_width=shutil.get_terminal_size().columns if is_terminal else None,
        colours=is_terminal and not os.environ.get("NO_COLOR"),
    )
    header = writer.header if config.header else b""
    if to_standard_output:
        output = StandardOutput(header)
        output.open()
        try:
            yield _LogExporter(writer, filters, output, "standard output", context)
        finally:
            output.close()
        return
    try:  # rotated files lie beside the file itself
        path = Path(await trio.to_thread.run_sync(os.path.realpath, config.path))
    except ValueError as exc:  # letters that this system's file names do not have
        raise ConfigError(f"{config.path!r} cannot be a file here: {exc}; use ASCII letters", path="path") from exc
    stopping = threading.Event()
    writing = threading.Lock()
    file = RotatingFile(
        path,
        max_octets=config.max_size * _MEGABYTE,
        header=header,
        clock=time.time,
        writing=writing,
        progress=None if context.state_directory is None else Progress(context.state_directory),
    )
    backups = Backups(
        path=path,
        max_backups=config.max_backups,
        max_age=config.max_age,
        compress=config.compress,
        should_stop=stopping.is_set,
        clock=time.time,
        writing=writing,
    )
    try:
        await trio.to_thread.run_sync(file.open)
    except OSError as exc:
        if isinstance(exc, NoteError):
            raise ConfigError(exc.strerror or str(exc)) from exc
        if exc.errno not in _MOMENTARY:
            raise ConfigError(f"{config.path} cannot be a log: {exc.strerror}", path="path") from exc
        context.log.warning("file_not_opened", path=config.path, cause=exc.strerror)  # each export tries again
    exporter = _LogExporter(writer, filters, file, config.path, context)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_keep_tidy, exporter, backups, context)
            try:
                yield exporter
            finally:
                stopping.set()
                nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(_CLOSE_SECONDS, shield=True):  # closing can wait for a disk far away
            await trio.to_thread.run_sync(file.close, abandon_on_cancel=True)
