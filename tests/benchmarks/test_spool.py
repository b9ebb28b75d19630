"""What a spool costs: rows through a lane into an exporter that does nothing.

Measured by ``pytest --benchmark-enable --benchmark-columns=median,ops tests/benchmarks/test_spool.py``, or as CPU time,
which a busy machine does not change, by ``PYTHONPATH=tests/support python tests/benchmarks/test_spool.py``.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.lowlevel
from pipeline_fakes import MemoryLog

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.steps import at_once
from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.lane import Lane
from flowjoin._pipeline.lane_identity import LaneIdentity
from flowjoin._pipeline.spool.row_layout import RowLayout
from flowjoin._pipeline.spool.segment_format import FIRST_SCHEMA_ID, decode_piece, encode_piece
from flowjoin._pipeline.spool.settings import SpoolSettings
from flowjoin._pipeline.spool.store import SpoolStore
from flowjoin.api import Batching
from flowjoin.testing import numbered_flows
from flowjoin.wire.registry import default_registry

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")

ROWS = 4096
BATCHES = 10
NOW = 1_790_000_000


class Nothing:
    async def export(self, batch: FlowBatch) -> None:
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_nothing() -> AsyncIterator[Nothing]:
    yield Nothing()


async def through(sync: str | float | None, batch: FlowBatch, directory: Path) -> None:
    health = HealthTable(random.random)
    store = None
    if sync is not None:
        store = SpoolStore(
            SpoolSettings(
                directory=directory, max_octets=2**30, max_age=86_400.0, sync=sync, memory_octets=256 * 1024 * 1024
            ),
            Batching(),
            instance_id="here",
            lane="audit",
            epoch=1,
            registry=default_registry(),
            component=health.add("spools", "audit"),
            log=MemoryLog(),
            clock=trio.current_time,
            wall=time.time,
        )
    lane = Lane(
        open_nothing,
        Batching(),
        identity=LaneIdentity(instance_id="here", lane="audit", epoch=1),
        component=health.add("exporters", "audit"),
        log=MemoryLog(),
        store=store,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        for _ in range(BATCHES):
            lane.offer(batch, may_drop=False)
            await trio.lowlevel.checkpoint()
        lane.close()
    assert lane.books().delivered == ROWS * BATCHES


@pytest.mark.slow
@pytest.mark.parametrize("sync", [None, "never", 1.0, "batch"], ids=["memory", "never", "1s", "batch"])
def test_lane(benchmark, sync) -> None:
    batch = numbered_flows(ROWS)

    def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            trio.run(through, sync, batch, Path(directory))

    benchmark.extra_info["rows"] = ROWS * BATCHES
    benchmark.pedantic(run, rounds=3, warmup_rounds=1)


@pytest.mark.slow
def test_encode(benchmark) -> None:
    batch = numbered_flows(ROWS)
    layout = RowLayout(batch.schema)
    benchmark.extra_info["rows"] = ROWS
    benchmark(lambda: at_once(encode_piece(batch, layout, FIRST_SCHEMA_ID, export_time=NOW, sequence=0)))


@pytest.mark.slow
def test_decode(benchmark) -> None:
    batch = numbered_flows(ROWS)
    layout = RowLayout(batch.schema)
    octets, _ = at_once(encode_piece(batch, layout, FIRST_SCHEMA_ID, export_time=NOW, sequence=0))
    benchmark.extra_info["rows"] = ROWS
    benchmark(lambda: at_once(decode_piece(octets, layout, FIRST_SCHEMA_ID, is_first_export=False)))


def print_cpu_times() -> None:
    batch, rows = numbered_flows(ROWS), ROWS * BATCHES
    for sync in (None, "never", 1.0, "batch"):
        used, took = [], []
        for _ in range(4):
            with tempfile.TemporaryDirectory() as directory:
                began = time.process_time(), time.perf_counter()
                trio.run(through, sync, batch, Path(directory))
                used.append(time.process_time() - began[0])
                took.append(time.perf_counter() - began[1])
        cpu, wall = 1e6 * statistics.median(used) / rows, rows / statistics.median(took)
        print(f"sync {sync!s:>6}: {cpu:5.2f} µs of CPU a row, {wall:>12,.0f} rows/s")


if __name__ == "__main__":
    print_cpu_times()
