"""A process that is killed while it writes: what counted as delivered is there, and the next start goes on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from flowjoin.testing import RecordingContext, numbered_flows
from flowjoin_log import LogConfig
from flowjoin_log._exporter import open_log

PROGRAM = textwrap.dedent(
    """
    import sys, trio
    from flowjoin.testing import RecordingContext, numbered_flows
    from flowjoin_log import LogConfig
    from flowjoin_log._exporter import open_log

    async def main():
        batches = [numbered_flows(50, first=50 * number) for number in range(100)]
        async with open_log(LogConfig(path=sys.argv[1], max_size=1), RecordingContext()) as exporter:
            number = 0
            while True:
                await exporter.export(batches[number % 100])
                number += 1
                print(number, flush=True)

    trio.run(main)
    """
)


def lines_in(directory: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in directory.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("batches", [1, 7, 45])  # 45 batches are more than a file of one megabyte holds
async def test_what_counted_as_delivered_outlives_a_kill(tmp_path: Path, batches: int) -> None:
    path = tmp_path / "flows.log"
    program = PROGRAM.replace("max_size=1", "max_size=1, compress=False, max_backups=0")
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220 - a child that is killed
        assert process.stdout is not None
        for acknowledged in process.stdout:
            if int(acknowledged) >= batches:
                process.kill()
                break
        acknowledged_at_least = batches + sum(1 for _ in process.stdout)
    before = lines_in(tmp_path)
    assert before >= 50 * acknowledged_at_least
    async with open_log(LogConfig(path=str(path), compress=False, max_backups=0), RecordingContext()) as exporter:
        await exporter.export(numbered_flows(3))
    assert lines_in(tmp_path) >= before + 3
    assert all(line.count(b",") == 29 for line in path.read_bytes().splitlines()[-3:])
