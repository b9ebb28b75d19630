"""A program to be killed: a lane with a spool and the log exporter, under traffic.

    python crash_victim.py DIRECTORY EPOCH ROWS

Rows are numbered from EPOCH * 10,000,000 in ``octetTotalCount``. Segments that the lane removes are kept in ``kept``,
so that what was ever appended can be compared with what the log has. With 0 rows it delivers what is there and ends.
"""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path

import trio
import trio.lowlevel
from pipeline_fakes import MemoryLog

from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.lane import Lane
from flowjoin._pipeline.lane_identity import LaneIdentity
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.settings import SpoolSettings
from flowjoin._pipeline.spool.store import SpoolStore
from flowjoin.api import Batching
from flowjoin.testing import RecordingContext, numbered_flows
from flowjoin.wire.registry import default_registry
from flowjoin_log import LogConfig
from flowjoin_log._exporter import open_log

ROWS_PER_EPOCH = 10_000_000


class KeepingDisk(Disk):
    """What is removed lies beside."""

    def remove(self, path: Path) -> None:
        kept = path.parent.parent / "kept"
        with suppress(FileNotFoundError):
            path.rename(kept / path.name.removesuffix(".gone"))  # as a removed index is called for a moment


async def main(directory: Path, epoch: int, rows: int) -> None:
    for name in ("spool", "kept", "state", "logs"):
        (directory / name).mkdir(exist_ok=True)
    choose = random.Random(epoch)
    batching = Batching(
        records=choose.choice([10, 100, 1000]), octets=10_000_000, interval=choose.choice([0.0, 0.02, 0.5])
    )
    log = MemoryLog()
    health = HealthTable(random.random)
    store = SpoolStore(
        SpoolSettings(
            directory=directory / "spool",
            max_octets=2**34,
            largest_segment=choose.choice([20_000, 200_000, 4_000_000]),
            max_age=86_400.0,
            sync=choose.choice(["never", "batch", 0.05]),
            memory_octets=choose.choice([100_000, 10_000_000]),
        ),
        batching,
        instance_id="here",
        lane="audit",
        epoch=epoch,
        registry=default_registry(),
        component=health.add("spools", "audit"),
        log=log,
        clock=trio.current_time,
        wall=time.time,
        disk=KeepingDisk(),
    )
    config = LogConfig(
        path=str(directory / "logs" / "flows.log"), format="jsonLines", max_size=1, max_backups=0, compress=False
    )
    context = RecordingContext(state_directory=directory / "state")
    lane = Lane(
        lambda: open_log(config, context),
        batching,
        identity=LaneIdentity(instance_id="here", lane="audit", epoch=epoch),
        component=health.add("exporters", "audit"),
        log=log,
        store=store,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        await trio.lowlevel.checkpoint()
        given = 0
        while given < rows:
            count = choose.choice([1, 7, 50, 700])
            lane.offer(numbered_flows(count, first=epoch * ROWS_PER_EPOCH + given))
            given += count
            await trio.sleep(choose.choice([0, 0, 0.001, 0.02]))
            print(given, flush=True)
            await lane.wait_room()  # the memory's bound drops; that is tested elsewhere
        if not rows:
            await trio.sleep(0.2)  # what was found is known by then
        lane.close()
    books = lane.books()
    assert books.is_balanced, books
    assert books.held == 0, books
    print("done", books, flush=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    os._exit(0)
