"""What a bucket may do to an upload: rows in are rows out, each once; the reference has the table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from s3_exporting import MakeConfig
from s3_stand_in import Answer, Request, StandIn

from flowjoin.api import Exporter, FlowBatch, Octets, PermanentExportError, RetryableExportError
from flowjoin.testing import RecordingContext, numbered_flows
from flowjoin_s3._columns import columns_of
from flowjoin_s3._exporter import open_s3

pytestmark = pytest.mark.slow

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "exporters" / "s3.md"
MIB = 1024 * 1024
SMALL, LARGE = 300, 10_000  # rows: an object that goes whole, and one of 6 MiB in two parts
KEYS: dict[str, Any] = {
    "multipart_threshold": Octets(5 * MIB),
    "part_size": Octets(5 * MIB),
    "compress": False,
    "layout": "antrea",
}
COLUMN = columns_of("antrea-2.7").index("octetTotalCount")
SLOW_DOWN = Answer.error(503, "SlowDown", retry_after="1")
ELSEWHERE = Answer.error(301, "PermanentRedirect", x_amz_bucket_region="eu-central-1")
SKEWED = Answer.error(403, "RequestTimeTooSkewed", Date="Tue, 14 Nov 2023 21:13:20 GMT")
LOST = Answer(drop=True, is_processed=True)

# What the first requests of these kinds are answered, before all is well again.
FAULTS: dict[str, dict[str, list[Answer]]] = {
    "the connection is closed without an answer": {"look": [Answer(drop=True)], "put": [Answer(drop=True)]},
    "the server does not answer": {"put": [Answer(hang=True)]},
    "it is stored, and the answer is lost": {"put": [LOST], "complete": [LOST]},
    "it is stored, and the answer is 500": {"put": [Answer(500, is_processed=True)] * 3},
    "503 `SlowDown`, for all requests": {each: [SLOW_DOWN] * 2 for each in ("put", "begin", "part", "complete")},
    "no such bucket, until it is made": {each: [Answer.error(404, "NoSuchBucket")] * 2 for each in ("look", "put")},
    "no permission (`AccessDenied`)": {each: [Answer.error(403, "AccessDenied")] for each in ("put", "begin", "part")},
    "wrong keys (`SignatureDoesNotMatch`)": {"put": [Answer.error(403, "SignatureDoesNotMatch")] * 2},
    "expired credentials, in the middle of an upload too": {
        "put": [Answer.error(400, "ExpiredToken")],
        "part": [Answer.error(400, "ExpiredToken")],
    },
    "this machine's clock is wrong": {"put": [SKEWED] * 2},
    "the bucket is in another region": {"put": [ELSEWHERE], "begin": [ELSEWHERE]},
    "an answer that is no S3 (a portal's page)": {
        each: [Answer(200, b"<html>Log in</html>"), Answer(200)]
        for each in ("put", "begin", "part", "complete", "list")
    },
    "a part fails": {"part": [Answer.error(500, "InternalError")] * 2},
    "completing fails, in an answer that begins with 200": {
        "complete": [Answer(200, b"<?xml version='1.0'?><Error><Code>InternalError</Code></Error>")]
    },
    "a part fails, and so does throwing the others away": {
        "part": [Answer.error(500, "InternalError")],
        "abort": [Answer.error(500, "InternalError")],
    },
    "unfinished uploads may not be listed": {"list": [Answer.error(403, "AccessDenied")]},
    "the disk of the server is full (507)": {each: [Answer(507)] * 2 for each in ("put", "part")},
    "the object is too large for the server": {"put": [Answer.error(400, "EntityTooLarge")]},
}


def faulty(answers: dict[str, list[Answer]]) -> Callable[[Request], Answer | None]:
    left = {action: list(several) for action, several in answers.items()}
    return lambda request: left[request.action].pop(0) if left.get(request.action) else None


def numbers_in(stand_in: StandIn) -> list[int]:
    """Of the flows in every object, by their octetTotalCount."""
    lines = b"".join(stand_in.objects.values()).splitlines()
    return [int(line.split(b",")[COLUMN]) // 1000 for line in lines]


async def delivered(exporter: Exporter, batch: FlowBatch) -> int:
    """Deliver a batch as a lane does; gives how many of its rows are dead letters."""
    for _ in range(12):
        try:
            await exporter.export(batch)
        except RetryableExportError:
            continue
        except PermanentExportError as exc:
            return len(batch) if exc.rows is None else len(exc.rows)
        return 0
    raise AssertionError("it never went through")


def batches() -> list[FlowBatch]:
    small, large = numbered_flows(SMALL), numbered_flows(LARGE, first=SMALL)
    return [small.with_id("here/s3/1/1"), large.with_id("here/s3/1/2")]


@pytest.mark.parametrize("fault", FAULTS)
async def test_rows_in_are_rows_out(fault: str, stand_in: StandIn, config_of: MakeConfig) -> None:
    stand_in.fault = faulty(FAULTS[fault])
    context = RecordingContext()
    is_hanging = any(answer.hang for answers in FAULTS[fault].values() for answer in answers)
    patience, dead = 2.0 if is_hanging else 60.0, 0
    with trio.fail_after(100):
        async with open_s3(config_of(stand_in, **KEYS, request_timeout=patience), context) as exporter:
            for batch in batches():
                dead += await delivered(exporter, batch)
        async with open_s3(config_of(stand_in, **KEYS, request_timeout=60.0), RecordingContext()) as exporter:
            await exporter.export(batches()[1])  # a restart, before which it was not acknowledged
    found = numbers_in(stand_in)
    twice = len(found) - len(set(found))
    assert len(set(found)) + dead == SMALL + LARGE
    assert twice == 0
    assert not stand_in.uploads
    assert context.counters["rows_delivered"].value == SMALL + LARGE - dead
    row = f"| {fault} | {SMALL + LARGE:,} | {len(found):,} | {dead:,} | {twice} | {len(stand_in.uploads)} |"
    assert row in REFERENCE.read_text(encoding="utf-8")


def test_the_reference_has_no_fault_that_was_not_tried() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    table = text[text.index("| fault |") :].partition("\n\n")[0].splitlines()[2:]
    assert [line.split(" | ")[0].removeprefix("| ") for line in table] == list(FAULTS)


@pytest.mark.parametrize("number", range(1, 8))
async def test_cancelled_at_any_request_nothing_is_lost_or_left(
    number: int, stand_in: StandIn, config_of: MakeConfig
) -> None:
    """Requests of an upload in parts: look, list, begin, part, part, complete; the seventh is never made."""
    token, batch = trio.lowlevel.current_trio_token(), batches()[1]
    scope = trio.CancelScope()
    before = set(threading.enumerate())

    def cancel(request: Request) -> None:
        if len(stand_in.requests) == number:
            token.run_sync_soon(scope.cancel)

    stand_in.fault = cancel
    with trio.fail_after(100):
        with scope:
            async with open_s3(config_of(stand_in, **KEYS, request_timeout=60.0), RecordingContext()) as exporter:
                await exporter.export(batch)
        if number != 6:  # its answer may be faster than the cancellation
            assert scope.cancelled_caught == (number < 6)
        for octets in stand_in.objects.values():
            assert octets.count(b"\n") == LARGE  # whole, or not there
        stand_in.fault = lambda _request: None
        async with open_s3(config_of(stand_in, **KEYS, request_timeout=60.0), RecordingContext()) as exporter:
            await exporter.export(batch)
        assert sorted(numbers_in(stand_in)) == list(range(SMALL, SMALL + LARGE))
        assert not stand_in.uploads
        while stand_in.connections:  # noqa: ASYNC110 - the server's threads tell nobody when they end
            await trio.sleep(0.01)
    started = {each for each in threading.enumerate() if each not in before and not each.daemon}
    assert not started
