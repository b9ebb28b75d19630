"""Against a real server: killed, restarted, cut off, refused. Rows in are rows out, and every object is whole."""

from __future__ import annotations

import csv
import gzip
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest
import trio
from s3_exporting import MakeConfig
from s3_forwarder import Forwarder
from s3_servers import READER_KEY, READER_SECRET, Server
from s3_stand_in import StandIn

from flowjoin.api import FlowBatch, Octets, RetryableExportError, Secret
from flowjoin.testing import RecordingContext, hostile_flows, numbered_flows
from flowjoin_s3 import S3Config, TlsConfig
from flowjoin_s3._encode import encoding_of
from flowjoin_s3._exporter import open_s3
from flowjoin_s3._keys import antrea_key

pytestmark = pytest.mark.slow

MakeWeed = Callable[..., AbstractContextManager[Server]]
ObjectsIn = Callable[[Server, str], dict[str, bytes]]
MIB = 1024 * 1024
IN_PARTS: dict[str, Any] = {
    "multipart_threshold": Octets(5 * MIB),
    "part_size": Octets(5 * MIB),
    "compress": False,
    "layout": "antrea",
}
LARGE = numbered_flows(20_000).with_id("instance/s3/1/7")  # 12 MiB of text
AT = 1_700_000_000


@pytest.fixture
def forwarder(weed_server: Server) -> Iterator[Forwarder]:
    forwarder = Forwarder(weed_server.port)
    yield forwarder
    forwarder.close()


async def octets_of(batch: FlowBatch, config: S3Config) -> bytes:
    """The object that the batch should be."""
    encoding = encoding_of(config, RecordingContext(), trio.CapacityLimiter(1))
    pieces: list[bytes] = []

    async def keep(octets: bytes) -> None:
        pieces.append(octets)

    encoder = encoding.start(AT, keep)
    rows = range(len(batch))
    for at in range(0, len(batch), encoding.rows):
        await encoder.add(batch, rows[at : at + encoding.rows])
    await encoder.finish()
    return b"".join(pieces)


@pytest.mark.parametrize("format_", ["csv", "jsonLines", "parquet"])
@pytest.mark.parametrize("compress", [True, False])
async def test_each_object_is_read_back_octet_by_octet(
    weed_server: Server, bucket: str, config_of: MakeConfig, objects_in: ObjectsIn, format_: str, compress: bool
) -> None:
    config = config_of(weed_server, bucket_name=bucket, format=format_, compress=compress, layout="antrea")
    batches = [numbered_flows(900).with_id("a"), hostile_flows().with_id("b"), numbered_flows(1).with_id("c")]
    async with open_s3(config, RecordingContext(), clock=lambda: AT) as exporter:
        for batch in batches:
            await exporter.export(batch)
    suffix = encoding_of(config, RecordingContext(), trio.CapacityLimiter(1)).suffix
    expected = {antrea_key("", batch.id, suffix): await octets_of(batch, config) for batch in batches}
    assert objects_in(weed_server, bucket) == expected


async def test_an_object_in_parts_is_read_back_octet_by_octet(
    weed_server: Server, bucket: str, config_of: MakeConfig, objects_in: ObjectsIn
) -> None:
    config = config_of(weed_server, bucket_name=bucket, **IN_PARTS)
    context = RecordingContext()
    async with open_s3(config, context, clock=lambda: AT) as exporter:
        await exporter.export(LARGE)
    assert context.counters["parts"].value >= 3
    assert objects_in(weed_server, bucket) == {antrea_key("", LARGE.id, ".csv"): await octets_of(LARGE, config)}


async def test_cut_off_anywhere_and_tried_again_each_row_is_there_once(
    forwarder: Forwarder, weed_server: Server, bucket: str, config_of: MakeConfig, objects_in: ObjectsIn
) -> None:
    config = config_of(forwarder, bucket_name=bucket, **IN_PARTS)
    expected = {antrea_key("", LARGE.id, ".csv"): await octets_of(LARGE, config)}
    async with open_s3(config, RecordingContext(), clock=lambda: AT) as exporter:
        for cut_after in (MIB, 4 * MIB, 7 * MIB, 11 * MIB):
            forwarder.passed, forwarder.cut_after = 0, cut_after
            with pytest.raises(RetryableExportError):
                await exporter.export(LARGE)
            assert objects_in(weed_server, bucket) == {}
        forwarder.cut_after = None
        await exporter.export(LARGE)
    assert objects_in(weed_server, bucket) == expected
    with closing(weed_server.client()) as client:
        assert client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []


@pytest.mark.parametrize("keys", [IN_PARTS, {"layout": "antrea"}, {}], ids=["parts", "whole", "partitioned"])
async def test_an_answer_that_is_lost_doubles_nothing(
    forwarder: Forwarder,
    weed_server: Server,
    bucket: str,
    config_of: MakeConfig,
    objects_in: ObjectsIn,
    keys: dict[str, Any],
) -> None:
    config = config_of(forwarder, bucket_name=bucket, **keys)
    async with open_s3(config, RecordingContext(), clock=lambda: AT) as exporter:
        forwarder.swallow_answers = True
        with pytest.raises(RetryableExportError):
            await exporter.export(LARGE)
        forwarder.swallow_answers = False
        await exporter.export(LARGE)
        await exporter.export(LARGE)  # as a process does that was killed before it could note the first time
    assert list(objects_in(weed_server, bucket).values()) == [await octets_of(LARGE, config)]


async def test_killed_in_mid_upload_and_restarted_each_row_is_there_once(
    make_weed: MakeWeed, tmp_path: Path, config_of: MakeConfig, objects_in: ObjectsIn
) -> None:
    with make_weed(tmp_path / "weed") as server, closing(Forwarder(server.port)) as forwarder:
        with closing(server.client()) as client:
            client.create_bucket(Bucket="flows")
        config = config_of(forwarder, **IN_PARTS)
        small = numbered_flows(40, first=1_000_000).with_id("instance/s3/1/6")
        context = RecordingContext()
        async with open_s3(config, context, clock=lambda: AT) as exporter:
            await exporter.export(small)
            forwarder.passed, forwarder.when_passed = 0, (7 * MIB, server.kill)
            for _ in range(2):  # it is killed, and it is still down
                with pytest.raises(RetryableExportError):
                    await exporter.export(LARGE)
            server.start()
            await exporter.export(LARGE)
        objects = objects_in(server, "flows")
        assert objects == {antrea_key("", batch.id, ".csv"): await octets_of(batch, config) for batch in (small, LARGE)}
        rows = [row for octets in objects.values() for row in csv.reader(io.StringIO(octets.decode()))]
        assert len(rows) == len({(row[5], row[7]) for row in rows}) == 20_040
        assert context.counters["rows_delivered"].value == 20_040
        with closing(server.client()) as client:
            assert client.list_multipart_uploads(Bucket="flows").get("Uploads", []) == []


async def test_a_missing_bucket_is_named_and_rows_go_through_when_it_is_made(
    weed_server: Server, config_of: MakeConfig, objects_in: ObjectsIn
) -> None:
    context = RecordingContext()
    async with open_s3(config_of(weed_server, bucket_name="made-later"), context) as exporter:
        with pytest.raises(RetryableExportError, match="bucket 'made-later', or it is gone: make sure that it exists"):
            await exporter.export(numbered_flows(3))
        with closing(weed_server.client()) as client:
            client.create_bucket(Bucket="made-later")
        await exporter.export(numbered_flows(3))
    (octets,) = objects_in(weed_server, "made-later").values()
    assert gzip.decompress(octets).count(b"\n") == 3
    assert context.events == ["bucket_not_reached", "bucket_opened"]


@pytest.mark.parametrize(
    ("key", "secret", "words"),
    [
        ("AKWRITES", "another-secret", "the credentials for bucket .* are wrong"),
        ("AKNOBODY", "another-secret", "the credentials for bucket .* are wrong"),
        (READER_KEY, READER_SECRET, "may not put objects into bucket .*: allow s3:PutObject"),
    ],
    ids=["wrong secret", "unknown key", "read-only identity"],
)
async def test_who_may_not_write_is_told_why_and_goes_on_with_better_keys(
    weed_server: Server,
    bucket: str,
    config_of: MakeConfig,
    objects_in: ObjectsIn,
    tmp_path: Path,
    secret_files: tuple[Secret, Secret],
    key: str,
    secret: str,
    words: str,
) -> None:
    good = [(tmp_path / name).read_text() for name in ("key", "secret")]
    (tmp_path / "key").write_text(key)
    (tmp_path / "secret").write_text(secret)
    config = config_of(
        weed_server, bucket_name=bucket, access_key_id=secret_files[0], secret_access_key=secret_files[1]
    )
    context = RecordingContext()
    async with open_s3(config, context) as exporter:
        with pytest.raises(RetryableExportError, match=words) as caught:
            await exporter.export(numbered_flows(5))
        assert secret not in str(caught.value)
        assert objects_in(weed_server, bucket) == {}
        for name, text in zip(("key", "secret"), good, strict=True):
            (tmp_path / name).write_text(text)
        await exporter.export(numbered_flows(5))
    assert len(objects_in(weed_server, bucket)) == 1
    assert secret not in repr(context.log.lines)


async def test_tls_with_an_authority_of_ones_own(
    make_weed: MakeWeed,
    certificates: tuple[Path, Path, Path],
    tmp_path: Path,
    config_of: MakeConfig,
    objects_in: ObjectsIn,
) -> None:
    with make_weed(tmp_path / "weed", certificate=certificates) as server:
        with closing(server.client()) as client:
            client.create_bucket(Bucket="flows")
        for mode in ("auto", "when_supported"):
            config = config_of(server, tls=TlsConfig(ca=certificates[2]), checksum_mode=mode, **IN_PARTS)
            async with open_s3(config, RecordingContext(), clock=lambda: AT) as exporter:
                await exporter.export(LARGE)
                await exporter.export(numbered_flows(3).with_id(mode))
            objects = objects_in(server, "flows")
            assert objects[antrea_key("", LARGE.id, ".csv")] == await octets_of(LARGE, config)
            assert objects[antrea_key("", mode, ".csv")] == await octets_of(numbered_flows(3), config)


async def test_cancelled_in_mid_upload_nothing_is_seen_and_the_next_try_is_whole(
    forwarder: Forwarder, weed_server: Server, bucket: str, config_of: MakeConfig, objects_in: ObjectsIn
) -> None:
    config = config_of(forwarder, bucket_name=bucket, **IN_PARTS)
    async with open_s3(config, RecordingContext(), clock=lambda: AT) as exporter:
        reached = threading.Event()
        forwarder.passed, forwarder.when_passed = 0, (7 * MIB, reached.set)
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(exporter.export, LARGE)
                await trio.to_thread.run_sync(reached.wait, abandon_on_cancel=True)
                nursery.cancel_scope.cancel()
        assert objects_in(weed_server, bucket) == {}
        with closing(weed_server.client()) as client:
            assert client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
        await exporter.export(LARGE)
    assert list(objects_in(weed_server, bucket).values()) == [await octets_of(LARGE, config)]


async def test_a_batch_goes_from_one_destination_to_the_next_under_the_same_name(
    weed_server: Server, stand_in: StandIn, bucket: str, config_of: MakeConfig, objects_in: ObjectsIn
) -> None:
    for config in (config_of(weed_server, bucket_name=bucket), config_of(stand_in)):
        async with open_s3(config, RecordingContext(), clock=lambda: AT) as exporter:
            await exporter.export(LARGE.slice(0, 100).with_id("x"))
    assert objects_in(weed_server, bucket) == stand_in.objects


async def test_a_prefix_in_any_script_is_what_it_is(
    weed_server: Server, bucket: str, config_of: MakeConfig, objects_in: ObjectsIn
) -> None:
    prefix = "größe/日本 a+b&c%41=<x>"
    config = config_of(weed_server, bucket_name=bucket, bucket_prefix=prefix, **IN_PARTS)
    keys = [antrea_key(prefix, LARGE.id, ".csv"), antrea_key(prefix, "small", ".csv")]
    context = RecordingContext()
    with closing(weed_server.client()) as client:
        client.create_multipart_upload(Bucket=bucket, Key=keys[0])  # what an earlier try left
        async with open_s3(config, context, clock=lambda: AT) as exporter:
            await exporter.export(LARGE)
            await exporter.export(numbered_flows(3).with_id("small"))
        assert sorted(objects_in(weed_server, bucket)) == sorted(keys)
        assert "unfinished_uploads_removed" in context.events
        assert client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
