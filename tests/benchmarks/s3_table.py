"""What an object of S3 costs, beside the naive way: ``python tests/benchmarks/s3_table.py``.

Rows a CPU second, all threads together, medians of five runs. The rows are what the kernel makes of an agent's flows
(81 columns, 22 of them strings), in one batch as a lane hands it over; nothing is sent. The naive forms write the
same columns: csv.writer over rows, json.dumps over dictionaries, rows into pyarrow.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import importlib.util
import io
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import pyarrow  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet  # type: ignore[import-untyped]  # pyarrow ships no types
import trio
from rich.console import Console
from rich.table import Table
from writers_table import batches

from flowjoin.api import FlowBatch
from flowjoin.api.lines import ADDRESS_COLUMNS
from flowjoin.testing import RecordingContext
from flowjoin_s3 import S3Config
from flowjoin_s3._columns import CLUSTER_UUID, TIME_INSERTED, columns_of
from flowjoin_s3._encode import encoding_of

RUNS, AT = 5, 1_700_000_000
CONFIG = S3Config(bucket_name="flows", csv_quoting="antrea", compress=False)


def encoded(batch: FlowBatch, *, keep: bool = False, **keys: Any) -> tuple[int, list[bytes]]:
    """An object, as the exporter makes it: octets, and the pieces if they are kept; an upload lets them go."""
    encoding = encoding_of(replace(CONFIG, **keys), RecordingContext(), trio.CapacityLimiter(1))
    octets, kept = 0, []

    async def take(piece: bytes) -> None:
        nonlocal octets
        octets += len(piece)
        if keep:
            kept.append(piece)

    async def encode() -> None:
        encoder, rows = encoding.start(AT, take), range(len(batch))
        for at in range(0, len(rows), encoding.rows):
            await encoder.add(batch, rows[at : at + encoding.rows])
        await encoder.finish()

    trio.run(encode)
    return octets, kept


def naive_csv(batch: FlowBatch) -> bytes:
    columns = [
        batch.address_text(ADDRESS_COLUMNS[name])  # type: ignore[arg-type]  # its literals
        if name in ADDRESS_COLUMNS
        else batch.column(name).tolist()
        for name in columns_of("antrea-2.7")
        if name not in (CLUSTER_UUID, TIME_INSERTED)
    ]
    file = io.StringIO()
    csv.writer(file).writerows((*row, RecordingContext.cluster_uuid, AT) for row in zip(*columns, strict=True))
    return file.getvalue().encode()


def naive_json(batch: FlowBatch) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in batch.to_dicts()).encode()


def naive_parquet(batch: FlowBatch) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(batch.to_dicts()), file, compression="zstd")
    return file.getvalue()


def cpu_seconds(work: Callable[[FlowBatch], object], batch: FlowBatch, runs: int) -> float:
    """The median; each run gets a batch that remembers no texts."""
    taken = []
    for _ in range(runs):
        fresh = batch.slice(0, len(batch))
        began = time.process_time()
        work(fresh)
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def main() -> None:
    batch = FlowBatch.concatenate(batches())
    ways: dict[str, tuple[Callable[[FlowBatch], tuple[int, list[bytes]]], Callable[[FlowBatch], object]]] = {
        "CSV, Antrea's 53 columns": (lambda rows: encoded(rows), naive_csv),
        "JSON lines, 81 members": (lambda rows: encoded(rows, format="jsonLines"), naive_json),
        "Parquet, 81 columns, zstd": (lambda rows: encoded(rows, format="parquet", compress=True), naive_parquet),
    }
    table = Table("object", "rows/s", "naive, rows/s", "octets a row", title=f"{len(batch):,} rows")
    for name, (ours, naive) in ways.items():
        figures = (len(batch) / cpu_seconds(way, batch, runs) for way, runs in ((ours, RUNS), (naive, 2)))
        table.add_row(name, *(f"{figure:,.0f}" for figure in figures), f"{ours(batch)[0] / len(batch):,.0f}")
    gzipped = Table("gzip, in its own thread", "MB/s of text", "rows/s", "ratio")
    for form in ("csv", "jsonLines"):
        text = b"".join(encoded(batch, keep=True, format=form)[1])
        for library, level in (("zlib", 6), ("isal.isal_zlib", 2)):
            if importlib.util.find_spec(library.partition(".")[0]) is None:
                continue
            compress = importlib.import_module(library).compress
            seconds = cpu_seconds(
                lambda _, text=text, compress=compress, level=level: compress(text, level, 31), batch, RUNS
            )  # type: ignore[misc]  # bound now
            zipped = compress(text, level, 31)
            assert gzip.decompress(zipped) == text
            gzipped.add_row(
                f"{form}, {library} {level}",
                f"{len(text) / 1e6 / seconds:,.0f}",
                f"{len(batch) / seconds:,.0f}",
                f"{len(text) / len(zipped):.1f}",
            )
    for each in (table, gzipped):
        Console(width=100).print(each)


if __name__ == "__main__":
    main()
