"""A process that is killed at random moments under traffic: what its spool had is in the log, each row once.

``FLOWJOIN_KILLS`` says how often; 20 by default, hundreds in the long form.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.row_layout import DamagedError
from flowjoin._pipeline.spool.segments import list_segments, load_index, read_batch
from flowjoin.wire.registry import default_registry

VICTIM = Path(__file__).parents[1] / "support" / "crash_victim.py"
KILLS = int(os.environ.get("FLOWJOIN_KILLS", "20"))
REGISTRY = default_registry()


def start(directory: Path, epoch: int, rows: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(VICTIM.parent)}
    return subprocess.Popen(
        [sys.executable, str(VICTIM), str(directory), str(epoch), str(rows)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def appended(directory: Path) -> tuple[set[int], int]:
    """Numbers of the rows that an index names, and how many pieces could not be read."""
    disk = Disk()
    found: set[int] = set()
    unreadable = 0
    for place in (directory / "kept", directory / "spool"):
        for files in list_segments(disk, place):
            index = load_index(disk, files, REGISTRY)
            pieces = [piece for batch in index.batches for piece in batch.pieces]
            pieces += [piece for group in index.open_groups.values() for piece in group]
            for piece in pieces:
                try:
                    batch = read_batch(disk, files, [piece], index.schemas)
                except DamagedError:
                    unreadable += 1
                    continue
                found.update(number // 1000 for number in batch.column("octetTotalCount"))
    return found, unreadable


def logged(directory: Path) -> Counter[int]:
    """How often each row's number is in the log, rotated files too."""
    counts: Counter[int] = Counter()
    for path in (directory / "logs").iterdir():
        for line in path.read_bytes().splitlines():
            counts[json.loads(line)["octetTotalCount"] // 1000] += 1
    return counts


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_was_in_the_spool_is_in_the_log_once_however_often_the_process_is_killed(tmp_path: Path) -> None:
    choose = random.Random(int(os.environ.get("FLOWJOIN_SEED", "7")))
    offered = 0
    for epoch in range(1, KILLS + 1):
        with start(tmp_path, epoch, 5_000_000) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first, "the victim did not start"
            time.sleep(choose.choice([0.05, 0.5, 1.5]) * choose.random())  # the moment is what is tested
            process.kill()
            offered += int((first + process.stdout.read()).split()[-1])
    with start(tmp_path, KILLS + 1, 0) as process:
        out, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    assert "done" in out

    rows, unreadable = appended(tmp_path)
    log = logged(tmp_path)
    doubled = [number for number, count in log.items() if count > 1]
    summary = (
        f"{KILLS} kills, {offered} rows offered, {len(rows)} appended, {log.total()} logged, {len(doubled)} doubled"
    )
    print(summary)
    assert unreadable == 0, "a kill without loss of power tears no octets that an index names"
    assert not doubled, summary
    assert rows == set(log), (summary, sorted(rows - set(log))[:5], sorted(set(log) - rows)[:5])
    assert len(rows) > KILLS * 50, summary
    assert not list((tmp_path / "spool").glob("*.ipfix"))
