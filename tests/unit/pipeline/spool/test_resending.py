"""``flowjoin spool resend`` interrupted at any call to the file system, and given again."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from pipeline_fakes import MemoryExporter, batch_of
from spool_bench import SpoolBench

from flowjoin._pipeline.spool import resending
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.resending import resend
from flowjoin.api import Batching
from flowjoin.wire.registry import default_registry

_CALLS = ("create", "write", "sync", "rename", "remove", "read", "names", "lines", "sync_directory")


async def for_ever(_batch: object) -> None:
    await trio.sleep_forever()


def interrupted_disk(at: int) -> Callable[[], Disk]:
    """Makes disks whose n-th call of all is interrupted."""
    calls = itertools.count(1)

    class InterruptedDisk(Disk):
        def __getattribute__(self, name: str) -> Any:
            if name in _CALLS and next(calls) == at:
                raise KeyboardInterrupt
            return super().__getattribute__(name)

    return InterruptedDisk


def again(source: Path, target: Path, epoch: int) -> None:
    resend(
        source,
        target,
        instance_id="here",
        lane="target",
        epoch=epoch,
        registry=default_registry(),
        is_moved=True,
    )


async def spool_of(directory: Path, *runs: tuple[int, ...]) -> None:
    for epoch, numbers in enumerate(runs, 1):
        bench = SpoolBench(MemoryExporter([for_ever]).open, directory, epoch=epoch, batching=Batching(records=1))
        for number in numbers:
            bench.lane.offer(batch_of(number))
        await bench.run_for(1)
    assert bench.books.spooled == sum(map(len, runs))


@pytest.mark.slow
async def test_interrupted_anywhere_and_given_again_it_loses_nothing_and_doubles_a_segment_at_most(
    tmp_path, autojump_clock, monkeypatch
) -> None:
    segments = ((1, 2), (3, 4), (5,))
    is_over = False
    for at in itertools.count(1):
        source, target = tmp_path / f"source-{at}", tmp_path / f"target-{at}"
        await spool_of(source, *segments)
        await spool_of(target, (100,))
        with monkeypatch.context() as patch:
            patch.setattr(resending, "Disk", interrupted_disk(at))
            try:
                again(source, target, 50)
                is_over = True
            except KeyboardInterrupt:
                pass
        again(source, target, 51)
        exporter = MemoryExporter()
        bench = SpoolBench(exporter.open, target, epoch=60)
        await bench.run_for(10)
        found = Counter(number for _, _, numbers in exporter.calls for number in numbers)
        assert set(found) == {1, 2, 3, 4, 5, 100}, at
        doubled = {number for number, times in found.items() if times > 1}
        assert any(doubled <= set(segment) for segment in segments), (at, found)
        assert max(found.values()) <= 2
        assert not [name for name in source.iterdir() if name.suffix in (".index", ".ipfix")], at
        if is_over:
            break
    assert at > 20
