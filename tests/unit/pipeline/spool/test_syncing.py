"""When what was written to a spool is made safe."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
from spool_bench import at_once

from flowjoin._pipeline.spool.syncing import Syncing


class Files:
    """Writer and settlement at once; notes when each was synced."""

    def __init__(self) -> None:
        self.is_unsynced = True
        self.synced_at: list[float] = []
        self.fault: OSError | None = None
        self.rolled = 0
        self.begun_at = trio.current_time()

    def writer(self) -> Any:
        files = self

        class Writer:
            is_unsynced = True

            async def sync(self, _limiter: trio.CapacityLimiter) -> None:
                files.synced_at.append(round(trio.current_time() - files.begun_at, 6))
                await trio.lowlevel.checkpoint()
                self.is_unsynced = True  # somebody writes all the time
                if files.fault is not None:
                    raise files.fault

            def must_roll(self, exc: OSError) -> None:
                assert exc is files.fault
                files.rolled += 1

        return Writer()

    def sync(self) -> None: ...


@pytest.mark.parametrize(("sync", "times"), [(1.0, [1, 2, 3, 4]), (2.0, [2, 4]), ("batch", []), ("never", [])])
async def test_the_disk_is_waited_for_at_the_interval_of_the_settings(autojump_clock, sync: str | float, times) -> None:
    files: Any = Files()
    with trio.move_on_after(4.5):
        await Syncing(sync, files.writer(), files, run=at_once).run()
    assert files.synced_at == times


async def test_a_storm_of_changed_settings_puts_it_off_for_nobody(autojump_clock) -> None:
    files: Any = Files()
    syncing = Syncing(1.0, files.writer(), files, run=at_once)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(syncing.run)
        for _ in range(45):
            await trio.sleep(0.1)
            syncing.change(1.0)
        nursery.cancel_scope.cancel()
    assert len(files.synced_at) == 4
    assert files.synced_at == pytest.approx([1, 2, 3, 4])


async def test_another_interval_holds_from_the_last_look_on(autojump_clock) -> None:
    files: Any = Files()
    syncing = Syncing("never", files.writer(), files, run=at_once)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(syncing.run)
        await trio.sleep(3)
        syncing.change(2.0)
        await trio.sleep(2.5)
        syncing.change("never")
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert files.synced_at == [3, 5]


async def test_a_disk_that_cannot_has_the_next_write_go_to_another_segment(autojump_clock) -> None:
    files: Any = Files()
    files.fault = OSError(errno.EIO, "medium")
    with trio.move_on_after(2.5):
        await Syncing(1.0, files.writer(), files, run=at_once).run()
    assert files.rolled == 2
