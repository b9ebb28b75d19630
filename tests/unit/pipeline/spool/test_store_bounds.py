"""What a lane's spool gives up beyond its size, its age and its memory."""

from __future__ import annotations

import errno

import trio
from pipeline_fakes import OTHER_SCHEMA, SCHEMA, MemoryExporter, batch_of
from spool_bench import FaultyDisk, SpoolBench

from flowjoin.api import Batching, PermanentExportError


def flat(exporter: MemoryExporter) -> list[int]:
    return [number for _, _, numbers in exporter.calls for number in numbers]


async def for_ever(_batch: object) -> None:
    await trio.sleep_forever()


async def test_beyond_its_size_the_oldest_segments_are_dropped_and_counted(tmp_path, autojump_clock) -> None:
    exporter = MemoryExporter([for_ever])
    bench = SpoolBench(
        exporter.open, tmp_path / "audit", max_octets=64 * 1024, memory_octets=65_536, batching=Batching(records=10)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(500):
            bench.lane.offer(batch_of(*range(number * 10, number * 10 + 10)))
            await trio.sleep(0.1)
            assert bench.store.octets <= 72 * 1024
            assert bench.books.rows_in == number * 10 + 10
        assert bench.books.dropped > 0
        nursery.cancel_scope.cancel()
    again = MemoryExporter()
    second = SpoolBench(again.open, tmp_path / "audit", epoch=2)
    await second.run_for(50)
    assert flat(again)[-1] == 4999
    assert flat(again) == sorted(flat(again))
    assert second.books.delivered == second.books.restored
    in_flight = 10  # with the exporter when its segment went
    assert bench.books.held - bench.books.spooled == in_flight
    assert second.books.delivered + bench.books.dropped + in_flight == 5000


async def test_rows_beyond_their_age_are_dropped_and_counted(tmp_path, autojump_clock) -> None:
    exporter = MemoryExporter([for_ever])
    bench = SpoolBench(exporter.open, tmp_path / "audit", max_age=160.0, batching=Batching(records=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(40):
            bench.lane.offer(batch_of(number))
            await trio.sleep(10)
        # the first is with the exporter; those of the last 160 seconds and a segment's 10 are there
        assert 20 <= bench.books.dropped <= 24
        nursery.cancel_scope.cancel()


async def test_memory_is_bounded_while_the_disk_takes_nothing(tmp_path, autojump_clock) -> None:
    disk = FaultyDisk()
    disk.fault = OSError(errno.EIO, "no")
    exporter = MemoryExporter([for_ever])
    bench = SpoolBench(
        exporter.open, tmp_path / "audit", disk=disk, memory_octets=65_536, batching=Batching(records=50)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(1000):
            bench.lane.offer(batch_of(*range(number * 10, number * 10 + 10)))
            await trio.sleep(0.01)
            assert bench.store._bounds.memory_octets <= 70_000
        assert bench.books.dropped > 0
        assert bench.books.spooled == 0
        nursery.cancel_scope.cancel()


async def test_a_batch_larger_than_the_lanes_memory_closes_early_and_costs_no_row(tmp_path, autojump_clock) -> None:
    exporter = MemoryExporter()
    bench = SpoolBench(
        exporter.open,
        tmp_path / "audit",
        memory_octets=16_384,
        batching=Batching(records=1_000_000, octets=1 << 30, interval=3600),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(600):
            for schema in (SCHEMA, OTHER_SCHEMA):
                bench.lane.offer(batch_of(*range(number * 10, number * 10 + 10), schema=schema))
            await trio.sleep(0.01)
            assert bench.store._bounds.memory_octets <= 16_384
        bench.lane.close()
    assert (bench.books.delivered, bench.books.dropped) == (12_000, 0)
    assert max(len(numbers) for _, _, numbers in exporter.calls) > 100


async def test_who_waits_for_room_costs_nobody_a_row_however_slow_the_disk_is(tmp_path, autojump_clock) -> None:
    bench = SpoolBench(
        MemoryExporter([for_ever]).open, tmp_path / "audit", memory_octets=65_536, batching=Batching(records=50)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(100):
            await bench.lane.wait_room()
            bench.lane.offer(batch_of(*range(number * 100, number * 100 + 100)))
        assert bench.books.dropped == 0
        assert bench.store._bounds.memory_octets <= 65_536 + batch_of(*range(100)).octets
        nursery.cancel_scope.cancel()


async def test_dead_letters_are_bounded(tmp_path, autojump_clock) -> None:
    async def refuse(_batch: object) -> None:
        raise PermanentExportError("x" * 10_000)

    bench = SpoolBench(MemoryExporter([refuse] * 3000).open, tmp_path / "audit", batching=Batching(records=200))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(100):
            bench.lane.offer(batch_of(*range(number * 2000, number * 2000 + 2000)))
            await trio.sleep(0.1)
        bench.lane.close()
    assert bench.books.dead_lettered == 200_000
    letters = tmp_path / "audit" / "dead-letters"
    assert sum(path.stat().st_size for path in letters.glob("*.ipfix")) <= 64 * 1024 * 1024


async def test_an_old_segment_is_dropped_though_nothing_more_is_written(tmp_path, autojump_clock) -> None:
    bench = SpoolBench(MemoryExporter([for_ever]).open, tmp_path / "audit", max_age=100.0, batching=Batching(records=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(1))
        bench.lane.offer(batch_of(2))
        await trio.sleep(200)
        assert (bench.books.dropped, bench.books.held) == (1, 1)  # the first is with the exporter
        assert bench.files == []
        bench.lane.offer(batch_of(3))
        await trio.sleep(1)
        assert bench.books.spooled == 1
        nursery.cancel_scope.cancel()
