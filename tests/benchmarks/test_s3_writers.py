"""What an object in a bucket costs: ``pytest tests/benchmarks/test_s3_writers.py --benchmark-columns=median,ops``.

One batch of 8,192 joined flows made into octets, uncompressed; nothing is sent. Operations per second times 8,192 are
rows. Beside the exporter's forms stand the naive ones: csv.writer over rows, json.dumps over dictionaries, rows
into pyarrow; and gzip by itself, whose operations per second times the megabytes of the text (extra info) are MB/s.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
import trio

from flowjoin.api import FlowBatch
from flowjoin.testing import RecordingContext, numbered_flows

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
flowjoin_s3 = pytest.importorskip("flowjoin_s3", reason="the S3 plugin is not installed")

pytestmark = pytest.mark.slow

ROWS = 8192
AT = 1_700_000_000


def batch_of_rows() -> FlowBatch:
    return numbered_flows(ROWS)


def text_of(batch: FlowBatch, **keys: Any) -> bytes:
    from flowjoin_s3._encode import make_writer

    config = flowjoin_s3.S3Config(bucket_name="flows", csv_quoting="antrea", **keys)
    writer = make_writer(config, compatibility="antrea-2.7", cluster_uuid="27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e02")
    return b"".join(writer.render(batch.slice(at, at + writer.rows), AT) for at in range(0, len(batch), writer.rows))


@pytest.mark.parametrize("format_", ["csv", "jsonLines"])
def test_text(benchmark: Any, format_: str) -> None:
    batch = batch_of_rows()
    assert benchmark(text_of, batch, format=format_).count(b"\n") == ROWS


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "zstd"])
def test_parquet(benchmark: Any, compress: bool) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from flowjoin_s3._encode import encoding_of

    config = flowjoin_s3.S3Config(bucket_name="flows", format="parquet", compress=compress)
    batch = batch_of_rows()

    async def encode() -> int:
        encoder = encoding_of(config, RecordingContext(), trio.CapacityLimiter(1)).start(AT)
        return len(await encoder.add(batch)) + len(await encoder.finish())

    assert benchmark(lambda: trio.run(encode)) > 10_000


def test_naive_csv(benchmark: Any) -> None:
    """As csv.writer has it, over rows with the columns of the exporter."""
    from flowjoin_s3._columns import ADDRESSES, CLUSTER_UUID, TIME_INSERTED, columns_of

    batch = batch_of_rows()
    names = [name for name in columns_of("antrea-2.7") if name not in (CLUSTER_UUID, TIME_INSERTED)]

    def write() -> str:
        columns = [
            batch.address_text(ADDRESSES[name]) if name in ADDRESSES else batch.column(name).tolist()  # type: ignore[arg-type]  # its literals
            for name in names
        ]
        file = io.StringIO()
        csv.writer(file).writerows(
            (*row, "27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e02", AT) for row in zip(*columns, strict=True)
        )
        return file.getvalue()

    assert benchmark(write).count("\n") == ROWS


def test_naive_json(benchmark: Any) -> None:
    batch = batch_of_rows()
    assert benchmark(lambda: "".join(json.dumps(row) + "\n" for row in batch.to_dicts())).count("\n") == ROWS


def test_naive_parquet(benchmark: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    batch = batch_of_rows()

    def write() -> int:
        file = io.BytesIO()
        parquet.write_table(pyarrow.Table.from_pylist(batch.to_dicts()), file, compression="zstd")
        return file.tell()

    assert benchmark(write) > 10_000


@pytest.mark.parametrize("format_", ["csv", "jsonLines"])
@pytest.mark.parametrize(("library", "level"), [("zlib", 6), ("isal.isal_zlib", 2)])
def test_gzip(benchmark: Any, format_: str, library: str, level: int) -> None:
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    text = text_of(batch_of_rows(), format=format_)
    zipped = benchmark(module.compress, text, level, 31)
    benchmark.extra_info["megabytes"] = len(text) / 1e6
    benchmark.extra_info["ratio"] = len(text) / len(zipped)
