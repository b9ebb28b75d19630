"""A lane with a spool: nothing lost, nothing twice, in order."""

from __future__ import annotations

import shutil

import pytest
import trio
from pipeline_fakes import OTHER_SCHEMA, MemoryExporter, batch_of, cancelled_at_step
from spool_bench import FaultyDisk, SpoolBench

from flowjoin.api import Batching, PermanentExportError, RetryableExportError


def rows(exporter: MemoryExporter) -> list[list[int]]:
    return [numbers for _, _, numbers in exporter.calls]


def flat(exporter: MemoryExporter) -> list[int]:
    return [number for _, _, numbers in exporter.calls for number in numbers]


async def down(_batch: object) -> None:
    raise RetryableExportError("away")


async def for_ever(_batch: object) -> None:
    await trio.sleep_forever()


async def test_rows_are_delivered_and_the_spool_is_empty_afterwards(tmp_path) -> None:
    exporter = MemoryExporter()
    bench = SpoolBench(exporter.open, tmp_path / "audit")
    bench.lane.offer(batch_of(1, 2))
    bench.lane.offer(batch_of(3, schema=OTHER_SCHEMA))

    await bench.finish()

    assert [(id, numbers) for _, id, numbers in exporter.calls] == [("here/audit/1/1", [1, 2]), ("here/audit/1/2", [3])]
    assert (bench.books.delivered, bench.books.held, bench.books.batches) == (3, 0, 2)
    assert bench.files == []


async def test_a_batch_is_on_the_disk_before_export_sees_it(tmp_path) -> None:
    seen = []

    async def look(_batch: object) -> None:
        seen.append((bench.files, bench.books.spooled))

    bench = SpoolBench(MemoryExporter([look]).open, tmp_path / "audit")
    bench.lane.offer(batch_of(1, 2))
    await bench.finish()
    assert seen == [(["0000000001.index", "0000000001.ipfix"], 2)]


async def test_what_was_not_delivered_comes_again_with_the_same_id_and_rows(tmp_path, autojump_clock) -> None:
    first = SpoolBench(MemoryExporter([None, for_ever]).open, tmp_path / "audit", batching=Batching(records=2))
    first.lane.offer(batch_of(1, 2, 3, 4, 5))
    await first.run_for(1)
    assert (first.books.delivered, first.books.held, first.books.spooled) == (2, 3, 3)

    exporter = MemoryExporter()
    second = SpoolBench(exporter.open, tmp_path / "audit", epoch=2, batching=Batching(records=100))
    second.lane.offer(batch_of(6))
    await second.run_for(5)
    assert [(id, numbers) for _, id, numbers in exporter.calls] == [
        ("here/audit/1/2", [3, 4]),
        ("here/audit/1/3", [5]),
        ("here/audit/2/1", [6]),
    ]
    assert (second.books.restored, second.books.rows_in, second.books.delivered) == (3, 1, 4)
    assert second.books.held == 0


async def test_rows_that_an_earlier_run_left_have_waited_since_they_were_written(tmp_path, autojump_clock) -> None:
    batching = Batching(interval=1000)
    first = SpoolBench(MemoryExporter().open, tmp_path / "audit", batching=batching)
    first.lane.offer(batch_of(1, 2))
    await first.run_for(1)
    second = SpoolBench(MemoryExporter().open, tmp_path / "audit", epoch=2, batching=batching)
    await trio.sleep(50)
    second.lane.offer(batch_of(3))
    await second.run_for(100)
    assert second.books.held == 3
    assert second.books.lag >= 150


async def test_once_what_an_earlier_run_left_is_gone_the_lag_is_that_of_the_rows_of_this_run(
    tmp_path, autojump_clock
) -> None:
    first = SpoolBench(MemoryExporter().open, tmp_path / "audit", batching=Batching(interval=1000))
    first.lane.offer(batch_of(1, 2))
    await first.run_for(1)
    second = SpoolBench(MemoryExporter([None, for_ever]).open, tmp_path / "audit", epoch=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.lane.run)
        await trio.sleep(50)
        assert (second.books.delivered, second.books.lag) == (2, 0)
        second.lane.offer(batch_of(3))
        await trio.sleep(7)
        assert (second.books.held, second.books.lag) == (1, 7)
        nursery.cancel_scope.cancel()


async def test_rows_of_open_batches_outlive_the_process(tmp_path, autojump_clock) -> None:
    batching = Batching(interval=1000)
    first = SpoolBench(MemoryExporter().open, tmp_path / "audit", batching=batching)
    first.lane.offer(batch_of(1, 2))
    first.lane.offer(batch_of(3, schema=OTHER_SCHEMA))
    first.lane.offer(batch_of(4))
    await first.run_for(1)
    assert (first.books.held, first.books.spooled) == (4, 4)

    exporter = MemoryExporter()
    second = SpoolBench(exporter.open, tmp_path / "audit", epoch=2, batching=batching)
    await second.run_for(500)
    assert exporter.calls == []
    assert second.books.held == second.books.restored == 4
    third = SpoolBench(exporter.open, tmp_path / "audit", epoch=3, batching=batching)
    await third.run_for(1500)
    assert [(id, numbers) for _, id, numbers in exporter.calls] == [
        ("here/audit/3/1", [1, 2, 4]),
        ("here/audit/3/2", [3]),
    ]
    assert third.books.held == 0


async def test_an_outage_keeps_memory_flat_and_the_order(tmp_path, autojump_clock) -> None:
    exporter = MemoryExporter([down])
    bench = SpoolBench(
        exporter.open,
        tmp_path / "audit",
        memory_octets=65_536,
        max_octets=4 * 1024 * 1024,
        batching=Batching(records=50),
    )
    is_up = False

    async def until_up(_batch: object) -> None:
        if not is_up:
            raise RetryableExportError("away", retry_after=1.0)

    exporter.script = iter([until_up] * 100_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(2000):
            bench.lane.offer(batch_of(*range(number * 10, number * 10 + 10)))
            if number % 10 == 9:
                await trio.sleep(0.01)
        await trio.sleep(3)
        assert bench.store._cache._octets <= 65_536
        assert bench.books.held == bench.books.spooled == 20_000
        exporter.calls.clear()
        is_up = True
        await trio.sleep(5)
        bench.lane.close()
    assert bench.books.delivered == 20_000
    assert flat(exporter) == list(range(20_000))


async def test_a_batch_that_was_cut_goes_on_with_the_parts_that_are_left(tmp_path, autojump_clock) -> None:
    async def poison(batch) -> None:
        if 3 in batch.column("octetDeltaCount"):
            raise ValueError("three")
        if 4 in batch.column("octetDeltaCount"):
            await trio.sleep_forever()

    exporter = MemoryExporter([poison] * 100)
    first = SpoolBench(exporter.open, tmp_path / "audit")
    first.lane.offer(batch_of(1, 2, 3, 4))
    await first.run_for(1000)
    assert (first.books.delivered, first.books.dead_lettered, first.books.held) == (2, 1, 1)

    again = MemoryExporter()
    second = SpoolBench(again.open, tmp_path / "audit", epoch=2)
    await second.run_for(10)
    assert [(id, numbers) for _, id, numbers in again.calls] == [("here/audit/1/1[3:4]", [4])]
    assert (second.books.restored, second.books.delivered, second.books.held) == (1, 1, 0)
    assert sorted(path.name for path in (tmp_path / "audit" / "dead-letters").iterdir()) == [
        "0000000001.index",
        "0000000001.ipfix",
    ]


async def test_the_parts_of_a_batch_that_is_no_longer_there_are_those_of_no_other_batch(
    tmp_path, autojump_clock
) -> None:
    async def poison(batch) -> None:
        if 3 in batch.column("octetDeltaCount"):
            raise ValueError("three")
        if 4 in batch.column("octetDeltaCount"):
            await trio.sleep_forever()

    first = SpoolBench(MemoryExporter([poison] * 100).open, tmp_path / "audit")
    first.lane.offer(batch_of(1, 2, 3, 4))
    await first.run_for(1000)
    second = SpoolBench(MemoryExporter([for_ever]).open, tmp_path / "audit", epoch=2)
    second.lane.offer(batch_of(5, 6, 7, 8))
    await second.run_for(10)
    for name in ("0000000001.index", "0000000001.ipfix"):
        (tmp_path / "audit" / name).unlink()

    again = MemoryExporter()
    third = SpoolBench(again.open, tmp_path / "audit", epoch=3)
    await third.run_for(10)
    assert [numbers for _, _, numbers in again.calls] == [[5, 6, 7, 8]]
    assert third.books.delivered == 4


async def test_refused_rows_are_kept_as_dead_letters_with_the_reason(tmp_path) -> None:
    async def refuse(_batch: object) -> None:
        raise PermanentExportError("too blue", rows=[1])

    exporter = MemoryExporter([refuse])
    bench = SpoolBench(exporter.open, tmp_path / "audit")
    bench.lane.offer(batch_of(1, 2, 3))
    await bench.finish()
    assert (bench.books.delivered, bench.books.dead_lettered) == (2, 1)
    index = (tmp_path / "audit" / "dead-letters" / "0000000001.index").read_text()
    assert "too blue" in index


@pytest.mark.parametrize("is_sliced", [False, True])
async def test_cancelled_at_any_step_nothing_is_lost_and_what_comes_again_has_its_id(
    tmp_path, autojump_clock, monkeypatch, is_sliced: bool
) -> None:
    if is_sliced:  # others have their turn behind each row that is written, each Message read, each column joined
        monkeypatch.setattr("flowjoin._model.flow_batch._STEP_COST", 1)
        monkeypatch.setattr("flowjoin._pipeline.spool.composing._SLICE_ROWS", 1)
        monkeypatch.setattr("flowjoin._pipeline.spool.segment_format._STRETCH", 1)

    async def refuse_two(batch) -> None:
        if 2 in batch.column("octetDeltaCount"):
            raise PermanentExportError("two", rows=[1])
        if 5 in batch.column("octetDeltaCount"):
            raise ValueError("five")

    step = 0
    while True:
        step += 1
        directory = tmp_path / str(step)
        exporter = MemoryExporter([refuse_two] * 100)
        first = SpoolBench(exporter.open, directory, batching=Batching(records=2))
        for number in range(1, 8):
            first.lane.offer(batch_of(number))
        with cancelled_at_step(step) as instrument:
            await first.finish()
        assert first.books.held == first.books.spooled
        again = MemoryExporter([refuse_two] * 100)
        second = SpoolBench(again.open, directory, epoch=2, batching=Batching(records=2))
        await second.run_for(1000)
        assert second.books.held == 0
        letters = first.books.dead_lettered + second.books.dead_lettered
        seen = {number for each in (exporter, again) for number in flat(each)}
        assert seen == {1, 2, 3, 4, 5, 6, 7}, step
        assert {number for each in (exporter, again) for number in each.rows} >= {3, 4, 6, 7}, step
        assert first.books.delivered + second.books.delivered >= 5, step
        assert letters >= 2, step
        by_id: dict[str, list[int]] = {}
        for _, id, numbers in [*exporter.calls, *again.calls]:
            assert by_id.setdefault(id, numbers) == numbers, (step, id)
        assert not list(directory.glob("*.ipfix"))
        if not instrument.has_fired:
            break
    assert step > 30


async def test_a_segment_is_left_only_when_the_next_has_the_rows_of_open_batches(tmp_path, autojump_clock) -> None:
    batching = Batching(records=1000, interval=1e6)
    bench = SpoolBench(MemoryExporter().open, tmp_path / "audit", batching=batching, max_octets=16 * 3000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(200):
            bench.lane.offer(batch_of(number))
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    exporter = MemoryExporter()
    again = SpoolBench(exporter.open, tmp_path / "audit", epoch=2)
    await again.run_for(10)
    assert sorted(flat(exporter)) == list(range(200))


async def test_a_crash_in_the_middle_of_any_write_loses_nothing_that_was_written_before(
    tmp_path, autojump_clock
) -> None:
    """The disk takes so many octets and not one more; what the lane saw as written must be there."""
    for room in range(0, 9000, 131):
        directory = tmp_path / str(room)
        disk = FaultyDisk()
        bench = SpoolBench(
            MemoryExporter([for_ever]).open, directory, disk=disk, batching=Batching(records=2, interval=0.1)
        )
        disk.room = room
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.lane.run)
            for number in range(20):
                bench.lane.offer(batch_of(number))
                await trio.sleep(0.01)
            await trio.sleep(0.05)
            spooled = bench.books.spooled
            # as a crash would leave it: nothing is tidied up
            copy = tmp_path / f"{room}-copy"
            shutil.copytree(directory, copy)
            nursery.cancel_scope.cancel()
        exporter = MemoryExporter()
        again = SpoolBench(exporter.open, copy, epoch=2)
        await again.run_for(10)
        assert len(flat(exporter)) >= spooled, room
        assert flat(exporter) == sorted(set(flat(exporter))), room


async def test_a_lane_that_keeps_up_never_reads(tmp_path, autojump_clock) -> None:
    disk = FaultyDisk()
    exporter = MemoryExporter()
    bench = SpoolBench(exporter.open, tmp_path / "audit", disk=disk)
    reads = disk.reads
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(100):
            bench.lane.offer(batch_of(number))
            await trio.sleep(0.1)
        bench.lane.close()
    assert disk.reads == reads
    assert flat(exporter) == list(range(100))


async def test_changed_batching_cuts_no_batch_again(tmp_path, autojump_clock) -> None:
    first = SpoolBench(MemoryExporter([for_ever]).open, tmp_path / "audit", batching=Batching(records=4))
    first.lane.offer(batch_of(*range(12)))
    await first.run_for(1)
    exporter = MemoryExporter()
    second = SpoolBench(exporter.open, tmp_path / "audit", epoch=2, batching=Batching(records=1))
    await second.run_for(10)
    assert rows(exporter) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert [id for _, id, _ in exporter.calls] == ["here/audit/1/1", "here/audit/1/2", "here/audit/1/3"]


async def test_first_exports_are_remembered(tmp_path, autojump_clock) -> None:
    first = SpoolBench(MemoryExporter([for_ever]).open, tmp_path / "audit")
    first.lane.offer(batch_of(1, is_first_export=True))
    await first.run_for(1)
    exporter = MemoryExporter()
    second = SpoolBench(exporter.open, tmp_path / "audit", epoch=2)
    await second.run_for(10)
    assert [batch.is_first_export for batch in exporter.accepted] == [True]
