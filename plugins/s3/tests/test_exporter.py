"""What the exporter does when a bucket answers this or that; the bucket is a stand-in that answers as it is told."""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from s3_servers import BUCKET, Answer, Request, StandIn

from flowjoin.api import FlowBatch, Octets, PermanentExportError, RetryableExportError, Secret
from flowjoin.testing import RecordingContext, numbered_flows, plain_flows
from flowjoin_s3 import S3Config, TlsConfig
from flowjoin_s3._client import Bucket
from flowjoin_s3._exporter import open_s3
from flowjoin_s3._keys import antrea_key

MakeConfig = Callable[..., S3Config]
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


def answering(*answers: Answer | None, to: str = "put") -> Callable[[Request], Answer | None]:
    """The requests of that action get these answers, one after the other, then the usual one."""
    rest = list(answers)
    return lambda request: rest.pop(0) if rest and request.action == to else None


async def error_of(config: S3Config, batch: FlowBatch, context: RecordingContext | None = None) -> Exception:
    async with open_s3(config, context or RecordingContext()) as exporter:
        with pytest.raises((RetryableExportError, PermanentExportError)) as caught:
            await exporter.export(batch)
    return caught.value


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
    stand_in.fault = answering(Answer.error(403, "AccessDenied"), to="list")
    async with open_s3(config_of(stand_in, **IN_PARTS), RecordingContext()) as exporter:
        await exporter.export(LARGE)
    assert len(stand_in.objects) == 1


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


@pytest.mark.parametrize("status", [400, 403])
async def test_credentials_that_expired_are_read_again(
    stand_in: StandIn, config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    stand_in.fault = answering(Answer.error(status, "ExpiredToken"))
    async with open_s3(config_of(stand_in), RecordingContext()) as exporter:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKROTATED")
        with pytest.raises(RetryableExportError, match="have expired and are read again"):
            await exporter.export(numbered_flows(1))
        await exporter.export(numbered_flows(1))
    assert [request.headers["authorization"].split("=")[1].split("/")[0] for request in stand_in.requests] == [
        "AKWRITES",
        "AKWRITES",
        "AKROTATED",
        "AKROTATED",
    ]


async def test_a_secret_that_was_rotated_is_used_at_once(
    stand_in: StandIn, config_of: MakeConfig, secret_files: tuple[Secret, Secret], tmp_path: Path
) -> None:
    config = config_of(stand_in, access_key_id=secret_files[0], secret_access_key=secret_files[1])
    async with open_s3(config, RecordingContext()) as exporter:
        await exporter.export(numbered_flows(1))
        (tmp_path / "key").write_text("AKROTATED")
        await exporter.export(numbered_flows(1))
        (tmp_path / "key").unlink()
        with pytest.raises(RetryableExportError, match="of a secret cannot be read"):
            await exporter.export(numbered_flows(1))
        (tmp_path / "key").write_text("AKAGAIN")
        await exporter.export(numbered_flows(1))
    keys = [request.headers["authorization"].split("=")[1].split("/")[0] for request in stand_in.of("put")]
    assert keys == ["AKWRITES", "AKROTATED", "AKAGAIN"]


async def test_a_session_token_is_sent(stand_in: StandIn, config_of: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token")
    secrets = {name: Secret("file", str(tmp_path / "token")) for name in ("access_key_id", "secret_access_key")}
    config = config_of(stand_in, **secrets, session_token=Secret("file", str(tmp_path / "token")))
    async with open_s3(config, RecordingContext()) as exporter:
        await exporter.export(numbered_flows(1))
    assert {request.headers["x-amz-security-token"] for request in stand_in.requests} == {"a-token"}


async def test_without_credentials_the_batch_waits(
    stand_in: StandIn, config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = RecordingContext()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    async with open_s3(config_of(stand_in), context) as exporter:
        with pytest.raises(RetryableExportError, match="no credentials for bucket 'flows'"):
            await exporter.export(numbered_flows(1))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")
        await exporter.export(numbered_flows(1))
    assert context.events == ["bucket_not_reached", "bucket_opened"]


def bucket_in(region: str) -> Callable[[Request], Answer | None]:
    """A bucket of Amazon's in that region: whoever signs for another one is sent there."""

    def fault(request: Request) -> Answer | None:
        if request.region == region:
            return Answer(headers={"x-amz-bucket-region": region}) if request.action == "look" else None
        return Answer.error(301, "PermanentRedirect", x_amz_bucket_region=region)

    return fault


@pytest.mark.parametrize("hint", ["", "us-west-2", "eu-central-1"])
async def test_the_buckets_region_is_found_whatever_the_hint(
    stand_in: StandIn, config_of: MakeConfig, hint: str
) -> None:
    context = RecordingContext()
    stand_in.fault = bucket_in("eu-central-1")
    async with open_s3(config_of(stand_in, region=hint), context) as exporter:
        await exporter.export(numbered_flows(1))
    assert stand_in.of("look")[0].region == (hint or "us-east-1")
    assert [request.region for request in stand_in.of("put")] == ["eu-central-1"]
    assert context.log.lines[0].facts == {"bucket": BUCKET, "region": "eu-central-1"}
    assert len(stand_in.objects) == 1


async def test_the_region_of_the_environment_is_the_hint(
    stand_in: StandIn, config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    async with open_s3(config_of(stand_in), RecordingContext()) as exporter:
        await exporter.export(numbered_flows(1))
    assert {request.region for request in stand_in.requests} == {"ap-south-1"}


async def test_a_bucket_that_moved_to_another_region_is_followed(stand_in: StandIn, config_of: MakeConfig) -> None:
    stand_in.fault = bucket_in("us-east-1")
    async with open_s3(config_of(stand_in), RecordingContext()) as exporter:
        await exporter.export(numbered_flows(1))
        stand_in.fault = bucket_in("sa-east-1")
        await exporter.export(numbered_flows(1))
    assert len(stand_in.objects) == 2
    assert stand_in.of("put")[-1].region == "sa-east-1"


async def test_a_redirect_that_leads_nowhere_waits(stand_in: StandIn, config_of: MakeConfig) -> None:
    stand_in.fault = lambda _request: Answer.error(301, "PermanentRedirect")
    assert "is in another region" in str(await error_of(config_of(stand_in), numbered_flows(1)))


async def test_who_may_not_look_into_the_bucket_may_still_put_objects(stand_in: StandIn, config_of: MakeConfig) -> None:
    stand_in.fault = answering(Answer(403), to="look")
    async with open_s3(config_of(stand_in), RecordingContext()) as exporter:
        await exporter.export(numbered_flows(1))
    assert len(stand_in.objects) == 1


async def test_what_an_answer_to_a_look_does_not_say_the_one_to_an_object_says(
    stand_in: StandIn, config_of: MakeConfig
) -> None:
    stand_in.fault = lambda request: Answer(400) if request.action == "look" else Answer.error(400, "ExpiredToken")
    assert "have expired and are read again" in str(await error_of(config_of(stand_in), numbered_flows(1)))


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HTTP_PROXY"])
async def test_a_password_in_a_url_of_the_environment_is_not_shown(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://somebody:geheim@127.0.0.1:1")
    config = S3Config(bucket_name="flows", endpoint_url="http://192.0.2.1" if name == "HTTP_PROXY" else "")
    context = RecordingContext()
    async with open_s3(config, context) as exporter:
        with pytest.raises(RetryableExportError) as refused:
            await exporter.export(numbered_flows(1))
    assert "127.0.0.1" in str(refused.value)
    assert "geheim" not in f"{refused.value} {context.log.lines!r}"


async def test_a_wrong_clock_is_told_with_its_seconds(stand_in: StandIn, config_of: MakeConfig) -> None:
    stand_in.fault = answering(
        Answer.error(403, "RequestTimeTooSkewed", Date="Tue, 14 Nov 2023 21:13:20 GMT"),
    )
    async with open_s3(config_of(stand_in), RecordingContext(), clock=lambda: 1_700_000_000.0) as exporter:
        with pytest.raises(RetryableExportError, match="clock is 3600 s ahead of the server's"):
            await exporter.export(numbered_flows(1))


async def test_a_server_that_does_not_answer_is_given_up_after_the_timeout(
    stand_in: StandIn, config_of: MakeConfig
) -> None:
    stand_in.fault = answering(Answer(hang=True))
    error = await error_of(config_of(stand_in, request_timeout=1.0), numbered_flows(1))
    assert isinstance(error, RetryableExportError)
    assert "Read timeout" in str(error)


async def test_a_connection_that_ends_without_an_answer_waits(stand_in: StandIn, config_of: MakeConfig) -> None:
    stand_in.fault = answering(Answer(drop=True))
    assert "cannot reach" in str(await error_of(config_of(stand_in), numbered_flows(1)))


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


@pytest.mark.parametrize(("mode", "is_sent"), [("auto", False), ("when_required", False), ("when_supported", True)])
async def test_checksums_go_along_only_where_they_are_wanted(
    stand_in: StandIn, config_of: MakeConfig, mode: str, is_sent: bool
) -> None:
    async with open_s3(config_of(stand_in, checksum_mode=mode), RecordingContext()) as exporter:
        await exporter.export(numbered_flows(1))
    (request,) = stand_in.of("put")
    assert any(name.startswith("x-amz-checksum-") for name in request.headers) == is_sent


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request:urllib3.exceptions.InsecureRequestWarning")
async def test_an_own_authority_is_trusted_and_any_other_is_not(
    certificates: tuple[Path, Path, Path], config_of: MakeConfig
) -> None:
    with StandIn(certificate=(certificates[0], certificates[1])) as server:
        error = await error_of(config_of(server), numbered_flows(1))
        assert "tls.ca names the authority" in str(error)
        context = RecordingContext()
        for tls in (TlsConfig(ca=certificates[2]), TlsConfig(insecure_skip_verify=True)):
            async with open_s3(config_of(server, tls=tls), context) as exporter:
                await exporter.export(numbered_flows(2))
        assert context.events == ["bucket_opened", "server_not_verified", "bucket_opened"]
        assert len(server.objects) == 2
        missing = TlsConfig(ca=certificates[2].with_name("missing.pem"))
        assert isinstance(await error_of(config_of(server, tls=missing), numbered_flows(1)), RetryableExportError)


async def test_a_server_that_is_not_there_yet_is_found_when_it_comes(config_of: MakeConfig) -> None:
    context = RecordingContext()
    with StandIn() as server:
        config = config_of(server)
    async with open_s3(config, context) as exporter:
        with pytest.raises(RetryableExportError, match="cannot reach http://localhost"):
            await exporter.export(numbered_flows(1))
    assert context.events == ["bucket_not_reached"]
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in repr(context.log.lines)


def test_a_client_that_is_made_too_late_is_closed_after_its_call(stand_in: StandIn, config_of: MakeConfig) -> None:
    """As where its thread was left alone, because making a client took longer than anybody waited."""
    bucket = Bucket(config_of(stand_in), lambda _region: bucket.end())
    bucket.connect()
    bucket.put("late", b"octets", "text/csv", threading.Event())
    assert stand_in.objects == {"late": b"octets"}
    deadline = time.monotonic() + 60
    while stand_in.connections:
        assert time.monotonic() < deadline, "a connection was left"
        time.sleep(0.01)  # the server's threads tell nobody when they end
