"""From rows to an object's octets, some rows at a time: text is rendered on trio's thread, all else in a thread.

Invariant: the octets follow from the rows, the settings and ``inserted_at`` alone; a batch that comes again makes the
same object.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeAlias

import trio

from flowjoin.api import ConfigError, FlowBatch, PluginContext
from flowjoin.api.lines import CsvLines, JsonLines, refuse_unknown_elements
from flowjoin_s3._columns import CLUSTER_UUID, LABELS, TIME_INSERTED, columns_of
from flowjoin_s3._config import S3Config

__all__ = ["Encoder", "Encoding", "RowWriter", "Write", "encoding_of", "make_writer"]

_GZIP: Final = 16 + zlib.MAX_WBITS  # zlib's way of asking for gzip's header; it holds no time, so octets repeat
_ZLIB_LEVEL: Final = 6  # the default of gzip, and of Antrea's uploader
_ISAL_LEVEL: Final = 2  # of 0 to 3: lines of CSV become a fifth larger than with zlib's 6, twenty times as fast
_TO_THREAD: Final = 512 * 1024  # octets that are worth the way to a thread: about 5 ms of gzip
_TEXT_ROWS: Final = 4096  # that follow one another
_PICKED_ROWS: Final = 1024  # to pick them out of a batch, column by column, takes about 5 ms
_ROW_GROUP: Final = 65_536


Write: TypeAlias = Callable[[bytes], Awaitable[None]]


class RowWriter(Protocol):
    """Makes lines of the flows of one object."""

    @property
    def header(self) -> bytes: ...
    def render(self, batch: FlowBatch) -> Iterable[bytes]:
        """Whole lines; between two pieces there is time for others."""
        ...


class Encoder(Protocol):
    """Makes one object of rows of one batch, and hands its octets on as they come."""

    async def add(self, batch: FlowBatch, rows: Sequence[int]) -> None:
        """Take the next rows, a ``range`` where they follow one another."""
        ...

    async def finish(self) -> None:
        """No more rows: hand on the rest."""
        ...


@dataclass(frozen=True, slots=True)
class Encoding:
    """How objects are made.

    Attributes:
        suffix: of their keys.
        content_type: that they are stored with.
        rows: that an Encoder takes at a time.
        start: makes the Encoder of an object whose rows are inserted at that second, and whose octets go there.
    """

    suffix: str
    content_type: str
    rows: int
    start: Callable[[int, Write], Encoder]


def make_writer(config: S3Config, *, compatibility: str, cluster_uuid: str, inserted_at: int) -> RowWriter:
    """What renders lines, for csv and jsonLines; ``inserted_at`` are the seconds of the column timeInserted."""
    iso_times = config.time_format == "iso8601"
    if config.format == "jsonLines":
        return JsonLines(config.elements, iso_times=iso_times, omit_defaults=config.omit_defaults)
    inserted = f"{datetime.fromtimestamp(inserted_at, UTC):%Y-%m-%dT%H:%M:%SZ}" if iso_times else str(inserted_at)
    return CsvLines(
        columns_of(compatibility, config.elements),
        is_quoted=config.csv_quoting == "rfc4180",
        iso_times=iso_times,
        unset_addresses_empty=compatibility != "antrea-2.3",
        single_quoted=LABELS,
        constants={CLUSTER_UUID: cluster_uuid, TIME_INSERTED: inserted},
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
            lambda _inserted_at, write: _ParquetEncoder(config.elements, config.compress, limiter, write),
        )

    def start_writer(inserted_at: int, write: Write) -> _TextEncoder:
        writer = make_writer(
            config,
            compatibility=context.compatibility,
            cluster_uuid=context.cluster_uuid,
            inserted_at=inserted_at,
        )
        return _TextEncoder(writer, writer.header if config.header else b"", config.compress, limiter, write)

    suffix, content_type = (".csv", "text/csv") if config.format == "csv" else (".jsonl", "application/x-ndjson")
    if config.compress:
        suffix, content_type = f"{suffix}.gz", "application/gzip"
    return Encoding(suffix, content_type, _TEXT_ROWS, start_writer)


class _TextEncoder:
    """Text leaves as soon as it is worth the way: what is made next lies where it lay, in memory that is warm."""

    def __init__(
        self, writer: RowWriter, header: bytes, compress: bool, limiter: trio.CapacityLimiter, write: Write
    ) -> None:
        self._writer = writer
        self._gzip = _gzip_compressor() if compress else None
        self._limiter = limiter
        self._write = write
        self._lines = [header]
        self._octets = len(header)

    async def add(self, batch: FlowBatch, rows: Sequence[int]) -> None:
        step = _TEXT_ROWS if isinstance(rows, range) else _PICKED_ROWS
        for start in range(0, len(rows), step):
            chosen = rows[start : start + step]
            part = batch.slice(chosen.start, chosen.stop) if isinstance(chosen, range) else batch.take(chosen)
            for lines in self._writer.render(part):
                self._lines.append(lines)
                self._octets += len(lines)
                if self._octets >= _TO_THREAD:
                    await self._hand_on()
                else:
                    await trio.lowlevel.checkpoint()

    async def finish(self) -> None:
        await self._hand_on()
        if self._gzip is not None:
            await self._write(bytes(self._gzip.flush()))

    async def _hand_on(self) -> None:
        text = b"".join(self._lines)
        self._lines, self._octets = [], 0
        if self._gzip is not None:
            text = await trio.to_thread.run_sync(self._gzip.compress, text, limiter=self._limiter)
        await self._write(text)


def _gzip_compressor() -> Any:  # isal has the same object as zlib
    if importlib.util.find_spec("isal") is None:
        return zlib.compressobj(_ZLIB_LEVEL, wbits=_GZIP)
    return importlib.import_module("isal.isal_zlib").compressobj(_ISAL_LEVEL, wbits=_GZIP)


class _ParquetEncoder:
    """All of it in a thread: Arrow works outside the interpreter's lock."""

    def __init__(self, extra: Sequence[str], compress: bool, limiter: trio.CapacityLimiter, write: Write) -> None:
        self._extra = tuple(dict.fromkeys(extra))
        self._compression = "zstd" if compress else "none"
        self._limiter = limiter
        self._hand_on = write
        self._sink = _Sink()
        self._table: Any = None  # pyarrow has no types; of all rows of the batch, which it shares
        self._writer: Any = None

    async def add(self, batch: FlowBatch, rows: Sequence[int]) -> None:
        await self._hand_on(await trio.to_thread.run_sync(self._write, batch, rows, limiter=self._limiter))

    async def finish(self) -> None:
        await self._hand_on(await trio.to_thread.run_sync(self._close, limiter=self._limiter))

    def _write(self, batch: FlowBatch, rows: Sequence[int]) -> bytes:
        pyarrow, parquet = _pyarrow_parquet()
        if self._writer is None:
            missing = {name: batch.column(name) for name in self._extra if name not in batch.schema}
            self._table = pyarrow.table(batch.with_columns(missing) if missing else batch)
            self._writer = parquet.ParquetWriter(self._sink, self._table.schema, compression=self._compression)
        chosen = self._table.slice(rows.start, len(rows)) if isinstance(rows, range) else self._table.take(rows)
        if len(rows) < len(batch):
            chosen = _with_own_dictionaries(chosen)
        self._writer.write_table(chosen, row_group_size=_ROW_GROUP)
        return self._sink.take()

    def _close(self) -> bytes:
        self._writer.close()
        return self._sink.take()


def _with_own_dictionaries(table: Any) -> Any:
    """Some rows of a batch, without the texts that only other rows have: they would all be written."""
    pyarrow, _ = _pyarrow_parquet()
    for at, field in enumerate(table.schema):
        if pyarrow.types.is_dictionary(field.type):
            values = table.column(at).cast(field.type.value_type).dictionary_encode()
            table = table.set_column(at, field, values)
    return table


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
