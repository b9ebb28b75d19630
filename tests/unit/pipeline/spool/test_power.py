"""A loss of power at any moment, or a kill: with ``sync: batch`` it costs no row that was called spooled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio
from pipeline_fakes import OTHER_SCHEMA, MemoryExporter, batch_of
from power_loss import PowerLossDisk
from spool_bench import SpoolBench

from flowjoin._pipeline.spool.disk import Disk
from flowjoin.api import Batching, PermanentExportError

SMALL = 16 * 1500  # segments of a few batches


def flat(exporter: MemoryExporter) -> list[int]:
    return [number for _, _, numbers in exporter.calls for number in numbers]


def ids(exporter: MemoryExporter) -> dict[str, list[int]]:
    return {batch: numbers for _, batch, numbers in exporter.calls}


async def for_ever(_batch: object) -> None:
    await trio.sleep_forever()


async def delivered_after(directory: Path) -> MemoryExporter:
    exporter = MemoryExporter()
    bench = SpoolBench(exporter.open, directory, epoch=2)
    await bench.run_for(20)
    assert bench.books.held == 0
    return exporter


@pytest.mark.parametrize("records", [1, 5], ids=["each row a batch", "batches that are open when a segment is full"])
async def test_what_was_called_spooled_is_there(tmp_path, autojump_clock, records: int) -> None:
    spool = tmp_path / "audit"
    exporter = MemoryExporter([for_ever])
    with PowerLossDisk().closing() as disk:
        batching = Batching(records=records, interval=3600.0)
        bench = SpoolBench(exporter.open, spool, disk=disk, sync="batch", batching=batching, max_octets=SMALL)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.lane.run)
            for number in range(24):
                bench.lane.offer(batch_of(number, schema=OTHER_SCHEMA) if number % 3 else batch_of(number))
                await trio.sleep(1)
                assert bench.books.spooled == number + 1
                disk.leave(spool, tmp_path / f"after-{number}")
            nursery.cancel_scope.cancel()
    for number in range(24):
        again = await delivered_after(tmp_path / f"after-{number}")
        assert sorted(flat(again)) == list(range(number + 1)), number
        seen = ids(exporter)
        assert all(ids(again)[batch] == rows for batch, rows in seen.items() if batch in ids(again))


async def test_what_was_not_delivered_is_there_and_no_id_names_other_rows(tmp_path, autojump_clock) -> None:
    spool = tmp_path / "audit"
    exporter = MemoryExporter()
    left: dict[int, int] = {}
    with PowerLossDisk().closing() as disk:
        bench = SpoolBench(
            exporter.open, spool, disk=disk, sync="batch", batching=Batching(records=1), max_octets=SMALL
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.lane.run)
            for number in range(24):
                bench.lane.offer(batch_of(number))
                await trio.sleep(1)
                disk.leave(spool, tmp_path / f"after-{number}")
                left[number] = len(flat(exporter))
            nursery.cancel_scope.cancel()
    for number in range(24):
        again = await delivered_after(tmp_path / f"after-{number}")
        assert set(range(left[number], number + 1)) <= set(flat(again)), "not delivered, so it comes"
        assert all(ids(exporter)[batch] == rows for batch, rows in ids(again).items())


async def test_a_dead_letter_is_there_before_its_row_counts_as_settled(tmp_path, autojump_clock) -> None:
    spool = tmp_path / "audit"
    with PowerLossDisk().closing() as disk:
        exporter = MemoryExporter([PermanentExportError("no"), for_ever])
        bench = SpoolBench(exporter.open, spool, disk=disk, sync=1.0, batching=Batching(records=1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.lane.run)
            bench.lane.offer(batch_of(1))
            bench.lane.offer(batch_of(2))
            await trio.sleep(5)
            disk.leave(spool, tmp_path / "after")
            nursery.cancel_scope.cancel()
    again = await delivered_after(tmp_path / "after")
    letters = list((tmp_path / "after" / "dead-letters").glob("*.index"))
    assert flat(again) == [2], "the cursor was synced"
    assert letters


async def test_what_was_settled_is_synced_though_no_row_is_written_any_more(tmp_path, autojump_clock) -> None:
    async def slow(_batch: object) -> None:
        await trio.sleep(5)

    spool = tmp_path / "audit"
    with PowerLossDisk().closing() as disk:
        bench = SpoolBench(
            MemoryExporter([slow, for_ever]).open, spool, disk=disk, sync=1.0, batching=Batching(records=1)
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.lane.run)
            bench.lane.offer(batch_of(1))
            bench.lane.offer(batch_of(2))
            await trio.sleep(10)
            disk.leave(spool, tmp_path / "after")
            nursery.cancel_scope.cancel()
    assert flat(await delivered_after(tmp_path / "after")) == [2]


async def test_a_kill_between_two_names_of_a_segment_loses_nothing(tmp_path, autojump_clock) -> None:
    spool = tmp_path / "audit"
    rows = 0
    known: list[tuple[Path, int]] = []

    class Looked(Disk):
        """A kill at each rename leaves what is there before it."""

        def rename(self, old: Path, new: Path) -> None:
            known.append((tmp_path / f"killed-{len(known)}", rows))
            shutil.copytree(spool, known[-1][0])
            super().rename(old, new)

    bench = SpoolBench(
        MemoryExporter([for_ever]).open,
        spool,
        disk=Looked(),
        batching=Batching(records=5, interval=3600.0),
        max_octets=SMALL,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number in range(24):
            bench.lane.offer(batch_of(number))
            await trio.sleep(1)
            assert bench.books.spooled == number + 1
            rows = number + 1
        nursery.cancel_scope.cancel()
    assert len(known) >= 6, "three segments"
    for directory, spooled in known:
        assert flat(await delivered_after(directory))[:spooled] == list(range(spooled)), directory
