"""Antrea's configuration file and two agents' records in, Antrea's objects out: the program as it is installed."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hand_made import Record, file_of_halves
from running_flowjoin import Run

pytest.importorskip("flowjoin_s3", reason="the S3 plugin is not installed")

from s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY
from s3_stand_in import Answer, Request, StandIn

pytestmark = pytest.mark.slow

COMMON: Record = {
    "flowStartSeconds": 1637706961,
    "flowEndSeconds": 1637706973,
    "flowEndReason": 3,
    "sourceTransportPort": 44752,
    "destinationTransportPort": 5201,
    "protocolIdentifier": 6,
    "sourceIPv4Address": "10.10.0.79",
    "destinationIPv4Address": "10.10.0.80",
    "sourceIPv6Address": "2001:0:3238:dfe1:63::fefb",
    "destinationIPv6Address": "2001:0:3238:dfe1:63::fefc",
    "flowType": 2,
}
SOURCE: Record = {**COMMON, "sourcePodName": "perftest-a", "sourcePodNamespace": "ns-a", "sourceNodeName": "node-a"}
DESTINATION: Record = {
    **COMMON,
    "destinationPodName": "perftest-b",
    "destinationPodNamespace": "ns-b",
    "destinationNodeName": "node-b",
}
ANTREA = "s3Uploader: {enable: true, bucketName: flows, bucketPrefix: west, uploadInterval: 1s}\n"


@pytest.fixture
def bucket() -> Iterator[StandIn]:
    with StandIn() as server:
        yield server


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "agents.ipfix"
    path.write_bytes(file_of_halves(SOURCE, DESTINATION))
    return path


def replayed(capture: Path, configuration: str, bucket: StandIn) -> str:
    """What the program says; where the bucket is stands in the environment, as in Antrea's Deployment."""
    path = capture.with_name("flow-aggregator.conf")
    path.write_text(configuration, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-west-2"}
    done = subprocess.run(
        [sys.executable, "-m", "flowjoin", "replay", str(capture), "-c", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**environment, "AWS_ENDPOINT_URL": bucket.url},
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(("compatibility", "columns"), [("antrea-2.7", 53), ("antrea-2.3", 54)])
def test_antreas_configuration_gives_antreas_objects(
    capture: Path, bucket: StandIn, compatibility: str, columns: int
) -> None:
    replayed(capture, f"compatibility: {compatibility}\n{ANTREA}", bucket)
    assert len(bucket.objects) == 2
    for key, octets in bucket.objects.items():
        assert re.fullmatch(r"west/records-[a-z0-9]{12}\.csv\.gz", key)
        (line,) = gzip.decompress(octets).decode().splitlines()
        fields = line.split(",")
        assert len(fields) == columns
        assert fields[:2] == ["1637706961", "1637706973"]
        assert fields[18:24] == ["perftest-a", "ns-a", "node-a", "perftest-b", "ns-b", "node-b"]
        assert fields.count("''") == 2
    assert all(request.path.startswith(f"/{BUCKET}") for request in bucket.requests)


def test_a_bucket_that_fails_for_a_while_gets_each_row_once(capture: Path, bucket: StandIn) -> None:
    failures = [Answer.error(503, "SlowDown"), Answer(drop=True, is_processed=True)]

    def fault(request: Request) -> Answer | None:
        return failures.pop() if failures and request.action == "put" else None

    bucket.fault = fault
    said = replayed(capture, ANTREA, bucket)
    assert "export_retried" in said
    assert SECRET_KEY not in said
    assert not failures
    assert len(bucket.objects) == 2
    assert len(bucket.of("put")) == 4


def test_objects_larger_than_the_lanes_memory_are_told_at_start(tmp_path: Path, bucket: StandIn, run: Run) -> None:
    (tmp_path / "state").mkdir()
    path = tmp_path / "flowjoin.yaml"
    exporter = f"{{type: s3, bucketName: {BUCKET}, endpointURL: '{bucket.url}', maxBatchSize: 512MiB}}"
    path.write_text(
        f"stateDirectory: {tmp_path / 'state'}\napiServer: {{address: '127.0.0.1:0'}}\n"
        f"collectors: [{{protocol: udp, address: '127.0.0.1:0'}}]\nexporters: [{exporter}]\n",
        encoding="utf-8",
    )
    program = run("-c", str(path))
    said = program.wait_line("batches_smaller")
    assert (said["wanted"], said["octets"]) == (512 * 1024 * 1024, 32 * 1024 * 1024)
    assert said["remedy"] == f"set limits.laneBytes to {1024 * 1024 * 1024} at least"
    program.wait_line("ready")
    program.process.terminate()
    assert program.finish() == 0
