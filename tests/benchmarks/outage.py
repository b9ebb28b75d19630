"""Memory while a destination is away: rows go on at full rate, nothing leaves.

    python tests/benchmarks/outage.py ROWS [none]

Prints, at every tenth, rows given, resident memory and the spool's size; ``none`` keeps the lane in memory.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
import trio.lowlevel

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.lane import Lane, LaneIdentity
from flowjoin._pipeline.lane_queue import LaneBounds
from flowjoin._pipeline.spool.settings import SpoolSettings
from flowjoin._pipeline.spool.store import SpoolStore
from flowjoin._telemetry.logs import Logs
from flowjoin.api import Batching, RetryableExportError
from flowjoin.testing import numbered_flows
from flowjoin.wire.registry import default_registry

BATCH = 2048
MEMORY = 64 * 1024 * 1024


class Away:
    async def export(self, _batch: FlowBatch) -> None:
        await trio.lowlevel.checkpoint()
        raise RetryableExportError("away")


@asynccontextmanager
async def open_away() -> AsyncIterator[Away]:
    yield Away()


def resident_megabytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no VmRSS")


async def main(rows: int, is_spooled: bool, directory: Path) -> None:
    health = HealthTable(random.random)
    log = Logs(level="error").logger(component="outage")
    store = None
    if is_spooled:
        store = SpoolStore(
            SpoolSettings(directory=directory, max_octets=8 * 2**30, max_age=86_400.0, sync=1.0, memory_octets=MEMORY),
            Batching(),
            instance_id="here",
            lane="audit",
            epoch=1,
            registry=default_registry(),
            component=health.add("spools", "audit"),
            log=log,
            clock=trio.current_time,
            wall=time.time,
        )
    lane = Lane(
        open_away,
        Batching(),
        identity=LaneIdentity(instance_id="here", lane="audit", epoch=1),
        component=health.add("exporters", "audit"),
        log=log,
        bounds=LaneBounds(octets=MEMORY),
        store=store,
    )
    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        tell_at = 0
        for given in range(0, rows + 1, BATCH):
            if given >= tell_at:
                books = lane.books()
                spool = books.spool_octets // 2**20
                print(f"{given:>9} rows {resident_megabytes():>5} MiB resident {spool:>6} MiB spool", flush=True)
                tell_at += rows // 10
            if is_spooled:
                await lane.wait_room()  # the rate is the disk's
            lane.offer(numbered_flows(BATCH, first=given), may_drop=not is_spooled)
            await trio.lowlevel.checkpoint()
        seconds = time.monotonic() - began
        books = lane.books()
        print(f"{seconds:.1f} s; dropped {books.dropped}, held {books.held}, spooled {books.spooled}")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        trio.run(main, int(sys.argv[1]), "none" not in sys.argv, Path(place))
