"""Each row of a lane is in exactly one book, whatever happens and wherever it is cancelled."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_bench import LaneBench, sleep_for
from pipeline_fakes import (
    MemoryExporter,
    batch_of,
    cancelled_at_step,
    numbers_of,
)

from flowjoin._pipeline.lane_queue import LaneBounds, LaneQueue
from flowjoin._pipeline.lane_store import MemoryStore
from flowjoin.api import Batching, PermanentExportError, RetryableExportError


async def test_cancelled_is_never_swallowed(autojump_clock) -> None:
    class Stubborn(MemoryExporter):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[Any]:
            try:
                yield self
            finally:
                raise OSError("fails while cancelled")

    exporter = Stubborn([sleep_for(math.inf)])
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1))

    with trio.move_on_after(5) as scope:
        await bench.finish()

    assert scope.cancelled_caught
    assert (bench.books.held, bench.books.failures) == (1, 0)


def _faults() -> Iterator[Any]:
    async def slow(_batch: object) -> None:
        await trio.sleep(1)

    yield from [None, slow, RetryableExportError(), PermanentExportError(rows=[0]), slow]
    yield from [KeyError("one row")] * 6
    yield slow


async def _run_with_faults(exporter: MemoryExporter, bench: LaneBench) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for start in range(0, 24, 3):
            bench.lane.offer(batch_of(start, start + 1, start + 2))
            await trio.sleep(2)
        bench.lane.close()


async def test_a_batch_that_is_joined_in_steps_is_whole_wherever_its_lane_is_cancelled(monkeypatch) -> None:
    monkeypatch.setattr("flowjoin._model.flow_batch._STEP_COST", 1)  # each column is a step
    seen: list[tuple[str, list[int]]] = []

    async def deliver_all(store: MemoryStore) -> None:
        while (part := await store.begin(0.0, flush=True)) is not None:
            seen.append((part.id, numbers_of(part.rows())))
            store.settle()

    fired = 0
    while True:
        store = MemoryStore(Batching(records=3), LaneBounds(), "id/{}".format)
        for number in range(8):
            store.put(batch_of(number), 0.0)
        seen.clear()
        with cancelled_at_step(fired + 1) as instrument:
            await deliver_all(store)
        assert store.books().is_balanced
        assert store.held == 8 - sum(len(numbers) for _, numbers in seen)
        await deliver_all(store)
        assert seen == [("id/1", [0, 1, 2]), ("id/2", [3, 4, 5]), ("id/3", [6, 7])]
        if not instrument.has_fired:
            break
        fired += 1
    assert fired > 3


def test_a_batch_that_is_being_joined_is_not_dropped_and_is_the_next_whoever_asks_again(monkeypatch) -> None:
    monkeypatch.setattr("flowjoin._model.flow_batch._STEP_COST", 1)
    queue = LaneQueue(Batching(records=2), LaneBounds(rows=4), "id/{}".format)
    queue.put(batch_of(1), 0.0)
    queue.put(batch_of(2), 0.0)
    for _ in queue.draw(0.0):
        break  # cancelled
    assert [queue.put(batch_of(number), 0.0) for number in (3, 4, 5, 6)] == [0, 0, 2, 0]

    assert (queue.held, queue.books().held, queue.books().dropped) == (4, 4, 2)
    part = queue.begin(0.0)
    assert part is not None
    assert (part.id, numbers_of(part.batch)) == ("id/1", [1, 2])
    queue.head.settle()
    part = queue.begin(0.0)
    assert part is not None
    assert (part.id, numbers_of(part.batch)) == ("id/3", [5, 6])


def test_another_store_gets_all_rows_in_their_order_also_those_of_a_batch_that_is_being_joined(
    monkeypatch,
) -> None:
    monkeypatch.setattr("flowjoin._model.flow_batch._STEP_COST", 1)
    queue = LaneQueue(Batching(records=2, interval=9.0), LaneBounds(), "id/{}".format)
    for number in (1, 2, 3, 4, 5):
        queue.put(batch_of(number), 0.0)
    for _ in queue.draw(0.0):
        break
    assert [number for batch in queue.hand_on() for number in numbers_of(batch)] == [1, 2, 3, 4, 5]
    assert (queue.held, queue.books().rows_in, queue.books().is_balanced) == (0, 0, True)
    assert queue.begin(99.0, flush=True) is None


async def test_the_books_balance_wherever_a_lane_is_cancelled(autojump_clock) -> None:
    fired = 0
    for step in range(1, 1000):
        exporter = MemoryExporter(_faults())
        bench = LaneBench(exporter.open, batching=Batching(records=3), bounds=LaneBounds(rows=9))
        with cancelled_at_step(step) as instrument:
            await _run_with_faults(exporter, bench)
        books = bench.books
        assert exporter.opened == exporter.closed
        assert len(exporter.rows) <= books.delivered + books.dead_lettered + 3  # at most one call not yet counted
        if not instrument.has_fired:
            assert books.held == 0
            break
        fired += 1
    else:
        pytest.fail("the lane never finished")
    assert fired > 30


OUTCOMES = st.sampled_from(["good", "retry", "refuse_first", "refuse_all", "bug", "slow"])


@settings(max_examples=60, deadline=None)
@given(
    outcomes=st.lists(OUTCOMES, max_size=30),
    offers=st.lists(st.tuples(st.integers(1, 7), st.floats(0, 20)), min_size=1, max_size=12),
    records=st.integers(1, 5),
    bound=st.integers(3, 20),
)
def test_every_row_is_in_exactly_one_book_whatever_the_exporter_does(
    outcomes: list[str], offers: list[tuple[int, float]], records: int, bound: int
) -> None:
    settled: list[int] = []

    async def export(exporter: MemoryExporter, batch: Any) -> None:
        outcome = next(script, "good")
        numbers = numbers_of(batch)
        if outcome == "retry":
            raise RetryableExportError
        if outcome == "bug":
            raise ZeroDivisionError
        if outcome == "slow":
            await trio.sleep(3)
        settled.extend(numbers)
        if outcome.startswith("refuse"):
            raise PermanentExportError(rows=[0] if outcome == "refuse_first" else None)

    class Scripted(MemoryExporter):
        async def export(self, batch: Any) -> None:
            await export(self, batch)

    script = iter(outcomes)

    async def main() -> None:
        exporter = Scripted()
        bench = LaneBench(exporter.open, batching=Batching(records=records), bounds=LaneBounds(rows=bound))
        number = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.lane.run)
            for rows, wait in offers:
                bench.lane.offer(batch_of(*range(number, number + rows)))
                number += rows
                assert bench.books.rows_in == number
                await trio.sleep(wait)
            bench.lane.close()
        books = bench.books
        assert books.held == 0
        assert len(settled) == len(set(settled)) <= books.delivered + books.dead_lettered
        assert settled == sorted(settled)
        assert books.rows_in == number

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
