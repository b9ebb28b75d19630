"""A lane: batches, their ids, and what there is room for."""

from __future__ import annotations

import math

import trio
import trio.testing
from lane_bench import LaneBench, sleep_for
from pipeline_fakes import (
    OTHER_SCHEMA,
    MemoryExporter,
    batch_of,
)

from flowjoin._pipeline.health import State
from flowjoin._pipeline.lane_queue import LaneBounds
from flowjoin.api import Batching, RetryableExportError


async def test_rows_are_delivered_with_an_id_of_instance_lane_epoch_and_sequence(autojump_clock) -> None:
    exporter = MemoryExporter()
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1, 2))
    bench.lane.offer(batch_of(3, schema=OTHER_SCHEMA))

    await bench.finish()

    assert [(id, rows) for _, id, rows in exporter.calls] == [("here/audit/3/1", [1, 2]), ("here/audit/3/2", [3])]
    assert (bench.books.delivered, bench.books.held, bench.books.batches) == (3, 0, 2)
    assert (exporter.opened, exporter.closed) == (1, 1)
    assert bench.state is State.ENDED


async def test_without_interval_a_lone_row_leaves_at_once_and_what_comes_meanwhile_goes_together(
    autojump_clock, nursery
) -> None:
    exporter = MemoryExporter([sleep_for(5)])
    bench = LaneBench(exporter.open)
    nursery.start_soon(bench.lane.run)
    bench.lane.offer(batch_of(1))
    await trio.sleep(1)
    for number in (2, 3, 4):
        bench.lane.offer(batch_of(number))
    await trio.sleep(10)

    assert [(when, rows) for when, _, rows in exporter.calls] == [(0, [1]), (5, [2, 3, 4])]
    bench.lane.close()


async def test_an_interval_gathers_rows(autojump_clock, nursery) -> None:
    exporter = MemoryExporter()
    bench = LaneBench(exporter.open, batching=Batching(records=3, interval=8))
    nursery.start_soon(bench.lane.run)
    await trio.sleep(1)
    bench.lane.offer(batch_of(1))
    await trio.sleep(2)
    bench.lane.offer(batch_of(2))
    await trio.sleep(10)
    bench.lane.offer(batch_of(3, 4, 5))
    await trio.sleep(0.5)

    assert [(when, rows) for when, _, rows in exporter.calls] == [(9, [1, 2]), (13, [3, 4, 5])]
    bench.lane.close()


async def test_closing_does_not_wait_for_the_interval(autojump_clock) -> None:
    exporter = MemoryExporter()
    bench = LaneBench(exporter.open, batching=Batching(interval=3600))
    bench.lane.offer(batch_of(1))

    await bench.finish()

    assert trio.current_time() == 0
    assert exporter.rows == [1]


async def test_the_lag_is_the_age_of_the_oldest_row_that_waits(autojump_clock, nursery) -> None:
    bench = LaneBench(MemoryExporter([sleep_for(10), sleep_for(3)]).open)
    nursery.start_soon(bench.lane.run)
    assert bench.books.lag == 0
    bench.lane.offer(batch_of(1, 2))
    await trio.sleep(4)
    bench.lane.offer(batch_of(3))
    await trio.sleep(2)
    assert bench.books.lag == 6
    await trio.sleep(5)
    assert (bench.books.delivered, bench.books.lag) == (2, 7)
    await trio.sleep(3)
    assert (bench.books.delivered, bench.books.lag) == (3, 0)
    bench.lane.close()


async def test_an_empty_batch_is_nothing(autojump_clock) -> None:
    exporter = MemoryExporter()
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of())

    await bench.finish()

    assert exporter.calls == []


async def test_a_hanging_exporter_delays_nobody_who_gives_it_rows_and_the_oldest_batch_goes(
    autojump_clock, nursery
) -> None:
    exporter = MemoryExporter([sleep_for(math.inf)])
    bench = LaneBench(exporter.open, batching=Batching(records=10), bounds=LaneBounds(rows=30))
    nursery.start_soon(bench.lane.run)
    bench.lane.offer(batch_of(*range(10)))
    await trio.sleep(1)
    for start in range(10, 60, 10):
        bench.lane.offer(batch_of(*range(start, start + 10)))

    books = bench.books
    assert (books.rows_in, books.dropped, books.held) == (60, 30, 30)
    assert bench.log.events("warning") == ["rows_dropped"] * 3
    nursery.cancel_scope.cancel()


async def test_a_batch_under_way_is_never_dropped_though_it_is_the_oldest(autojump_clock, nursery) -> None:
    exporter = MemoryExporter([sleep_for(5)])
    bench = LaneBench(exporter.open, batching=Batching(records=2), bounds=LaneBounds(rows=4))
    nursery.start_soon(bench.lane.run)
    bench.lane.offer(batch_of(1, 2))
    await trio.sleep(1)
    for start in (3, 5, 7):
        bench.lane.offer(batch_of(start, start + 1))
    await trio.sleep(10)

    assert exporter.rows == [1, 2, 7, 8]
    assert (bench.books.delivered, bench.books.dropped) == (4, 4)
    bench.lane.close()


async def test_a_batch_that_waits_for_its_next_try_is_the_oldest_and_goes(autojump_clock, nursery) -> None:
    exporter = MemoryExporter([RetryableExportError(retry_after=100)])
    bench = LaneBench(exporter.open, batching=Batching(records=2), bounds=LaneBounds(rows=2))
    nursery.start_soon(bench.lane.run)
    bench.lane.offer(batch_of(1, 2))
    await trio.sleep(1)
    bench.lane.offer(batch_of(3, 4))
    assert (bench.books.dropped, bench.books.held) == (2, 2)
    await trio.sleep(200)

    assert exporter.rows == [3, 4]
    assert len(exporter.calls) == 2
    bench.lane.close()


async def test_the_newest_batch_finds_room_even_if_it_is_larger_than_the_bound(autojump_clock) -> None:
    exporter = MemoryExporter()
    bench = LaneBench(exporter.open, bounds=LaneBounds(rows=2))
    bench.lane.offer(batch_of(1, 2, 3))

    await bench.finish()

    assert bench.books.delivered == 3


async def test_the_bound_in_octets_counts_too(autojump_clock) -> None:
    bounds = LaneBounds(octets=batch_of(10, 11).octets * 3)
    bench = LaneBench(MemoryExporter().open, batching=Batching(records=2), bounds=bounds)
    for start in range(10, 30, 2):
        bench.lane.offer(batch_of(start, start + 1))

    assert (bench.books.dropped, bench.books.held) == (14, 6)


async def test_a_sender_that_may_wait_loses_nothing(autojump_clock, nursery) -> None:
    exporter = MemoryExporter([sleep_for(5)] * 100)
    bench = LaneBench(exporter.open, batching=Batching(records=2), bounds=LaneBounds(rows=4))

    async def send_all() -> None:
        for start in range(0, 100, 2):
            await bench.lane.wait_room()
            bench.lane.offer(batch_of(start, start + 1), may_drop=False)
            assert bench.books.held <= 6
        bench.lane.close()

    nursery.start_soon(send_all)
    await bench.lane.run()

    assert exporter.rows == list(range(100))
    assert bench.books.dropped == 0
