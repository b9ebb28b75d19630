"""How the bucket is found, and who we are to it; the bucket is a stand-in that answers as it is told."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from s3_exporting import MakeConfig, answering, error_of
from s3_servers import BUCKET
from s3_stand_in import Answer, Request, StandIn

from flowjoin.api import RetryableExportError, Secret
from flowjoin.testing import RecordingContext, numbered_flows
from flowjoin_s3 import S3Config, TlsConfig
from flowjoin_s3._client import Bucket
from flowjoin_s3._exporter import open_s3


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
