"""A spool that somebody or something has been at: what is lost is counted and named, nothing else goes with it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from pipeline_fakes import MemoryExporter, batch_of
from spool_bench import FaultyDisk, SpoolBench

from flowjoin._pipeline.health import State
from flowjoin._pipeline.spool import inspecting
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.index import line_of, value_of
from flowjoin._pipeline.spool.resending import resend
from flowjoin._pipeline.spool.segments import SegmentFiles, remove_segment
from flowjoin.api import Batching
from flowjoin.wire.registry import default_registry


def flat(exporter: MemoryExporter) -> list[int]:
    return [number for _, _, numbers in exporter.calls for number in numbers]


async def for_ever(_batch: object) -> None:
    await trio.sleep_forever()


def damage(path, at: int) -> None:
    octets = bytearray(path.read_bytes())
    octets[at] ^= 0x10
    path.write_bytes(octets)


async def held_spool(tmp_path, *numbers: int) -> None:
    bench = SpoolBench(MemoryExporter([for_ever]).open, tmp_path / "audit", batching=Batching(records=1))
    for number in numbers:
        bench.lane.offer(batch_of(number))
    await bench.run_for(1)
    assert bench.books.spooled == len(numbers)


async def test_a_flipped_bit_costs_its_batch_and_is_counted(tmp_path, autojump_clock) -> None:
    await held_spool(tmp_path, 1, 2, 3)
    path = tmp_path / "audit" / "0000000001.ipfix"
    damage(path, path.stat().st_size - 1)
    exporter = MemoryExporter()
    bench = SpoolBench(exporter.open, tmp_path / "audit", epoch=2)
    await bench.run_for(10)
    assert flat(exporter) == [1, 2]
    assert (bench.books.restored, bench.books.dropped, bench.books.damaged) == (3, 1, 1)
    assert "batch_damaged" in bench.log.events("error")
    assert bench.books.held == 0


async def test_a_file_cut_anywhere_gives_the_whole_batches_before_the_cut(tmp_path, autojump_clock) -> None:
    await held_spool(tmp_path, 1, 2, 3)
    names = ["0000000001.ipfix", "0000000001.index", "cursor"]
    whole = {name: (tmp_path / "audit" / name).read_bytes() for name in names}
    for name in names[:2]:
        for cut in range(0, len(whole[name]), 7):
            directory = tmp_path / f"{name}-{cut}"
            directory.mkdir()
            for other in names:
                (directory / other).write_bytes(whole[other][:cut] if other == name else whole[other])
            exporter = MemoryExporter()
            bench = SpoolBench(exporter.open, directory, epoch=2)
            await bench.run_for(10)
            assert flat(exporter) == [1, 2, 3][: len(flat(exporter))]
            assert bench.books.held == 0
            if name.endswith("ipfix"):
                assert bench.books.damaged == 3 - len(flat(exporter))


async def test_any_flipped_octet_is_survived_and_nothing_false_is_delivered(tmp_path, autojump_clock) -> None:
    await held_spool(tmp_path, 1, 2, 3)
    names = ["0000000001.ipfix", "0000000001.index", "cursor"]
    whole = {name: (tmp_path / "audit" / name).read_bytes() for name in names}
    for name in names:
        for at in range(0, len(whole[name]), 11):
            directory = tmp_path / f"{name}-{at}"
            directory.mkdir()
            for other in names:
                (directory / other).write_bytes(whole[other])
            damage(directory / name, at)
            exporter = MemoryExporter()
            bench = SpoolBench(exporter.open, directory, epoch=2)
            await bench.run_for(10)
            assert set(flat(exporter)) <= {1, 2, 3}
            assert len(flat(exporter)) >= 2 or "head" in name or name.endswith("index"), (name, at)
            assert len(flat(exporter)) == len(set(flat(exporter)))
            assert bench.books.held == 0


async def deliver_all(tmp_path) -> tuple[SpoolBench, list[int]]:
    exporter = MemoryExporter()
    bench = SpoolBench(exporter.open, tmp_path / "audit", epoch=2, batching=Batching(records=1))
    await bench.run_for(10)
    assert bench.books.held == 0
    return bench, flat(exporter)


async def test_octets_without_their_index_are_named_and_their_number_is_not_used_again(
    tmp_path, autojump_clock
) -> None:
    await held_spool(tmp_path, 1, 2)
    folder = tmp_path / "audit"
    (folder / "0000000001.index").unlink()
    octets = (folder / "0000000001.ipfix").read_bytes()
    exporter = MemoryExporter()
    bench = SpoolBench(exporter.open, folder, epoch=2)
    bench.lane.offer(batch_of(3))
    await bench.run_for(10)

    assert flat(exporter) == [3]
    assert bench.log.events("error") == ["spool_index_missing"]
    assert (folder / "0000000001.ipfix").read_bytes() == octets


async def test_what_a_sudden_end_left_of_removing_or_making_a_segment_is_tidied_up(tmp_path, autojump_clock) -> None:
    await held_spool(tmp_path, 1)
    folder = tmp_path / "audit"
    shutil.copy(folder / "0000000001.ipfix", folder / "0000000002.ipfix")  # renamed, its index was to be next
    (folder / "0000000002.index.new").write_bytes(b"")
    (folder / "0000000003.ipfix.new").write_bytes(b"abc")
    bench, delivered = await deliver_all(tmp_path)
    assert delivered == [1]
    assert bench.files == []

    await held_spool(tmp_path, 2)
    (segment,) = folder.glob("*.index")
    segment.rename(f"{segment}.gone")  # it was being removed
    bench, delivered = await deliver_all(tmp_path)
    assert delivered == []
    assert bench.log.events("error") == []
    assert sorted(path.name for path in folder.iterdir()) == ["cursor"]


async def test_a_copy_of_an_index_under_another_name_doubles_nothing(tmp_path, autojump_clock) -> None:
    await held_spool(tmp_path, 1, 2)
    folder = tmp_path / "audit"
    for name in ("1.index", "00000000001.index", "0000000001.index~", "notes.txt"):
        shutil.copy(folder / "0000000001.index", folder / name)
    (folder / "folder.index").mkdir()
    _, delivered = await deliver_all(tmp_path)
    assert delivered == [1, 2]


@pytest.mark.parametrize("removed", ["audit", "audit/..", "audit/../.."], ids=["it", "all of them", "the state"])
async def test_a_spool_that_somebody_removes_is_made_anew_and_what_comes_then_is_kept(
    tmp_path, autojump_clock, removed: str
) -> None:
    folder = tmp_path / "state" / "spool" / "audit"
    folder.parent.mkdir(parents=True)
    exporter = MemoryExporter([for_ever])
    bench = SpoolBench(exporter.open, folder, batching=Batching(records=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(1))
        await trio.sleep(1)
        shutil.rmtree((folder.parent / removed).resolve())
        bench.lane.offer(batch_of(2))  # is to be written to a file that has no name any more
        await trio.sleep(1)
        assert bench.spool_state is State.DEGRADED
        await trio.sleep(5)
        bench.lane.offer(batch_of(3))
        await trio.sleep(1)
        assert bench.spool_state is State.OK
        nursery.cancel_scope.cancel()
    assert bench.books.spooled >= 1

    _, delivered = await deliver_all(folder.parent)
    assert delivered[-1] == 3


async def test_a_cursor_that_somebody_removes_is_written_anew(tmp_path, autojump_clock) -> None:
    folder = tmp_path / "audit"
    exporter = MemoryExporter([None, None, for_ever])
    bench = SpoolBench(exporter.open, folder, batching=Batching(records=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        await trio.sleep(1)
        (folder / "cursor").unlink()
        for number in range(3):
            bench.lane.offer(batch_of(number))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    _, delivered = await deliver_all(tmp_path)
    assert delivered == [2]


async def test_setting_the_clock_makes_nothing_old(tmp_path, autojump_clock) -> None:
    exporter = MemoryExporter([for_ever])
    bench = SpoolBench(exporter.open, tmp_path / "audit", max_age=1600.0, batching=Batching(records=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for number, shift in enumerate((0.0, 1e9, -1e9, 0.0)):
            bench.wall_shift = shift
            bench.lane.offer(batch_of(number))
            await trio.sleep(300)
        assert (bench.books.dropped, bench.books.held) == (0, 4)
        bench.wall_shift = -1e9
        await trio.sleep(2000)
        assert bench.books.dropped == 3  # age is told by the clock that nobody sets; the first is with the exporter
        nursery.cancel_scope.cancel()


async def test_what_was_written_after_now_is_new(tmp_path, autojump_clock) -> None:
    await held_spool(tmp_path, 1, 2)
    exporter = MemoryExporter([for_ever])
    bench = SpoolBench(exporter.open, tmp_path / "audit", epoch=2, max_age=1600.0)
    bench.wall_shift = -1e6
    await bench.run_for(1500)
    assert (bench.books.dropped, bench.books.held) == (0, 2)


async def test_what_a_newer_flowjoin_wrote_is_refused_and_stays(tmp_path, autojump_clock) -> None:
    await held_spool(tmp_path, 1, 2)
    index = tmp_path / "audit" / "0000000001.index"
    facts = value_of(index.read_bytes().splitlines(keepends=True)[0])
    index.write_bytes(line_of({**facts, "v": 2}) + line_of({"t": "rows2", "something": "else"}))
    before = {path.name: path.read_bytes() for path in (tmp_path / "audit").iterdir()}

    with pytest.raises(OSError, match=r"a newer flowjoin wrote .*0000000001\.index \(format 2, and this one knows 1\)"):
        SpoolBench(MemoryExporter().open, tmp_path / "audit", epoch=2)

    assert {path.name: path.read_bytes() for path in (tmp_path / "audit").iterdir()} == before


async def test_an_index_that_cannot_be_read_is_set_aside_and_never_taken_for_settled(tmp_path, autojump_clock) -> None:
    class Unreadable(FaultyDisk):
        def lines(self, path: Path, limit: int) -> Iterator[bytes]:
            if path.name == "0000000001.index":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().lines(path, limit)

    await held_spool(tmp_path, 1, 2)
    octets = (tmp_path / "audit" / "0000000001.ipfix").read_bytes()
    exporter = MemoryExporter()
    bench = SpoolBench(exporter.open, tmp_path / "audit", epoch=2, disk=Unreadable(), batching=Batching(records=1))
    bench.lane.offer(batch_of(3))
    await bench.run_for(10)
    assert flat(exporter) == [3]
    (told,) = bench.log.facts("spool_not_readable")
    assert "0000000001.index: Input/output error; its files are set aside, with .damaged behind" in told["problem"]

    for _ in range(2):  # later starts, which know that all up to the third row is settled
        await deliver_all(tmp_path)
    assert (tmp_path / "audit" / "0000000001.ipfix.damaged").read_bytes() == octets
    assert (tmp_path / "audit" / "0000000001.index.damaged").exists()

    (tmp_path / "other").mkdir()
    (tmp_path / "mended").mkdir()  # as the reference says how they are sent
    for path in (tmp_path / "audit").glob("*.damaged"):
        path.rename(tmp_path / "mended" / path.stem)
    sent = resend(
        tmp_path / "mended",
        tmp_path / "other",
        instance_id="here",
        lane="other",
        epoch=9,
        registry=default_registry(),
        is_moved=False,
    )
    assert sent.problems == []
    other = MemoryExporter()
    await SpoolBench(other.open, tmp_path / "other", epoch=10).run_for(10)
    assert flat(other) == [1, 2]


@pytest.mark.parametrize("settled", [1, 2, 3, 4])
async def test_the_newer_of_the_two_cursors_counts_whichever_place_it_has(
    tmp_path, autojump_clock, settled: int
) -> None:
    bench = SpoolBench(
        MemoryExporter([None] * settled + [for_ever]).open, tmp_path / "audit", batching=Batching(records=1)
    )
    for number in range(5):
        bench.lane.offer(batch_of(number))
    await bench.run_for(1)
    _, delivered = await deliver_all(tmp_path)
    assert delivered == list(range(settled, 5))


async def test_each_octet_of_the_cursor_may_change_and_a_settled_batch_comes_once_more_at_most(
    tmp_path, autojump_clock
) -> None:
    exporter = MemoryExporter([None, None, None, for_ever])
    bench = SpoolBench(exporter.open, tmp_path / "audit", batching=Batching(records=1))
    for number in range(5):
        bench.lane.offer(batch_of(number))
    await bench.run_for(1)
    whole = {path.name: path.read_bytes() for path in (tmp_path / "audit").iterdir()}
    counts = set()
    for at in (*range(40), *range(1024, 1064)):
        directory = tmp_path / f"at-{at}"
        directory.mkdir()
        for name, octets in whole.items():
            (directory / name).write_bytes(octets)
        damage(directory / "cursor", at)
        exporter = MemoryExporter()
        await SpoolBench(exporter.open, directory, epoch=2).run_for(10)
        assert flat(exporter) in ([3, 4], [2, 3, 4]), at
        counts.add(len(flat(exporter)))
    assert counts == {2, 3}, "each of the two places matters, and only the newer one costs anything"


async def test_a_damaged_line_of_a_batch_costs_that_batch_alone_wherever_it_lies(tmp_path, autojump_clock) -> None:
    """Its rows in the last segment join another batch; those in one before are lost, and counted."""
    await held_spool(tmp_path, 1, 2)
    bench = SpoolBench(MemoryExporter([for_ever]).open, tmp_path / "audit", epoch=2, batching=Batching(records=1))
    bench.lane.offer(batch_of(3))
    await bench.run_for(1)
    path = tmp_path / "audit" / "0000000001.index"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[-1] = b"0" + lines[-1][1:] if lines[-1][:1] != b"0" else b"1" + lines[-1][1:]
    assert b'"t":"batch"' in lines[-1]
    path.write_bytes(b"".join(lines))
    exporter = MemoryExporter()
    bench = SpoolBench(exporter.open, tmp_path / "audit", epoch=3)
    await bench.run_for(10)
    assert flat(exporter) == [1, 3]
    assert (bench.books.restored, bench.books.dropped, bench.books.damaged) == (3, 1, 1)


async def test_what_is_delivered_while_it_is_looked_at_is_no_damage(tmp_path, autojump_clock, monkeypatch) -> None:
    await held_spool(tmp_path, 1, 2)
    folder = tmp_path / "audit"

    class Running(Disk):
        """Between its index and its octets the segment is delivered."""

        def read(self, path: Path, offset: int, length: int) -> bytes:
            if path.suffix == ".ipfix":
                remove_segment(Disk(), SegmentFiles(folder, 1))
            return super().read(path, offset, length)

    monkeypatch.setattr(inspecting, "Disk", Running)
    findings = inspecting.examine(folder, default_registry(), is_thorough=True)
    assert (findings.problems, findings.damaged_rows) == ([], 0)
