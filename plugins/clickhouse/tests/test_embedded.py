"""SQL over flows with no server: flowjoin replays a capture into a directory, and the engine reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from agent_traffic import agent_messages
from capture_writer import ethernet, ipv4, pcap, udp
from clickhouse_process import ClickHouseProcess, require_engine_inside

from flowjoin._generator.config import TrafficConfig
from flowjoin.api import RetryableExportError
from flowjoin.testing.batches import standard_flow
from flowjoin.testing.context import RecordingContext
from flowjoin_clickhouse import ClickHouseConfig, flowjoin_exporter_types

pytestmark = pytest.mark.slow


def capture(path: Path, flows: int) -> None:
    frames = []
    for number, (message, session) in enumerate(agent_messages(TrafficConfig(flows=flows, ipv6_share=0.25))):
        datagram = udp(message, source_port=session.peer_port)
        frames.append((1_700_000_000 + number / 1000, ethernet(ipv4(datagram, source=session.peer))))
    path.write_bytes(pcap(frames))


def test_a_capture_replayed_into_a_directory_can_be_asked_in_sql(tmp_path: Path) -> None:
    require_engine_inside()
    capture(tmp_path / "traffic.pcap", 300)
    (tmp_path / "flowjoin.yaml").write_text(
        f"""stateDirectory: {tmp_path}/state
exporters:
  - {{type: clickhouse, databaseURL: "chdb://{tmp_path}/flows", spool: none}}
  - {{type: log, path: "{tmp_path}/flows.jsonl", format: jsonLines, spool: none}}
""",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "flowjoin", "replay", "traffic.pcap", "-c", "flowjoin.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert '"promise": "exactly once"' in done.stderr
    assert (tmp_path / "flows").stat().st_mode & 0o777 == 0o700
    lines = [json.loads(line) for line in (tmp_path / "flows.jsonl").read_text().splitlines()]
    assert len(lines) >= 300
    with ClickHouseProcess(tmp_path / "flows").running() as server:
        (row,) = server.query("SELECT count(), sum(octetTotalCount), uniqExact(sourcePodName) FROM flows")
        by_pod = server.query(
            "SELECT sourcePodNamespace, sum(octetDeltaCount) AS octets FROM flows_pod_view"
            " GROUP BY sourcePodNamespace ORDER BY octets DESC, sourcePodNamespace"
        )
    assert row == [
        len(lines),
        sum(line["octetTotalCount"] for line in lines),
        len({line["sourcePodName"] for line in lines}),
    ]
    assert sum(octets for _, octets in by_pod) == sum(line["octetDeltaCount"] for line in lines)


async def test_a_directory_that_another_process_has_open_is_waited_for(tmp_path: Path) -> None:
    require_engine_inside()
    with ClickHouseProcess(tmp_path / "flows").running():
        config = ClickHouseConfig(database_url=f"chdb://{tmp_path}/flows")
        async with flowjoin_exporter_types()[0].open(config, RecordingContext(name="clickhouse")) as exporter:
            with pytest.raises(RetryableExportError, match="one process at a time can have a directory open"):
                await exporter.export(standard_flow())


async def test_a_directory_that_cannot_be_made_is_waited_for(tmp_path: Path) -> None:
    require_engine_inside()
    (tmp_path / "file").write_text("")
    async with flowjoin_exporter_types()[0].open(
        ClickHouseConfig(database_url=f"chdb://{tmp_path}/file/flows"), RecordingContext(name="clickhouse")
    ) as exporter:
        with pytest.raises(RetryableExportError, match="/file/flows cannot be made: Not a directory"):
            await exporter.export(standard_flow())


def test_relative_paths_stay_where_they_are_while_the_engine_is_loaded() -> None:
    require_engine_inside()
    program = """
import os, sys
gone_to = []
sys.addaudithook(lambda event, args: gone_to.append(args[0]) if event == "os.chdir" else None)
import trio
from flowjoin.testing.context import RecordingContext
from flowjoin_clickhouse import ClickHouseConfig, flowjoin_exporter_types

async def main():
    (exporter_type,) = flowjoin_exporter_types()
    async with exporter_type.open(ClickHouseConfig(database_url="chdb://memory"), RecordingContext()):
        assert "chdb" in sys.modules

trio.run(main)
assert gone_to == [], gone_to
os.chdir("/")
assert gone_to == ["/"]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
