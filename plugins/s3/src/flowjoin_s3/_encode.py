"""From rows to an object's octets, a piece at a time: text is rendered on trio's thread, all else in a thread.

Invariant: the octets follow from the rows, the settings and ``inserted_at`` alone; a batch that comes again makes the
same object.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import trio

from flowjoin.api import ConfigError, FlowBatch, PluginContext
from flowjoin_s3._columns import columns_of, refuse_unknown_elements
from flowjoin_s3._config import S3Config
from flowjoin_s3._csv import CsvWriter
from flowjoin_s3._json_lines import JsonLinesWriter

__all__ = ["Encoder", "Encoding", "RowWriter", "encoding_of", "make_writer"]

_GZIP: Final = 16 + zlib.MAX_WBITS  # zlib's way of asking for gzip's header; it holds no time, so octets repeat
_ZLIB_LEVEL: Final = 6  # the default of gzip, and of Antrea's uploader
_ISAL_LEVEL: Final = 2  # of 0 to 3: lines of CSV become as small as with zlib's 6, ten times as fast
_TO_THREAD: Final = 512 * 1024  # octets that are worth the way to a thread: about 5 ms of gzip
_ROW_GROUP: Final = 65_536


class RowWriter(Protocol):
    """Makes lines of the flows of one object; compiled writers have the same names."""

    @property
    def rows(self) -> int:
        """How many rows one call takes without holding the thread for long."""
        ...

    @property
    def header(self) -> bytes: ...
    def render(self, part: FlowBatch, inserted_at: int, /) -> bytes: ...


class Encoder(Protocol):
    """Makes one object."""

    async def add(self, part: FlowBatch) -> bytes:
        """Take the next rows; gives what is ready, maybe nothing."""
        ...

    async def finish(self) -> bytes:
        """No more rows: the rest."""
        ...


@dataclass(frozen=True, slots=True)
class Encoding:
    """How objects are made.

    Attributes:
        suffix: of their keys.
        content_type: that they are stored with.
        rows: that an Encoder takes at a time.
        start: makes the Encoder of an object whose rows are inserted at that second.
    """

    suffix: str
    content_type: str
    rows: int
    start: Callable[[int], Encoder]


def make_writer(config: S3Config, *, compatibility: str, cluster_uuid: str) -> RowWriter:
    """What renders lines, for csv and jsonLines."""
    iso_times = config.time_format == "iso8601"
    if config.format == "jsonLines":
        return JsonLinesWriter(config.elements, iso_times=iso_times, omit_defaults=config.omit_defaults)
    return CsvWriter(
        columns_of(compatibility, config.elements),
        is_quoted=config.csv_quoting == "rfc4180",
        iso_times=iso_times,
        unset_addresses_empty=compatibility != "antrea-2.3",
        cluster_uuid=cluster_uuid,
        header=config.header,
    )


def encoding_of(config: S3Config, context: PluginContext, limiter: trio.CapacityLimiter) -> Encoding:
    """What the configuration asks for.

    Raises:
        ConfigError: an element is unknown, or pyarrow is missing.
    """
    refuse_unknown_elements(config.elements, context.registry)
    if config.format == "parquet":
        _pyarrow_parquet()
        return Encoding(
            ".parquet",
            "application/vnd.apache.parquet",
            _ROW_GROUP,
            lambda _inserted_at: _ParquetEncoder(config.elements, config.compress, limiter),
        )

    def start_writer() -> RowWriter:
        return make_writer(config, compatibility=context.compatibility, cluster_uuid=context.cluster_uuid)

    suffix, content_type = (".csv", "text/csv") if config.format == "csv" else (".jsonl", "application/x-ndjson")
    if config.compress:
        suffix, content_type = f"{suffix}.gz", "application/gzip"
    return Encoding(
        suffix,
        content_type,
        start_writer().rows,
        lambda inserted_at: _TextEncoder(start_writer(), inserted_at, config.compress, limiter),
    )


class _TextEncoder:
    def __init__(self, writer: RowWriter, inserted_at: int, compress: bool, limiter: trio.CapacityLimiter) -> None:
        self._writer = writer
        self._inserted_at = inserted_at
        self._gzip = _gzip_compressor() if compress else None
        self._limiter = limiter
        self._lines = [writer.header]
        self._octets = len(writer.header)

    async def add(self, part: FlowBatch) -> bytes:
        lines = self._writer.render(part, self._inserted_at)
        self._lines.append(lines)
        self._octets += len(lines)
        if self._octets >= _TO_THREAD:
            return await self._take()
        await trio.lowlevel.checkpoint()
        return b""

    async def finish(self) -> bytes:
        rest = await self._take()
        return rest + bytes(self._gzip.flush()) if self._gzip else rest

    async def _take(self) -> bytes:
        text = b"".join(self._lines)
        self._lines, self._octets = [], 0
        if self._gzip is None:
            await trio.lowlevel.checkpoint()
            return text
        return await trio.to_thread.run_sync(self._gzip.compress, text, limiter=self._limiter)


def _gzip_compressor() -> Any:  # isal has the same object as zlib
    if importlib.util.find_spec("isal") is None:
        return zlib.compressobj(_ZLIB_LEVEL, wbits=_GZIP)
    return importlib.import_module("isal.isal_zlib").compressobj(_ISAL_LEVEL, wbits=_GZIP)


class _ParquetEncoder:
    """All of it in a thread: Arrow works outside the interpreter's lock."""

    def __init__(self, extra: Sequence[str], compress: bool, limiter: trio.CapacityLimiter) -> None:
        self._extra = tuple(dict.fromkeys(extra))
        self._compression = "zstd" if compress else "none"
        self._limiter = limiter
        self._sink = _Sink()
        self._writer: Any = None  # pyarrow has no types

    async def add(self, part: FlowBatch) -> bytes:
        return await trio.to_thread.run_sync(self._write, part, limiter=self._limiter)

    async def finish(self) -> bytes:
        return await trio.to_thread.run_sync(self._close, limiter=self._limiter)

    def _write(self, part: FlowBatch) -> bytes:
        pyarrow, parquet = _pyarrow_parquet()
        missing = {name: part.column(name) for name in self._extra if name not in part.schema}
        table = pyarrow.table(part.with_columns(missing) if missing else part)
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._sink, table.schema, compression=self._compression)
        self._writer.write_table(table, row_group_size=_ROW_GROUP)
        return self._sink.take()

    def _close(self) -> bytes:
        self._writer.close()
        return self._sink.take()


class _Sink(io.RawIOBase):
    """A file that only grows, and whose octets may leave before its end is written."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, octets: Any) -> int:  # whatever has a buffer
        piece = bytes(octets)
        self._pieces.append(piece)
        self._position += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._position

    def take(self) -> bytes:
        """What was written since the last time."""
        octets = b"".join(self._pieces)
        self._pieces = []
        return octets


def _pyarrow_parquet() -> tuple[Any, Any]:
    try:
        import pyarrow  # type: ignore[import-untyped]  # pyarrow ships no types
        import pyarrow.parquet  # type: ignore[import-untyped]  # pyarrow ships no types
    except ImportError as exc:
        problem = "parquet needs pyarrow: pip install 'flowjoin-s3[parquet]'"
        raise ConfigError(problem, path="format") from exc
    return pyarrow, pyarrow.parquet
