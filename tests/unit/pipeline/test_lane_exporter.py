"""A lane and the life of its exporter: opened, closed, replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing
from lane_bench import LaneBench, sleep_for
from pipeline_fakes import (
    MemoryExporter,
    MemoryLog,
    batch_of,
    cancelled_at_step,
    numbers_of,
)

from flowjoin._pipeline.health import HealthTable, State
from flowjoin._pipeline.lane import Lane
from flowjoin._pipeline.lane_head import Part
from flowjoin._pipeline.lane_identity import LaneIdentity
from flowjoin._pipeline.lane_queue import LaneBounds
from flowjoin._pipeline.lane_store import MemoryStore
from flowjoin.api import Batching, ConfigError, RetryableExportError


async def test_an_exporter_that_cannot_open_is_tried_again_and_loses_nothing(autojump_clock) -> None:
    exporter = MemoryExporter()
    tries = []

    @asynccontextmanager
    async def open_exporter() -> AsyncIterator[Any]:
        tries.append(trio.current_time())
        if len(tries) < 4:
            raise OSError("no route to host") if len(tries) < 3 else RetryableExportError("starting")
        yield exporter

    bench = LaneBench(open_exporter)
    bench.lane.offer(batch_of(1, 2))

    await bench.finish()

    assert tries == [0, 1, 3, 7]
    assert exporter.rows == [1, 2]
    assert bench.log.events("error", "warning") == ["plugin_failed", "plugin_failed", "destination_unavailable"]


async def test_closing_an_exporter_that_never_opened_and_holds_nothing_does_not_wait(autojump_clock, nursery) -> None:
    @asynccontextmanager
    async def open_exporter() -> AsyncIterator[Any]:
        raise OSError("no route to host")
        yield

    bench = LaneBench(open_exporter)
    nursery.start_soon(bench.lane.run)
    await trio.sleep(8)
    bench.lane.close()
    await trio.testing.wait_all_tasks_blocked()

    assert bench.state is State.ENDED
    assert trio.current_time() == 8


async def test_closing_cuts_a_pause_short_so_that_the_grace_time_is_used(autojump_clock, nursery) -> None:
    exporter = MemoryExporter([RetryableExportError(retry_after=3000)])
    bench = LaneBench(exporter.open)
    nursery.start_soon(bench.lane.run)
    bench.lane.offer(batch_of(1))
    await trio.sleep(10)
    bench.lane.close()
    await trio.sleep(1)

    assert [when for when, _, _ in exporter.calls] == [0, 10]


async def test_an_open_that_yields_no_exporter_fails_without_touching_the_rows(autojump_clock, nursery) -> None:
    @asynccontextmanager
    async def open_exporter() -> AsyncIterator[Any]:
        yield object()

    bench = LaneBench(open_exporter)
    bench.lane.offer(batch_of(1))
    nursery.start_soon(bench.lane.run)
    await trio.sleep(100)

    assert (bench.books.held, bench.books.failures) == (1, 0)
    assert "which has no export" in bench.health.snapshot()[0].problem
    nursery.cancel_scope.cancel()


class WithTask(MemoryExporter):
    """Owns a background task that dies when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.kill = trio.Event()
        self.kill_by = -1

    async def export(self, batch: Any) -> None:
        if self.kill_by in numbers_of(batch):
            self.calls.append((trio.current_time(), batch.id, numbers_of(batch)))
            self.kill.set()
            await trio.sleep_forever()
        await super().export(batch)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        self.opened += 1
        self.kill = trio.Event()

        async def background() -> None:
            await self.kill.wait()
            raise ValueError("background task failed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(background)
            yield self
            nursery.cancel_scope.cancel()
        self.closed += 1


async def test_an_exporter_whose_task_dies_while_idle_is_opened_again(autojump_clock, nursery) -> None:
    exporter = WithTask()
    bench = LaneBench(exporter.open)
    nursery.start_soon(bench.lane.run)
    bench.lane.offer(batch_of(1))
    await trio.sleep(1)
    exporter.kill.set()
    await trio.sleep(0.5)
    assert bench.health.snapshot()[0].problem == "ValueError: background task failed"
    await trio.sleep(5)
    bench.lane.offer(batch_of(2))
    await trio.sleep(1)

    assert exporter.rows == [1, 2]
    assert exporter.opened == 2
    assert bench.state is State.OK
    bench.lane.close()


async def test_a_row_that_kills_an_exporters_task_ends_as_a_dead_letter(autojump_clock) -> None:
    exporter = WithTask()
    exporter.kill_by = 2
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1, 2, 3))

    await bench.finish()

    assert exporter.rows == [1, 3]
    assert (bench.books.delivered, bench.books.dead_lettered) == (2, 1)


@pytest.mark.parametrize("steps", range(8))
async def test_a_batch_that_export_never_saw_does_not_pay_for_an_exporters_task(steps: int, autojump_clock) -> None:
    class ShortLived(MemoryExporter):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[Any]:
            self.opened += 1

            async def background() -> None:
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                if self.opened <= 12:
                    raise ValueError("background task failed")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(background)
                yield self
                nursery.cancel_scope.cancel()

    exporter = ShortLived()
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1))

    await bench.finish()

    assert exporter.rows == [1]
    assert (bench.books.delivered, bench.books.dead_lettered, bench.books.failures) == (1, 0, 0)


async def test_an_exporters_task_that_says_retryable_brings_the_batch_again_uncut(autojump_clock) -> None:
    class Reconnecting(WithTask):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[Any]:
            try:
                async with super().open() as opened:
                    yield opened
            except* ValueError as exc:
                self.kill_by = -1 if self.opened == 7 else 2
                raise RetryableExportError("connection lost") from exc

    exporter = Reconnecting()
    exporter.kill_by = 2
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1, 2, 3))

    await bench.finish()

    assert {tuple(rows) for _, _, rows in exporter.calls} == {(1, 2, 3)}
    assert (bench.books.delivered, bench.books.failures) == (3, 7)


async def test_a_context_that_ends_by_itself_is_opened_again(autojump_clock, nursery) -> None:
    exporter = MemoryExporter()
    inner: list[trio.CancelScope] = []

    @asynccontextmanager
    async def open_exporter() -> AsyncIterator[Any]:
        with trio.CancelScope() as scope:
            inner.append(scope)
            yield exporter

    bench = LaneBench(open_exporter)
    nursery.start_soon(bench.lane.run)
    await trio.sleep(1)
    inner[0].cancel()
    await trio.sleep(5)
    bench.lane.offer(batch_of(1))
    await trio.sleep(1)

    assert len(inner) == 2
    assert exporter.rows == [1]
    bench.lane.close()


async def test_an_exporter_that_fails_to_close_ends_the_lane_with_a_line_in_the_log(autojump_clock) -> None:
    exporter = MemoryExporter()

    @asynccontextmanager
    async def open_exporter() -> AsyncIterator[Any]:
        yield exporter
        raise OSError("cannot close")

    bench = LaneBench(open_exporter)
    bench.lane.offer(batch_of(1))

    await bench.finish()

    assert bench.books.delivered == 1
    assert bench.log.events("error") == ["plugin_close_failed"]


async def test_a_bug_of_the_lane_itself_is_not_taken_for_the_plugins(autojump_clock, monkeypatch) -> None:
    @asynccontextmanager
    async def swallows_everything() -> AsyncIterator[Any]:
        with suppress(Exception):
            yield MemoryExporter()

    def broken(*_: object) -> None:
        raise AssertionError("bug")

    bench = LaneBench(swallows_everything)
    bench.lane.offer(batch_of(1))
    monkeypatch.setattr(bench.lane._store, "settle", broken)

    with pytest.raises(AssertionError, match="bug"):
        await bench.finish()


def replaced_by(bench: LaneBench, exporter: MemoryExporter, *, grace: float = 10) -> None:
    bench.lane.replace(exporter.open, Batching(records=2), None, grace_seconds=grace)


async def test_another_exporter_gets_what_is_held_and_what_comes_under_the_same_ids(autojump_clock, nursery) -> None:
    old, new = MemoryExporter([None, RetryableExportError(retry_after=3600)]), MemoryExporter()
    bench = LaneBench(old.open, batching=Batching(records=2))
    nursery.start_soon(bench.lane.run)
    bench.lane.offer(batch_of(1, 2, 3, 4, 5, 6))
    await trio.sleep(1)
    replaced_by(bench, new)
    await trio.sleep(1)
    bench.lane.offer(batch_of(7, 8))
    await trio.sleep(1)

    assert (old.rows, old.closed) == ([1, 2], 1)
    assert [(id_, rows) for _, id_, rows in new.calls] == [
        ("here/audit/3/2", [3, 4]),
        ("here/audit/3/3", [5, 6]),
        ("here/audit/3/4", [7, 8]),
    ]
    assert bench.books.delivered == 8
    assert bench.state is State.OK
    nursery.cancel_scope.cancel()


async def test_an_export_under_way_gets_the_grace_time_and_then_the_batch_goes_to_the_new_exporter(
    autojump_clock, nursery
) -> None:
    slow, stuck, new = MemoryExporter([sleep_for(5)]), MemoryExporter([sleep_for(5000)]), MemoryExporter()
    for old in (slow, stuck):
        bench = LaneBench(old.open, batching=Batching(records=2))
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(1, 2))
        await trio.sleep(1)
        replaced_by(bench, new)
        await trio.sleep(20)
        assert bench.books.delivered == 2
        assert bench.books.held == 0
    assert (slow.rows, stuck.rows, new.rows) == ([1, 2], [], [1, 2])
    nursery.cancel_scope.cancel()


async def test_a_second_replacement_does_not_lengthen_the_grace_time_of_the_first(autojump_clock, nursery) -> None:
    old, new = MemoryExporter([sleep_for(5000)]), MemoryExporter()
    bench = LaneBench(old.open, batching=Batching(records=2))
    nursery.start_soon(bench.lane.run)
    bench.lane.offer(batch_of(1, 2))
    await trio.sleep(1)
    replaced_by(bench, MemoryExporter([sleep_for(5000)]), grace=5)
    await trio.sleep(3)
    replaced_by(bench, new, grace=100)
    await trio.sleep(3)

    assert new.rows == [1, 2]
    nursery.cancel_scope.cancel()


async def test_a_new_exporter_that_cannot_use_its_configuration_degrades_the_lane_only(autojump_clock, nursery) -> None:
    @asynccontextmanager
    async def refusing() -> AsyncIterator[Any]:
        raise ConfigError("no such place")
        yield

    bench = LaneBench(MemoryExporter().open)
    nursery.start_soon(bench.lane.run)
    await trio.sleep(1)
    bench.lane.replace(refusing, Batching(), None, grace_seconds=1)
    await trio.sleep(100)

    assert bench.state is State.DEGRADED
    nursery.cancel_scope.cancel()


async def test_a_lane_that_is_closed_while_its_exporter_is_replaced_delivers_through_the_new_one(
    autojump_clock, nursery
) -> None:
    old, new = MemoryExporter([RetryableExportError(retry_after=3600)]), MemoryExporter()
    bench = LaneBench(old.open)
    nursery.start_soon(bench.lane.run)
    bench.lane.offer(batch_of(1, 2))
    await trio.sleep(1)
    replaced_by(bench, new)
    bench.lane.close()
    await bench.lane.wait_ended()

    assert new.rows == [1, 2]


@pytest.mark.parametrize("step", range(1, 40))
async def test_a_replacement_cancelled_at_any_step_loses_no_row(autojump_clock, step: int) -> None:
    old, new = MemoryExporter([sleep_for(1), sleep_for(5000)]), MemoryExporter([sleep_for(1)])
    bench = LaneBench(old.open, batching=Batching(records=2))
    with cancelled_at_step(step):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.lane.run)
            bench.lane.offer(batch_of(1, 2, 3, 4))
            await trio.sleep(2)
            replaced_by(bench, new, grace=2)
            await trio.sleep(10)
            bench.lane.close()
    books = bench.books
    assert books.rows_in == books.delivered + books.held


async def test_a_lane_that_is_closed_while_its_store_looks_for_a_part_delivers_what_it_holds(
    autojump_clock, nursery
) -> None:
    exporter = MemoryExporter()
    store = MemoryStore(Batching(records=10, interval=60), LaneBounds(), str)
    begin = store.begin

    async def begin_slowly(now: float, *, flush: bool = False) -> Part | None:
        part = await begin(now, flush=flush)
        await trio.sleep(1)
        return part

    store.begin = begin_slowly  # type: ignore[method-assign]
    lane = Lane(
        exporter.open,
        Batching(),
        identity=LaneIdentity(instance_id="here", lane="audit", epoch=3),
        component=HealthTable(lambda: 1.0).add("exporters", "audit"),
        log=MemoryLog(),
        store=store,
    )
    nursery.start_soon(lane.run)
    lane.offer(batch_of(1, 2))
    await trio.sleep(0.5)
    lane.close()
    await lane.wait_ended()

    assert exporter.rows == [1, 2]
