"""A lane's spool on a disk that is full, fails, or lacks something for a moment."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from pipeline_fakes import MemoryExporter, batch_of
from spool_bench import FaultyDisk, SpoolBench, at_once

from flowjoin._pipeline.health import State
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.inspecting import examine, waiting_batches
from flowjoin.api import Batching, PermanentExportError
from flowjoin.wire.registry import default_registry

T = TypeVar("T")


def flat(exporter: MemoryExporter) -> list[int]:
    return [number for _, _, numbers in exporter.calls for number in numbers]


async def for_ever(_batch: object) -> None:
    await trio.sleep_forever()


async def test_a_full_disk_degrades_to_memory_loudly_and_recovers_in_order(tmp_path, autojump_clock) -> None:
    disk = FaultyDisk()
    exporter = MemoryExporter([for_ever])
    bench = SpoolBench(exporter.open, tmp_path / "audit", disk=disk, batching=Batching(records=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(1))
        await trio.sleep(1)
        disk.room = 10
        bench.lane.offer(batch_of(2))
        await trio.sleep(1)
        bench.lane.offer(batch_of(3))
        await trio.sleep(1)
        assert bench.spool_state is State.DEGRADED
        assert bench.log.events("error") == ["spool_failed"]
        assert (bench.books.held, bench.books.spooled) == (3, 1)
        disk.room = None
        await trio.sleep(5)
        bench.lane.offer(batch_of(4))
        await trio.sleep(1)
        assert bench.spool_state is State.OK
        assert "spool_recovered" in bench.log.events()
        assert (bench.books.held, bench.books.spooled) == (4, 2)
        nursery.cancel_scope.cancel()
    assert bench.books.held == 4
    again = MemoryExporter()
    second = SpoolBench(again.open, tmp_path / "audit", epoch=2)
    await second.run_for(5)
    assert flat(again) == [1, 4]


async def test_a_full_disk_loses_nothing_while_the_process_lives(tmp_path, autojump_clock) -> None:
    disk = FaultyDisk()
    exporter = MemoryExporter()
    bench = SpoolBench(exporter.open, tmp_path / "audit", disk=disk, batching=Batching(records=3, interval=2.0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(200):
            disk.room = None if number % 20 < 10 else number % 37
            bench.lane.offer(batch_of(number))
            await trio.sleep(0.5)
            assert bench.books.rows_in == number + 1
        disk.room = None
        bench.lane.close()
    assert flat(exporter) == list(range(200))
    assert bench.books.delivered == 200


@pytest.mark.parametrize("fault", [errno.EIO, errno.ENOSPC, errno.EROFS])
async def test_a_failed_sync_is_loud_and_the_next_write_goes_elsewhere(tmp_path, autojump_clock, fault) -> None:
    disk = FaultyDisk()
    exporter = MemoryExporter([for_ever])
    bench = SpoolBench(exporter.open, tmp_path / "audit", disk=disk, sync=1.0, batching=Batching(records=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(1))
        await trio.sleep(0.5)
        disk.sync_fault = OSError(fault, os.strerror(fault))
        await trio.sleep(1)
        assert bench.spool_state is State.DEGRADED
        disk.sync_fault = None
        bench.lane.offer(batch_of(2))
        await trio.sleep(3)
        assert bench.spool_state is State.OK
        assert len(bench.files) == 4
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("sync", "least", "most"), [("never", 0, 0), ("batch", 6, 20), (1.0, 3, 12)])
async def test_the_disk_is_waited_for_as_configured(tmp_path, autojump_clock, sync, least, most) -> None:
    disk = FaultyDisk()
    bench = SpoolBench(MemoryExporter().open, tmp_path / "audit", disk=disk, sync=sync)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(3):
            bench.lane.offer(batch_of(number))
            await trio.sleep(0.4)
        await trio.sleep(2)
        assert least <= disk.syncs <= most, disk.syncs
        bench.lane.close()


async def held_spool(tmp_path, *numbers: int) -> None:
    bench = SpoolBench(MemoryExporter([for_ever]).open, tmp_path / "audit", batching=Batching(records=1))
    for number in numbers:
        bench.lane.offer(batch_of(number))
    await bench.run_for(1)
    assert bench.books.spooled == len(numbers)


async def test_a_momentary_lack_of_descriptors_loses_nothing(tmp_path, autojump_clock) -> None:
    await held_spool(tmp_path, 1, 2, 3)
    disk = FaultyDisk()
    disk.read_fault = OSError(errno.EMFILE, "too many")
    exporter = MemoryExporter()
    bench = SpoolBench(exporter.open, tmp_path / "audit", epoch=2, disk=disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        await trio.sleep(2.5)
        disk.read_fault = None
        await trio.sleep(5)
        bench.lane.close()
    assert flat(exporter) == [1, 2, 3]


@pytest.mark.parametrize("good_syncs", [0, 1], ids=["the octets' sync fails", "the line's sync fails"])
async def test_a_batch_whose_line_a_failed_write_left_behind_is_delivered_once(
    tmp_path, autojump_clock, good_syncs: int
) -> None:
    disk = FaultyDisk()
    exporter = MemoryExporter([for_ever])
    bench = SpoolBench(
        exporter.open,
        tmp_path / "audit",
        disk=disk,
        sync="batch",
        batching=Batching(records=1),
        max_octets=16 * 1500,  # a few batches a segment, so that some are known by their index alone
        memory_octets=3000,
    )
    is_held = True

    async def hold(_batch: object) -> None:
        while is_held:  # noqa: ASYNC110 - the test's clock jumps
            await trio.sleep(1)

    exporter.script = iter([hold] * 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(12):
            disk.sync_fault = OSError(errno.EIO, "no") if number in (5, 6, 8) else None
            disk.good_syncs = good_syncs
            bench.lane.offer(batch_of(number))
            await trio.sleep(5)
        is_held = False
        await trio.sleep(5)
        bench.lane.close()
    assert flat(exporter) == list(range(12))
    assert bench.books.damaged == 0


async def test_a_directory_that_cannot_be_written_to_degrades_to_memory_and_recovers(tmp_path, autojump_clock) -> None:
    class ReadOnlyDisk(FaultyDisk):
        is_read_only = True

        def create(self, path: Path) -> int:
            if self.is_read_only:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return super().create(path)

    disk, exporter = ReadOnlyDisk(), MemoryExporter()
    bench = SpoolBench(exporter.open, tmp_path / "audit", disk=disk, batching=Batching(records=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(3):
            bench.lane.offer(batch_of(number))
            await trio.sleep(1)
        assert flat(exporter) == [0, 1, 2], "what memory has is delivered"
        assert (bench.spool_state, bench.books.spooled, bench.files) == (State.DEGRADED, 0, [])
        assert bench.log.events("error") == ["spool_failed"]
        disk.is_read_only = False
        exporter.script = iter([for_ever])
        await trio.sleep(5)
        bench.lane.offer(batch_of(3))
        await trio.sleep(1)
        assert (bench.spool_state, bench.books.spooled) == (State.OK, 1)
        nursery.cancel_scope.cancel()


async def test_rows_that_a_disk_has_not_taken_when_the_lane_ends_are_not_called_spooled(
    tmp_path, autojump_clock
) -> None:
    is_stuck = False

    async def run(function: Callable[[], T], /, *, limiter: trio.CapacityLimiter, abandon_on_cancel: bool = False) -> T:
        if is_stuck:
            await trio.sleep_forever()
        return await at_once(function, limiter=limiter)

    bench = SpoolBench(MemoryExporter().open, tmp_path / "audit", batching=Batching(interval=3600), run=run)
    async with bench.store.opened(lambda: None):
        bench.store.put(batch_of(1, 2), trio.current_time())
        await trio.sleep(1)
        is_stuck = True
        bench.store.put(batch_of(3), trio.current_time())
        await trio.sleep(1)
        books = bench.store.books()
        assert (books.held, books.spooled) == (3, 2)

    books = bench.store.books().ended()
    assert (books.left, books.dropped) == (2, 1)


async def test_a_segment_that_cannot_be_removed_is_told_once_shown_and_tried_again(tmp_path, autojump_clock) -> None:
    disk = FaultyDisk()
    disk.remove_fault = OSError(errno.EPERM, os.strerror(errno.EPERM))
    bench = SpoolBench(MemoryExporter().open, tmp_path / "audit", disk=disk, batching=Batching(records=1), max_age=160)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(4):
            bench.lane.offer(batch_of(number))
            await trio.sleep(11)  # a segment takes rows for ten seconds
        assert bench.books.delivered == 4
        assert bench.spool_state is State.DEGRADED
        assert "segment_not_removed: [Errno 1] Operation not permitted" in bench.health.snapshot()[0].problem
        assert bench.log.events("error") == ["segment_not_removed"]
        assert [name for name in bench.files if name.endswith(".index")] == ["0000000004.index"]
        disk.remove_fault = None
        await trio.sleep(15)
        assert bench.spool_state is State.OK
        bench.lane.close()
    assert [path.name for path in (tmp_path / "audit").iterdir()] == ["cursor"]


async def test_a_segment_that_could_not_be_removed_keeps_nobody_from_starting(tmp_path, autojump_clock) -> None:
    await held_spool(tmp_path, 1, 2)
    disk = FaultyDisk()
    disk.remove_fault = OSError(errno.EPERM, os.strerror(errno.EPERM))
    for epoch in (2, 3):
        exporter = MemoryExporter()
        bench = SpoolBench(exporter.open, tmp_path / "audit", epoch=epoch, disk=disk)
        await bench.run_for(5)
        assert flat(exporter) == ([1, 2] if epoch == 2 else []), "settled is settled"
        assert bench.log.events("error") == ["segment_not_removed"]
    disk.remove_fault = None
    await SpoolBench(MemoryExporter().open, tmp_path / "audit", epoch=4, disk=disk).run_for(5)
    assert [path.name for path in (tmp_path / "audit").iterdir()] == ["cursor"]


async def test_dead_letters_wait_for_room_on_the_disk(tmp_path, autojump_clock) -> None:
    disk = FaultyDisk()
    exporter = MemoryExporter([PermanentExportError("no"), None, for_ever])
    bench = SpoolBench(exporter.open, tmp_path / "audit", disk=disk, batching=Batching(records=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(1))
        bench.lane.offer(batch_of(2))
        bench.lane.offer(batch_of(3))
        disk.before_write = full_when(tmp_path / "audit" / "dead-letters", disk)
        await trio.sleep(3)
        assert (bench.books.dead_lettered, bench.books.delivered) == (1, 1)
        assert "dead_letters_not_written" in bench.log.events("error")
        assert "dead_letters_not_written" in bench.health.snapshot()[0].problem
        assert list((tmp_path / "audit" / "dead-letters").iterdir()) == []
        disk.before_write, disk.room = lambda: None, None
        await trio.sleep(35)
        assert bench.spool_state is State.OK
        nursery.cancel_scope.cancel()
    findings = examine(tmp_path / "audit" / "dead-letters", default_registry(), is_thorough=True)
    assert (findings.rows, list(findings.reasons)) == (1, ["no"])
    for _, index, _ in waiting_batches(Disk(), tmp_path / "audit" / "dead-letters", default_registry()):
        assert [(batch.epoch, batch.sequence) for batch in index.batches] == [(1, 1)], "which batch it was"


@pytest.mark.parametrize("is_there", [False, True])
async def test_dead_letters_are_written_once_whatever_is_wrong_with_older_ones(
    tmp_path, autojump_clock, is_there: bool
) -> None:
    class Sizeless(FaultyDisk):
        def size(self, path: Path) -> int:
            if is_there and path.parent.name == "dead-letters":
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return super().size(path)

    for epoch in (1, 2):
        exporter = MemoryExporter([PermanentExportError("no")])
        bench = SpoolBench(
            exporter.open, tmp_path / "audit", epoch=epoch, disk=Sizeless(), batching=Batching(records=1)
        )
        bench.lane.offer(batch_of(epoch))
        await bench.run_for(30)  # longer than what fails is tried again
        assert ("segment_not_removed" in bench.log.events("error")) is is_there
        assert "dead_letters_not_written" not in bench.log.events("error")
        if not is_there and epoch == 1:
            (tmp_path / "audit" / "dead-letters" / "0000000001.ipfix").unlink()
    findings = examine(tmp_path / "audit" / "dead-letters", default_registry(), is_thorough=True)
    assert findings.rows - findings.damaged_rows == (2 if is_there else 1)


def full_when(folder: Path, disk: FaultyDisk) -> Callable[[], None]:
    """From the first dead letter on there is no room."""

    def look() -> None:
        if folder.exists():
            disk.room = 0

    return look


async def test_dead_letters_that_no_disk_takes_to_the_end_are_told(tmp_path, autojump_clock) -> None:
    disk = FaultyDisk()
    bench = SpoolBench(
        MemoryExporter([PermanentExportError("no")]).open, tmp_path / "audit", disk=disk, batching=Batching(records=1)
    )
    bench.lane.offer(batch_of(1))
    disk.before_write = full_when(tmp_path / "audit" / "dead-letters", disk)
    await bench.finish()
    assert bench.log.facts("dead_letters_not_kept") == [{"rows": 1}]


async def test_a_cursor_that_could_not_be_written_is_written_later(tmp_path, autojump_clock) -> None:
    class StuckCursor(FaultyDisk):
        is_stuck = True

        def write_at(self, descriptor: int, data: bytes, offset: int) -> None:
            if self.is_stuck:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().write_at(descriptor, data, offset)

    disk = StuckCursor()
    bench = SpoolBench(
        MemoryExporter([None, for_ever]).open, tmp_path / "audit", disk=disk, batching=Batching(records=1)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(1))
        bench.lane.offer(batch_of(2))
        await trio.sleep(2)
        assert "cursor_not_written" in bench.health.snapshot()[0].problem
        disk.is_stuck = False
        await trio.sleep(35)
        assert bench.spool_state is State.OK
        nursery.cancel_scope.cancel()
    again = MemoryExporter()
    await SpoolBench(again.open, tmp_path / "audit", epoch=2).run_for(5)
    assert flat(again) == [2]


async def test_at_the_end_what_the_disk_did_not_take_is_tried_at_once(tmp_path, autojump_clock) -> None:
    disk = FaultyDisk()
    exporter = MemoryExporter([PermanentExportError("no")])
    bench = SpoolBench(exporter.open, tmp_path / "audit", disk=disk, batching=Batching(records=1))
    disk.before_write = full_when(tmp_path / "audit" / "dead-letters", disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(1))
        await trio.sleep(0.1)
        bench.lane.offer(batch_of(2))
        await trio.sleep(0.1)
        assert "dead_letters_not_written" in bench.log.events("error")
        disk.before_write, disk.room = lambda: None, None
        bench.lane.close()
    assert not bench.log.facts("dead_letters_not_kept")
    assert examine(tmp_path / "audit" / "dead-letters", default_registry(), is_thorough=True).rows == 1
