"""What the exporter does when a bucket answers this or that; the bucket is a stand-in that answers as it is told."""

from __future__ import annotations

import gzip
import threading
from typing import Any

import pytest
import trio
from s3_exporting import MakeConfig, answering, error_of
from s3_stand_in import Answer, Request, StandIn

from flowjoin.api import Octets, PermanentExportError, RetryableExportError
from flowjoin.testing import RecordingContext, numbered_flows, plain_flows
from flowjoin_s3._exporter import open_s3
from flowjoin_s3._keys import antrea_key

ID = "instance/s3/1/7"
MIB = 1024 * 1024
# Rows whose text is 12 MiB without compression: two parts of 5 MiB and a rest.
LARGE = numbered_flows(20_000).with_id(ID)
IN_PARTS: dict[str, Any] = {
    "multipart_threshold": Octets(5 * MIB),
    "part_size": Octets(5 * MIB),
    "compress": False,
    "layout": "antrea",
}


async def test_a_batch_is_an_object_under_a_key_of_its_own(stand_in: StandIn, config_of: MakeConfig) -> None:
    context = RecordingContext()
    async with open_s3(config_of(stand_in, layout="antrea", bucket_prefix="west"), context) as exporter:
        await exporter.export(numbered_flows(9).with_id(ID))
        await exporter.export(numbered_flows(4).with_id("instance/s3/1/8"))
    assert list(stand_in.objects) == [
        antrea_key("west", ID, ".csv.gz"),
        antrea_key("west", "instance/s3/1/8", ".csv.gz"),
    ]
    assert [gzip.decompress(octets).count(b"\n") for octets in stand_in.objects.values()] == [9, 4]
    counted = {name: counter.value for name, counter in context.counters.items()}
    sizes = sum(map(len, stand_in.objects.values()))
    assert counted == {"rows_delivered": 13, "objects": 2, "octets": sizes, "parts": 0}
    assert context.events == ["bucket_opened"]


async def test_a_batch_that_comes_again_takes_the_place_of_the_first_octet_for_octet(
    stand_in: StandIn, config_of: MakeConfig
) -> None:
    times = iter(range(1_700_000_000, 1_700_001_000, 60))
    batch = numbered_flows(9).with_id(ID)
    # the object is stored, and the answer says that it may not be
    stand_in.fault = answering(Answer.error(500, "InternalError"), Answer(503, is_processed=True))
    seen: list[bytes] = []
    async with open_s3(config_of(stand_in), RecordingContext(), clock=lambda: float(next(times))) as exporter:
        for _ in range(2):
            with pytest.raises(RetryableExportError, match="is busy"):
                await exporter.export(batch)
            seen += stand_in.objects.values()
        await exporter.export(batch)
        seen += stand_in.objects.values()
        assert len(stand_in.objects) == 1
        assert len(seen) == 2
        assert seen[0] == seen[1]
        await exporter.export(numbered_flows(9).with_id("another"))
    first, second = (gzip.decompress(octets) for octets in stand_in.objects.values())
    assert b",1700000000," in first
    assert b",1700000000," not in second  # another batch is inserted at another time


async def test_rows_are_sorted_by_the_hour_in_which_their_flow_ended(stand_in: StandIn, config_of: MakeConfig) -> None:
    ends = [1_700_000_000 + 3600 * (row % 3) for row in range(50)]
    batch = plain_flows(50).with_columns({"flowEndSeconds": ends}).with_id(ID)
    async with open_s3(config_of(stand_in, bucket_prefix="p", compress=False), RecordingContext()) as exporter:
        await exporter.export(batch)
    folders = [key.rpartition("/")[0] for key in stand_in.objects]
    assert folders == [f"p/year=2023/month=11/day=14/hour={hour}" for hour in (22, 23)] + [
        "p/year=2023/month=11/day=15/hour=00"
    ]
    assert len({key.rpartition("/")[2] for key in stand_in.objects}) == 1
    for number, octets in enumerate(stand_in.objects.values()):
        rows = [line.split(b",") for line in octets.split(b"\n")[:-1]]
        assert [int(row[1]) for row in rows] == [end for end in ends if end == 1_700_000_000 + 3600 * number]
        assert [int(row[7]) for row in rows] == list(range(40000 + number, 40050, 3))


async def test_a_large_object_goes_in_parts_while_it_is_made(stand_in: StandIn, config_of: MakeConfig) -> None:
    context = RecordingContext()
    async with open_s3(config_of(stand_in, **IN_PARTS), context) as exporter:
        await exporter.export(LARGE)
    async with open_s3(config_of(stand_in, layout="antrea", compress=False), RecordingContext()) as exporter:
        await exporter.export(LARGE.with_id("whole"))
    parts, whole = stand_in.objects.values()
    assert [len(each.split(b"\n")) for each in (parts, whole)] == [20_001, 20_001]
    assert parts.split(b",")[:48] == whole.split(b",")[:48]
    sent = [len(request.body) for request in stand_in.of("part")]
    assert sent[:-1] == [5 * MIB] * (len(sent) - 1)
    assert len(sent) >= 3
    assert context.counters["parts"].value == len(sent)
    assert [request.action for request in stand_in.requests][:3] == ["look", "list", "begin"]
    assert not stand_in.uploads


async def test_parts_of_an_upload_that_fails_are_thrown_away(stand_in: StandIn, config_of: MakeConfig) -> None:
    context = RecordingContext()
    stand_in.fault = answering(None, Answer.error(503, "SlowDown"), to="part")
    async with open_s3(config_of(stand_in, **IN_PARTS), context) as exporter:
        with pytest.raises(RetryableExportError, match="is busy"):
            await exporter.export(LARGE)
        assert len(stand_in.of("abort")) == 1
        assert not stand_in.uploads
        assert not stand_in.objects
        await exporter.export(LARGE)
    assert len(stand_in.objects) == 1
    assert context.counters["rows_delivered"].value == 20_000
    assert "upload_not_aborted" not in context.events


async def test_what_an_upload_that_was_killed_left_is_removed_by_the_next_try(
    stand_in: StandIn, config_of: MakeConfig
) -> None:
    key = antrea_key("", ID, ".csv")
    stand_in.uploads = {(key, "left"): {1: b"x"}, (f"{key}.another", "other"): {1: b"y"}}
    context = RecordingContext()
    async with open_s3(config_of(stand_in, **IN_PARTS), context) as exporter:
        await exporter.export(LARGE)
    assert list(stand_in.uploads) == [(f"{key}.another", "other")]  # not ours
    (line,) = (line for line in context.log.lines if line.event == "unfinished_uploads_removed")
    assert line.facts == {"key": key, "uploads": 1}


async def test_who_may_not_list_uploads_may_still_upload(stand_in: StandIn, config_of: MakeConfig) -> None:
    context = RecordingContext()
    stand_in.fault = answering(Answer.error(403, "AccessDenied"), to="list")
    async with open_s3(config_of(stand_in, **IN_PARTS), context) as exporter:
        await exporter.export(LARGE)
    assert len(stand_in.objects) == 1
    assert context.events.count("unfinished_uploads_not_listed") == 1


async def test_an_upload_that_cannot_be_aborted_is_told(stand_in: StandIn, config_of: MakeConfig) -> None:
    context = RecordingContext()

    def fault(request: Request) -> Answer | None:
        if request.action in ("complete", "abort"):
            return Answer.error(500, "InternalError")
        return None

    stand_in.fault = fault
    error = await error_of(config_of(stand_in, **IN_PARTS), LARGE, context)
    assert isinstance(error, RetryableExportError)
    (line,) = (line for line in context.log.lines if line.event == "upload_not_aborted")
    assert line.level == "warning"
    assert not stand_in.objects


async def test_an_error_inside_a_complete_answer_is_an_error(stand_in: StandIn, config_of: MakeConfig) -> None:
    # S3 begins to answer 200 before it knows how completing ends
    stand_in.fault = answering(
        Answer(200, b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>sorry</Message></Error>"),
        to="complete",
    )
    assert "is busy" in str(await error_of(config_of(stand_in, **IN_PARTS), LARGE))
    assert not stand_in.objects


async def test_an_object_that_is_too_large_for_the_server_is_refused_and_the_others_go_through(
    stand_in: StandIn, config_of: MakeConfig
) -> None:
    context = RecordingContext()
    ends = [1_700_000_000, 1_700_003_600, 1_700_007_200, 1_700_003_600]
    batch = plain_flows(4).with_columns({"flowEndSeconds": ends}).with_id(ID)
    stand_in.fault = answering(None, Answer.error(400, "EntityTooLarge"))
    error = await error_of(config_of(stand_in), batch, context)
    assert isinstance(error, PermanentExportError)
    assert error.rows == (1, 3)
    assert len(stand_in.objects) == 2
    assert context.counters["rows_delivered"].value == 2


async def test_what_is_no_s3_waits(stand_in: StandIn, config_of: MakeConfig) -> None:
    page = b"<html><body>A captive portal <br> says hello"
    for status in (200, 302, 404, 502):
        stand_in.fault = answering(Answer(status, page, {"Content-Type": "text/html"}), to="begin")
        error = await error_of(config_of(stand_in, **IN_PARTS), LARGE)
        assert isinstance(error, RetryableExportError)


async def test_cancelled_while_the_server_is_silent_it_leaves_soon_and_nothing_is_seen(
    stand_in: StandIn, config_of: MakeConfig
) -> None:
    arrived = threading.Event()

    def fault(request: Request) -> Answer | None:
        if request.action == "part":
            arrived.set()
            return Answer(hang=True)
        return None

    stand_in.fault = fault
    config = config_of(stand_in, **IN_PARTS, request_timeout=600.0)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery, open_s3(config, RecordingContext()) as exporter:
            nursery.start_soon(exporter.export, LARGE)
            await trio.to_thread.run_sync(arrived.wait, abandon_on_cancel=True)
            nursery.cancel_scope.cancel()
    assert not stand_in.objects
    assert not stand_in.uploads  # the abort went through another connection


async def test_options_of_the_bucket_are_sent(stand_in: StandIn, config_of: MakeConfig) -> None:
    config = config_of(
        stand_in, storage_class="STANDARD_IA", server_side_encryption="aws:kms", kms_key_id="k", format="jsonLines"
    )
    async with open_s3(config, RecordingContext()) as exporter:
        await exporter.export(numbered_flows(1))
    (request,) = stand_in.of("put")
    assert request.headers["x-amz-storage-class"] == "STANDARD_IA"
    assert request.headers["x-amz-server-side-encryption"] == "aws:kms"
    assert request.headers["x-amz-server-side-encryption-aws-kms-key-id"] == "k"
    assert request.headers["content-type"] == "application/gzip"
    assert "flowjoin-s3" in request.headers["user-agent"]
