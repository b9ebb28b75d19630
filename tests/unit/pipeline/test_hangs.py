"""Plugins that get nowhere in an await: contained, shown, begun anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from lane_bench import LaneBench, sleep_for
from pipeline_fakes import MemoryExporter, MemoryLog, Opener, batch_of, cancelled_at_step

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.enrichment import EnricherSlot
from flowjoin._pipeline.health import Component, ComponentHealth, HealthTable, State
from flowjoin._pipeline.lookups import LookupSlot
from flowjoin._pipeline.sources import SourceStage
from flowjoin._pipeline.supervisor import keep_open, watch_hangs
from flowjoin.api import Batching, EnricherType, LookupType, PodLookup

PATIENCE = 10.0


async def hang(_batch: object) -> None:
    await trio.sleep_forever()


def watched_lane(nursery: trio.Nursery, opener: Opener) -> LaneBench:
    bench = LaneBench(opener, batching=Batching(records=2), patience=PATIENCE)
    nursery.start_soon(bench.lane.run)
    nursery.start_soon(watch_hangs, bench.health)
    return bench


async def test_an_export_that_hangs_is_cancelled_and_the_batch_comes_again_to_an_exporter_opened_anew(
    autojump_clock, nursery
) -> None:
    exporter = MemoryExporter([hang, hang])
    bench = watched_lane(nursery, exporter.open)
    bench.lane.offer(batch_of(1, 2))
    await trio.sleep(PATIENCE + 0.5)

    (health,) = bench.health.snapshot()
    assert (health.state, health.hangs, health.failures) == (State.DEGRADED, 1, 1)
    assert health.problem == "HangError: its export got nowhere for 10 s"
    assert (exporter.opened, exporter.closed) == (1, 1)
    (facts,) = bench.log.facts("plugin_hangs")
    assert facts["problem"] == "its export got nowhere for 10 s"
    assert "in hang\n" in str(facts["stack"])

    await trio.sleep(2 * PATIENCE + 10)
    bench.lane.offer(batch_of(3, 4))
    await trio.sleep(1)

    assert [(when, batch, rows) for when, batch, rows in exporter.calls[:3]] == [
        (0, "here/audit/3/1", [1, 2]),
        (11, "here/audit/3/1", [1, 2]),
        (23, "here/audit/3/1", [1, 2]),
    ]
    assert exporter.rows == [1, 2, 3, 4]
    assert (exporter.opened, exporter.closed) == (3, 2)
    assert (bench.books.delivered, bench.books.failures, bench.books.retried) == (4, 2, 4)
    assert bench.state is State.OK
    assert bench.log.events("error") == ["plugin_hangs", "plugin_hangs"]
    nursery.cancel_scope.cancel()


async def test_a_batch_that_hangs_again_and_again_is_never_cut_nor_a_dead_letter(autojump_clock, nursery) -> None:
    exporter = MemoryExporter([hang] * 12)
    bench = watched_lane(nursery, exporter.open)
    bench.lane.offer(batch_of(1, 2))
    await trio.sleep(1000)

    assert {tuple(rows) for _, _, rows in exporter.calls} == {(1, 2)}
    assert exporter.rows == [1, 2]
    nursery.cancel_scope.cancel()


async def test_a_slow_export_that_says_that_it_gets_on_is_left_alone(autojump_clock, nursery) -> None:
    async def get_on(_batch: object) -> None:
        for _ in range(20):
            await trio.sleep(PATIENCE - 2)
            bench.health.progressed("exporters", "audit")

    exporter = MemoryExporter([get_on, sleep_for(PATIENCE - 2)])
    bench = watched_lane(nursery, exporter.open)
    bench.lane.offer(batch_of(1, 2))
    bench.lane.offer(batch_of(3, 4))
    await trio.sleep(25 * PATIENCE)

    assert exporter.rows == [1, 2, 3, 4]
    assert (len(exporter.calls), exporter.opened) == (2, 1)
    (health,) = bench.health.snapshot()
    assert (health.state, health.hangs) == (State.OK, 0)
    nursery.cancel_scope.cancel()


async def test_an_export_that_ends_well_although_it_was_given_up_is_not_repeated(autojump_clock, nursery) -> None:
    async def in_a_thread_that_nobody_can_end(_batch: object) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(3 * PATIENCE)

    exporter = MemoryExporter([in_a_thread_that_nobody_can_end])
    bench = watched_lane(nursery, exporter.open)
    bench.lane.offer(batch_of(1, 2))
    await trio.sleep(2 * PATIENCE)
    assert bench.state is State.DEGRADED, "shown at once, although it does not listen"
    bench.lane.offer(batch_of(3, 4))
    await trio.sleep(2 * PATIENCE)

    assert [rows for _, _, rows in exporter.calls] == [[1, 2], [3, 4]]
    assert (exporter.opened, bench.books.delivered, bench.state) == (2, 4, State.OK)
    nursery.cancel_scope.cancel()


async def test_an_idle_exporter_does_not_hang(autojump_clock, nursery) -> None:
    exporter = MemoryExporter()
    bench = watched_lane(nursery, exporter.open)
    await trio.sleep(20 * PATIENCE)
    bench.lane.offer(batch_of(1))
    await trio.sleep(20 * PATIENCE)

    assert (exporter.opened, exporter.rows, bench.health.snapshot()[0].hangs) == (1, [1], 0)
    nursery.cancel_scope.cancel()


async def test_a_pause_that_a_destination_asks_for_is_no_hang(autojump_clock, nursery) -> None:
    from flowjoin.api import RetryableExportError

    exporter = MemoryExporter([RetryableExportError(retry_after=30 * PATIENCE)])
    bench = watched_lane(nursery, exporter.open)
    bench.lane.offer(batch_of(1, 2))
    await trio.sleep(31 * PATIENCE)

    assert (exporter.opened, exporter.rows) == (1, [1, 2])
    nursery.cancel_scope.cancel()


async def test_a_replacement_has_a_patience_of_its_own(autojump_clock, nursery) -> None:
    old, new = MemoryExporter(), MemoryExporter([sleep_for(3 * PATIENCE)])
    bench = watched_lane(nursery, old.open)
    await trio.sleep(1)
    bench.lane.replace(new.open, Batching(records=2), None, grace_seconds=1, patience=4 * PATIENCE)
    bench.lane.offer(batch_of(1, 2))
    await trio.sleep(4 * PATIENCE)

    assert (new.rows, len(new.calls)) == ([1, 2], 1)
    nursery.cancel_scope.cancel()


async def test_one_that_hangs_costs_the_others_nothing(autojump_clock, nursery) -> None:
    good = MemoryExporter()
    bad, other = watched_lane(nursery, MemoryExporter([hang] * 9).open), watched_lane(nursery, good.open)
    for number in range(0, 40, 2):
        for bench in (bad, other):
            bench.lane.offer(batch_of(number, number + 1))
        await trio.sleep(1)

    assert good.rows == list(range(40))
    assert (bad.state, other.state) == (State.DEGRADED, State.OK)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("step", range(1, 60))
async def test_an_exporter_that_hangs_and_is_cancelled_at_any_step_loses_no_row(autojump_clock, step: int) -> None:
    exporter = MemoryExporter([None, hang])
    bench = LaneBench(exporter.open, batching=Batching(records=2), patience=PATIENCE)
    with cancelled_at_step(step):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.lane.run)
            nursery.start_soon(watch_hangs, bench.health)
            bench.lane.offer(batch_of(1, 2, 3, 4))
            await trio.sleep(PATIENCE + 5)
            bench.lane.close()
            await bench.lane.wait_ended()
            nursery.cancel_scope.cancel()
    books = bench.books
    assert books.delivered == len(exporter.rows)
    assert exporter.rows == [1, 2, 3, 4][: books.delivered]


class Ill:
    """A plugin that hangs where it is told to, the first time."""

    def __init__(self, where: str, opened: object) -> None:
        self._where = where
        self._opened = opened
        self.openings: list[float] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        self.openings.append(trio.current_time())
        is_first = len(self.openings) == 1
        if is_first and self._where == "open":
            await trio.sleep_forever()
        try:
            async with trio.open_nursery() as nursery:
                if is_first and self._where == "close":
                    nursery.start_soon(self._fail)
                yield self._opened
                nursery.cancel_scope.cancel()
        finally:
            if is_first and self._where == "close":
                with trio.CancelScope(shield=True) as self.closing:
                    await trio.sleep(5 * PATIENCE)

    async def _fail(self) -> None:
        await trio.sleep(1)
        raise OSError("its task")


class Enricher:
    def enrich(self, batch: FlowBatch) -> dict[str, Any]:
        return {}


class Pods:
    def pod(self, address: str, at: float | None = None) -> None:
        return None


async def batches() -> AsyncIterator[FlowBatch]:
    await trio.sleep_forever()
    yield batch_of(1)


async def no_room_needed() -> None:
    await trio.lowlevel.checkpoint()


def runner(kind: str, ill: Ill, component: Component, log: MemoryLog) -> Any:
    open_ill: Any = ill.open
    match kind:
        case "enrichers":
            enricher_type = EnricherType("ill", object, adds=(), fills=(), open=open_ill, api_version=1)
            return EnricherSlot(enricher_type, open_ill, component=component, log=log).run
        case "lookups":
            lookup_type = LookupType("ill", object, provides=(PodLookup,), open=open_ill, api_version=1)
            return LookupSlot(lookup_type, open_ill, component=component, log=log).run
    return SourceStage(open_ill, lambda _batch: None, wait_room=no_room_needed, component=component, log=log).run


OPENED = {"enrichers": Enricher(), "lookups": Pods(), "sources": batches()}


@pytest.mark.parametrize("kind", ["enrichers", "lookups", "sources"])
async def test_a_plugin_of_any_kind_whose_open_hangs_is_opened_again(autojump_clock, nursery, kind: str) -> None:
    ill, log = Ill("open", OPENED[kind]), MemoryLog()
    health = HealthTable(lambda: 1.0)
    component = health.add(kind, "ill")
    component.patience.seconds = PATIENCE
    nursery.start_soon(runner(kind, ill, component, log))
    nursery.start_soon(watch_hangs, health)
    await trio.sleep(PATIENCE + 0.5)
    assert health.snapshot()[0] == ComponentHealth(
        component=f"{kind}/ill",
        state=State.DEGRADED,
        problem="HangError: its open got nowhere for 10 s",
        failures=1,
        hangs=1,
    )
    await trio.sleep(10 * PATIENCE)

    assert ill.openings == [0, 11]
    assert health.snapshot()[0].state is State.OK, "to wait for work is no hang"
    assert log.events("error") == ["plugin_hangs"]
    nursery.cancel_scope.cancel()


async def test_a_closing_that_hangs_is_shown_and_what_comes_after_it_happens(autojump_clock, nursery) -> None:
    ill, log = Ill("close", None), MemoryLog()
    health = HealthTable(lambda: 1.0)
    component = health.add("exporters", "ill")
    component.patience.seconds = PATIENCE

    async def use(_opened: object) -> None:
        component.recovered()
        await trio.sleep(100 * PATIENCE)

    async def run() -> None:
        await keep_open(component, ill.open, use, log=log)

    nursery.start_soon(run)
    nursery.start_soon(watch_hangs, health)
    await trio.sleep(PATIENCE + 2)
    assert health.snapshot()[0].problem == "HangError: its close got nowhere for 10 s"
    ill.closing.shield = False
    await trio.sleep(3)

    assert len(ill.openings) == 2
    assert log.events("error") == ["plugin_hangs"]
    nursery.cancel_scope.cancel()


async def test_a_source_whose_iterator_hangs_when_it_is_closed_is_opened_again(autojump_clock, nursery) -> None:
    log, health = MemoryLog(), HealthTable(lambda: 1.0)
    component = health.add("sources", "ill")
    component.patience.seconds = PATIENCE
    openings: list[float] = []

    class HangsAtItsEnd:
        def __aiter__(self) -> HangsAtItsEnd:
            return self

        async def __anext__(self) -> FlowBatch:
            await trio.lowlevel.checkpoint()
            raise OSError("the source is gone")

        async def aclose(self) -> None:
            await trio.sleep_forever()

    @asynccontextmanager
    async def open_source() -> AsyncIterator[Any]:
        openings.append(trio.current_time())
        yield HangsAtItsEnd() if len(openings) == 1 else batches()

    stage = SourceStage(open_source, lambda _batch: None, wait_room=no_room_needed, component=component, log=log)
    nursery.start_soon(stage.run)
    nursery.start_soon(watch_hangs, health)
    await trio.sleep(PATIENCE + 5)

    assert len(openings) == 2
    assert log.events("error") == ["plugin_hangs"]
    nursery.cancel_scope.cancel()
