"""Octets of objects follow from rows and settings, and hold every row."""

from __future__ import annotations

import gzip
import importlib.util
import io
import sys
import zlib
from dataclasses import replace
from typing import Any

import pytest
import trio

from flowjoin.api import ConfigError, FlowBatch
from flowjoin.testing import RecordingContext, every_data_type, hostile_flows, numbered_flows, plain_flows
from flowjoin_s3 import S3Config
from flowjoin_s3._encode import Write, encoding_of

CONFIG = S3Config(bucket_name="flows")


async def pieces_of(batch: FlowBatch, rows: int | None = None, **keys: Any) -> list[bytes]:
    encoding = encoding_of(replace(CONFIG, **keys), RecordingContext(), trio.CapacityLimiter(1))
    pieces: list[bytes] = []
    encoder = encoding.start(1700000000, into(pieces))
    step = rows or encoding.rows
    for at in range(0, len(batch), step):
        await encoder.add(batch, range(len(batch))[at : at + step])
    await encoder.finish()
    return pieces


def into(pieces: list[bytes]) -> Write:
    """Keeps what an encoder hands on."""

    async def keep(octets: bytes) -> None:
        await trio.lowlevel.checkpoint()
        pieces.append(octets)

    return keep


async def encoded(batch: FlowBatch, rows: int | None = None, **keys: Any) -> bytes:
    return b"".join(await pieces_of(batch, rows, **keys))


@pytest.fixture(params=["zlib", "isal"])
def _each_gzip(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "isal":
        pytest.importorskip("isal", reason="isal is not installed")
    else:
        find_spec = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "isal" else find_spec(name))


@pytest.mark.usefixtures("_each_gzip")
@pytest.mark.parametrize("format_", ["csv", "jsonLines"])
async def test_gzip_is_one_member_with_the_same_text(format_: str) -> None:
    batch = numbered_flows(3000)
    plain = await encoded(batch, format=format_, compress=False)
    zipped = await encoded(batch, format=format_)
    assert zipped == await encoded(batch, format=format_)  # no time of day is in it
    member = zlib.decompressobj(wbits=31)
    assert member.decompress(zipped) == plain
    assert member.eof
    assert member.unused_data == b""
    assert plain.count(b"\n") == 3000


@pytest.mark.parametrize("format_", ["csv", "jsonLines", "parquet"])
async def test_rows_can_be_picked_out_of_a_batch(format_: str) -> None:
    batch, rows = numbered_flows(700), [0, 3, 4, 500, 699]
    picked: list[bytes] = []
    encoder = encoding_of(
        replace(CONFIG, format=format_, compress=False), RecordingContext(), trio.CapacityLimiter(1)
    ).start(1700000000, into(picked))
    for chosen in (rows[:2], rows[2:]):
        await encoder.add(batch, chosen)
    await encoder.finish()
    octets, wanted = b"".join(picked), await encoded(batch.take(rows), format=format_, compress=False)
    if format_ == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
        mine, theirs = (parquet.read_table(io.BytesIO(each)) for each in (octets, wanted))
        assert mine.to_pylist() == theirs.to_pylist()
        assert mine.schema == theirs.schema
        assert b"10.0.0.3" in octets
        assert b"10.0.0.9" not in octets  # no text of a row that is not here
    else:
        assert octets == wanted


@pytest.mark.parametrize("format_", ["csv", "jsonLines", "parquet"])
async def test_the_same_rows_make_the_same_octets(format_: str) -> None:
    assert await encoded(numbered_flows(700), format=format_) == await encoded(numbered_flows(700), format=format_)


async def test_text_leaves_while_the_object_grows() -> None:
    pieces = await pieces_of(numbered_flows(20_000), compress=False)
    assert len([piece for piece in pieces if piece]) > 2
    assert max(map(len, pieces)) < 4 * 1024 * 1024


async def test_a_header_is_the_first_line_of_the_object_only() -> None:
    lines = gzip.decompress(await encoded(numbered_flows(600), header=True)).split(b"\n")
    assert lines[0].startswith(b"flowStartSeconds,")
    assert len(lines) == 602
    assert sum(line.startswith(b"flowStartSeconds") for line in lines) == 1


@pytest.mark.parametrize("batch", [numbered_flows(1000), plain_flows(9), hostile_flows(), every_data_type()], ids=str)
@pytest.mark.parametrize("rows", [None, 7])
async def test_parquet_has_the_rows_as_arrow_has_them(batch: FlowBatch, rows: int | None) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    table = parquet.read_table(io.BytesIO(await encoded(batch, rows, format="parquet")))
    wanted = pyarrow.table(batch)
    assert table.column_names == wanted.column_names
    for field in table.schema:
        mine, theirs = table.column(field.name), wanted.column(field.name).cast(field.type)
        if pyarrow.types.is_timestamp(field.type):  # some are later than Python's calendar
            mine, theirs = mine.cast("int64"), theirs.cast("int64")
        assert repr(mine.to_pylist()) == repr(theirs.to_pylist())  # repr: one NaN is as good as another


async def test_parquet_leaves_while_the_object_grows_and_can_be_uncompressed() -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    pieces = await pieces_of(numbered_flows(3000), 1000, format="parquet", compress=False)
    assert all(len(piece) > 10_000 for piece in pieces[:-1])
    file = parquet.ParquetFile(io.BytesIO(b"".join(pieces)))
    assert file.num_row_groups == 3
    assert file.metadata.row_group(0).column(0).compression == "UNCOMPRESSED"
    assert len(await encoded(numbered_flows(3000), format="parquet")) < sum(map(len, pieces))


async def test_parquet_has_extra_elements() -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    octets = await encoded(plain_flows(2), format="parquet", elements=("sourcePodName", "flowEndSeconds"))
    table = parquet.read_table(io.BytesIO(octets))
    assert table.column("sourcePodName").to_pylist() == ["", ""]
    assert table.column_names.count("flowEndSeconds") == 1


def test_without_pyarrow_the_configuration_is_refused_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'flowjoin-s3\[parquet\]'"):
        encoding_of(replace(CONFIG, format="parquet"), RecordingContext(), trio.CapacityLimiter(1))


@pytest.mark.parametrize("format_", ["csv", "jsonLines", "parquet"])
def test_an_element_that_does_not_exist_is_refused_with_its_place(format_: str) -> None:
    config = replace(CONFIG, format=format_, elements=("sourcePodName", "sourcePodNam"))
    with pytest.raises(ConfigError, match=r"^elements\[1\]: there is no Information Element 'sourcePodNam'"):
        encoding_of(config, RecordingContext(), trio.CapacityLimiter(1))


@pytest.mark.parametrize(
    ("keys", "suffix", "content_type"),
    [
        ({}, ".csv.gz", "application/gzip"),
        ({"compress": False}, ".csv", "text/csv"),
        ({"format": "jsonLines"}, ".jsonl.gz", "application/gzip"),
        ({"format": "jsonLines", "compress": False}, ".jsonl", "application/x-ndjson"),
        ({"format": "parquet"}, ".parquet", "application/vnd.apache.parquet"),
        ({"format": "parquet", "compress": False}, ".parquet", "application/vnd.apache.parquet"),
    ],
)
def test_suffix_and_type_say_what_the_object_is(keys: dict[str, Any], suffix: str, content_type: str) -> None:
    encoding = encoding_of(replace(CONFIG, **keys), RecordingContext(), trio.CapacityLimiter(1))
    assert (encoding.suffix, encoding.content_type) == (suffix, content_type)
