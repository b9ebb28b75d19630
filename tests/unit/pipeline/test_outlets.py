from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from pipeline_fakes import MemoryExporter, MemoryLog, batch_of

from flowjoin._pipeline.enrichment import Enrichment
from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.lane import Lane
from flowjoin._pipeline.lane_identity import LaneIdentity
from flowjoin._pipeline.lane_keeper import LaneKeeper
from flowjoin._pipeline.lane_queue import LaneBounds
from flowjoin._pipeline.outlets import Outlets
from flowjoin.api import Batching, RetryableExportError


def sleep_for(seconds: float) -> Callable[[object], Awaitable[None]]:
    async def act(_batch: object) -> None:
        await trio.sleep(seconds)

    return act


def lane_of(exporter: MemoryExporter, name: str, *, rows: int = 4) -> Lane:
    return Lane(
        exporter.open,
        Batching(records=2),
        identity=LaneIdentity(instance_id="i", lane=name, epoch=1),
        component=HealthTable(lambda: 1.0).add("exporters", name),
        log=MemoryLog(),
        bounds=LaneBounds(rows=rows),
    )


async def deliver_all(outlets: Outlets, rows: int) -> None:
    for number in range(0, rows, 2):
        await outlets.wait_room()
        outlets.deliver(batch_of(number, number + 1))


async def test_in_a_live_run_nobody_is_waited_for(autojump_clock, nursery) -> None:
    slow, fast = MemoryExporter([sleep_for(5)] * 100), MemoryExporter()
    lanes = [lane_of(slow, "slow"), lane_of(fast, "fast", rows=40)]
    outlets = Outlets(Enrichment([], lambda *_: None), lanes)
    for lane in lanes:
        nursery.start_soon(lane.run)
    await trio.sleep(1)
    await deliver_all(outlets, 40)
    await trio.sleep(0.5)

    assert trio.current_time() == 1.5
    assert fast.rows == list(range(40))
    assert lanes[0].books().dropped > 0
    assert outlets.rows == lanes[0].books().rows_in == lanes[1].books().rows_in == 40
    nursery.cancel_scope.cancel()


async def test_a_replay_waits_for_the_slowest_lane_and_drops_nothing(autojump_clock, nursery) -> None:
    slow, fast = MemoryExporter([RetryableExportError(), *[sleep_for(5)] * 100]), MemoryExporter()
    lanes = [lane_of(slow, "slow"), lane_of(fast, "fast")]
    outlets = Outlets(Enrichment([], lambda *_: None), lanes, is_replay=True)
    for lane in lanes:
        nursery.start_soon(lane.run)
    await deliver_all(outlets, 40)
    await trio.sleep(100)

    assert slow.rows == fast.rows == list(range(40))
    nursery.cancel_scope.cancel()


async def test_at_the_end_lanes_that_work_are_waited_for_and_those_that_fail_are_not(autojump_clock, nursery) -> None:
    slow, dead = MemoryExporter([sleep_for(1)] * 100), MemoryExporter([RetryableExportError()] * 100)
    lanes = [lane_of(slow, "slow"), lane_of(dead, "dead")]
    outlets = Outlets(Enrichment([], lambda *_: None), lanes)
    for lane in lanes:
        nursery.start_soon(lane.run)
    outlets.deliver(batch_of(100, 101))
    await trio.sleep(0.5)
    outlets.be_patient_until(trio.current_time() + 60)
    await deliver_all(outlets, 40)
    await trio.sleep(10)

    assert slow.rows == [100, 101, *range(40)]
    assert lanes[0].books().dropped == 0
    assert lanes[1].books().dropped > 0
    nursery.cancel_scope.cancel()


async def test_patience_ends(autojump_clock, nursery) -> None:
    hanging = MemoryExporter([sleep_for(10_000)])
    lane = lane_of(hanging, "hanging")
    outlets = Outlets(Enrichment([], lambda *_: None), [lane])
    nursery.start_soon(lane.run)
    outlets.be_patient_until(20)
    await deliver_all(outlets, 40)

    assert trio.current_time() == 20
    assert lane.books().dropped > 0
    nursery.cancel_scope.cancel()


async def test_a_lane_is_due_what_went_on_while_it_was_there(autojump_clock, nursery) -> None:
    exporters = {name: MemoryExporter() for name in ("stays", "goes", "comes")}
    lanes = {name: lane_of(exporter, name, rows=100) for name, exporter in exporters.items()}
    outlets = Outlets(Enrichment([], lambda *_: None), [lanes["stays"], lanes["goes"]])
    health, log = HealthTable(lambda: 1.0), MemoryLog()
    keeper = LaneKeeper(nursery, outlets, health, log)
    keeper.start()
    await deliver_all(outlets, 10)
    keeper.take_out("goes", 5)
    keeper.add(lanes["comes"])
    await deliver_all(outlets, 4)
    await keeper.wait_gone("goes")
    await trio.sleep(2)

    due, books = outlets.lane_books()
    assert due == {"goes": 10, "stays": 14, "comes": 4}
    assert {name: book.rows_in for name, book in books.items()} == due
    assert {name: len(exporter.rows) for name, exporter in exporters.items()} == due
    assert all(book.is_balanced and not book.held for book in books.values())
    nursery.cancel_scope.cancel()


async def test_a_lane_in_memory_that_is_taken_out_has_the_grace_time_and_then_its_rows_are_dropped(
    autojump_clock, nursery
) -> None:
    lane = lane_of(MemoryExporter([RetryableExportError()] * 1000), "dead")
    outlets = Outlets(Enrichment([], lambda *_: None), [lane])
    log = MemoryLog()
    keeper = LaneKeeper(nursery, outlets, HealthTable(lambda: 1.0), log)
    keeper.start()
    await deliver_all(outlets, 4)
    keeper.take_out("dead", 5)
    await keeper.wait_gone("dead")

    assert trio.current_time() == 5
    book = outlets.lane_books()[1]["dead"]
    assert (book.dropped, book.held, book.is_balanced) == (4, 0, True)
    assert log.facts("exporter_taken_out") == [{"name": "dead", "rows_delivered": 0, "rows_dropped": 4}]
    back = lane_of(MemoryExporter(), "dead")
    keeper.add(back)
    await deliver_all(outlets, 2)
    await trio.sleep(2)
    due, books = outlets.lane_books()
    assert due == {"dead": 6}
    assert (books["dead"].rows_in, books["dead"].delivered, books["dead"].is_balanced) == (6, 2, True)
    nursery.cancel_scope.cancel()


async def test_a_lane_that_comes_and_goes_is_due_the_sum_of_its_times_and_nothing_of_what_went_on_between(
    autojump_clock, nursery
) -> None:
    stays = lane_of(MemoryExporter(), "stays", rows=100)
    outlets = Outlets(Enrichment([], lambda *_: None), [stays])
    keeper = LaneKeeper(nursery, outlets, HealthTable(lambda: 1.0), MemoryLog())
    keeper.start()
    await deliver_all(outlets, 6)  # before it is there for the first time
    for rows in (2, 4, 8):
        keeper.add(lane_of(MemoryExporter(), "guest", rows=100))
        await deliver_all(outlets, rows)
        await trio.sleep(1)
        keeper.take_out("guest", 5)
        await keeper.wait_gone("guest")
        due, books = outlets.lane_books()
        assert due["guest"] == books["guest"].rows_in == books["guest"].delivered
        await deliver_all(outlets, 10)
    await trio.sleep(1)

    due, books = outlets.lane_books()
    assert due == {"guest": 14, "stays": 50}
    assert {name: book.delivered for name, book in books.items()} == due
    nursery.cancel_scope.cancel()
