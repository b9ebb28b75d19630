"""A lane that goes on in a store of the other kind while it works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from pipeline_fakes import MemoryExporter, MemoryLog, batch_of
from spool_bench import at_once

from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.lane import Lane
from flowjoin._pipeline.lane_identity import LaneIdentity
from flowjoin._pipeline.lane_queue import LaneBooks, LaneBounds
from flowjoin._pipeline.lane_store import LaneStore, MemoryStore
from flowjoin._pipeline.spool.settings import SpoolSettings
from flowjoin._pipeline.spool.store import SpoolStore
from flowjoin.api import Batching, ConfigError, RetryableExportError
from flowjoin.wire.registry import default_registry


async def refuse(_batch: object) -> None:
    raise RetryableExportError("away")


async def for_ever(_batch: object) -> None:
    await trio.sleep_forever()


class Bench:
    """A lane, and stores of either kind with an epoch of their own."""

    def __init__(
        self, exporter: MemoryExporter, directory: Path, *, kind: str, batching: Batching | None = None
    ) -> None:
        self._directory = directory
        self._batching = batching or Batching(records=4)
        self._epoch = 0
        self.log = MemoryLog()
        self.health = HealthTable(lambda: 1.0)
        self.lane = Lane(
            exporter.open,
            self._batching,
            identity=LaneIdentity(instance_id="here", lane="audit", epoch=1),
            component=self.health.add("exporters", "audit"),
            log=self.log,
            store=self.store(kind),
        )

    def store(self, kind: str) -> LaneStore:
        self._epoch += 1
        identity = LaneIdentity(instance_id="here", lane="audit", epoch=self._epoch)
        if kind == "memory":
            return MemoryStore(self._batching, LaneBounds(), identity.batch_id)
        self._directory.mkdir(exist_ok=True)
        return SpoolStore(
            SpoolSettings(directory=self._directory, max_octets=2**30, max_age=1e6, sync="never", memory_octets=2**26),
            self._batching,
            instance_id="here",
            lane="audit",
            epoch=self._epoch,
            registry=default_registry(),
            component=self.health.add("spools", "audit"),
            log=self.log,
            clock=trio.current_time,
            wall=lambda: 1_790_000_000.0 + trio.current_time(),
            run=at_once,
        )

    def change(self, exporter: MemoryExporter, kind: str | None, make: Callable[[], LaneStore] | None = None) -> None:
        next_store = make or (None if kind is None else lambda: self.store(kind))
        self.lane.replace(exporter.open, self._batching, None, grace_seconds=5, next_store=next_store)

    @property
    def books(self) -> LaneBooks:
        books = self.lane.books()
        assert books.is_balanced, books
        return books


def flat(*exporters: MemoryExporter) -> list[int]:
    return [number for exporter in exporters for number in exporter.rows]


def distinct_ids(*exporters: MemoryExporter) -> bool:
    ids = [batch.id for exporter in exporters for batch in exporter.accepted]
    return len(ids) == len(set(ids))


async def test_rows_in_memory_go_to_the_disk_in_order_before_those_that_come_later(tmp_path, autojump_clock) -> None:
    away, back = MemoryExporter([refuse] * 1000), MemoryExporter()
    bench = Bench(away, tmp_path / "spool", kind="memory")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(*range(10)))
        await trio.sleep(3)
        bench.change(back, "spool")
        bench.lane.offer(batch_of(10, 11))
        await trio.sleep(3)
        assert bench.lane.is_durable
        assert flat(back) == list(range(12))
        assert distinct_ids(back)
        bench.lane.offer(batch_of(12))
        bench.lane.close()
    assert flat(back) == list(range(13))
    assert (bench.books.rows_in, bench.books.delivered, bench.books.held) == (13, 13, 0)
    assert bench.log.facts("store_changed") == [{"to": "spool", "rows": 12}]


async def test_rows_that_came_to_the_disk_by_a_change_outlive_the_process(tmp_path, autojump_clock) -> None:
    away = MemoryExporter([refuse] * 1000)
    bench = Bench(away, tmp_path / "spool", kind="memory")
    with trio.move_on_after(9):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.lane.run)
            bench.lane.offer(batch_of(*range(10)))
            await trio.sleep(3)
            bench.change(away, "spool")
    assert (bench.books.held, bench.books.spooled) == (10, 10)
    exporter = MemoryExporter()
    later = Bench(exporter, tmp_path / "spool", kind="spool")
    with trio.move_on_after(1):
        await later.lane.run()
    assert flat(exporter) == list(range(10))


async def test_a_spool_is_left_when_it_is_empty_and_not_before(tmp_path, autojump_clock) -> None:
    away, back = MemoryExporter([refuse] * 4), MemoryExporter()
    bench = Bench(away, tmp_path / "spool", kind="spool")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(*range(10)))
        await trio.sleep(1)
        hanging = MemoryExporter([refuse] * 3)
        bench.change(hanging, "memory")
        bench.lane.offer(batch_of(10, 11))
        await trio.sleep(0.5)
        assert bench.lane.is_durable  # the destination is away
        await trio.sleep(300)
        assert not bench.lane.is_durable
        assert flat(hanging) == list(range(12))
        assert bench.books.held == 0
        assert not list((tmp_path / "spool").glob("*.ipfix"))
        bench.change(back, None)
        bench.lane.offer(batch_of(12))
        bench.lane.close()
    assert flat(hanging, back) == list(range(13))
    assert bench.books.delivered == 13


async def test_changes_to_and_fro_under_load_deliver_each_row_once_and_in_order(tmp_path, autojump_clock) -> None:
    exporters = [MemoryExporter() for _ in range(12)]
    bench = Bench(exporters[0], tmp_path / "spool", kind="memory", batching=Batching(records=7, interval=0.4))
    given = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for at, exporter in enumerate(exporters[1:]):
            for _ in range(30):
                bench.lane.offer(batch_of(*range(given, given + 5)))
                given += 5
                await trio.sleep(0.05 if at % 3 else 0)
                assert bench.books.rows_in == given
            bench.change(exporter, ("spool", "memory")[at % 2] if bench.lane.is_durable == bool(at % 2) else None)
        await trio.sleep(5)
        bench.lane.close()
    assert flat(*exporters) == list(range(given))
    assert distinct_ids(*exporters)
    assert (bench.books.delivered, bench.books.held, bench.books.dropped) == (given, 0, 0)
    assert len(bench.log.facts("store_changed")) >= 6


async def test_a_change_that_is_taken_back_before_it_happened_leaves_all_as_it_was(tmp_path, autojump_clock) -> None:
    away = MemoryExporter([refuse] * 1000)
    bench = Bench(away, tmp_path / "spool", kind="spool")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(1))
        await trio.sleep(1)
        bench.change(away, "memory")
        await trio.sleep(1)
        back = MemoryExporter()
        bench.change(back, None)
        await trio.sleep(60)
        assert bench.lane.is_durable
        bench.lane.close()
    assert flat(back) == [1]
    assert bench.log.facts("store_changed") == []


async def test_a_spool_that_cannot_be_had_is_told_and_rows_stay_in_memory(tmp_path, autojump_clock) -> None:
    exporter, other = MemoryExporter([refuse] * 1000), MemoryExporter()
    bench = Bench(exporter, tmp_path / "spool", kind="memory")

    def fail() -> LaneStore:
        raise ConfigError("read-only")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(1, 2))
        await trio.sleep(1)
        bench.change(other, "spool", fail)
        await trio.sleep(10)
        assert not bench.lane.is_durable
        assert flat(other) == [1, 2]
        bench.lane.close()
    assert bench.log.events("error") == ["store_not_changed"]


@pytest.mark.parametrize("kind", ["memory", "spool"])
async def test_a_lane_that_is_closed_while_it_changes_delivers_all(tmp_path, autojump_clock, kind: str) -> None:
    exporter, other = MemoryExporter(), MemoryExporter()
    bench = Bench(exporter, tmp_path / "spool", kind=kind)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(*range(9)))
        bench.change(other, "spool" if kind == "memory" else "memory")
        bench.lane.close()
    assert sorted(flat(exporter, other)) == list(range(9))
    assert bench.books.held == 0


async def test_an_exporter_that_hangs_is_cut_short_and_its_rows_go_to_the_disk(tmp_path, autojump_clock) -> None:
    exporter, other = MemoryExporter([for_ever]), MemoryExporter()
    bench = Bench(exporter, tmp_path / "spool", kind="memory")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(1, 2))
        await trio.sleep(1)
        bench.change(other, "spool")
        await trio.sleep(10)
        assert flat(other) == [1, 2]
        bench.lane.close()
    assert bench.books.delivered == 2
