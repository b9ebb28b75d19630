from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_fakes import (
    OTHER_SCHEMA,
    MemoryExporter,
    MemoryLog,
    Opener,
    batch_of,
    cancelled_at_step,
    numbers_of,
)

from flowjoin._pipeline.health import HealthTable, State
from flowjoin._pipeline.lane import Lane, LaneIdentity
from flowjoin._pipeline.lane_head import Part
from flowjoin._pipeline.lane_queue import LaneBooks, LaneBounds
from flowjoin._pipeline.lane_store import MemoryStore
from flowjoin.api import Batching, ConfigError, PermanentExportError, RetryableExportError


def sleep_for(seconds: float) -> Callable[[object], Awaitable[None]]:
    async def act(_batch: object) -> None:
        await trio.sleep(seconds)

    return act


class Bench:
    """A lane with its logger and health, its clock trio's and its jitter none."""

    def __init__(self, opener: Opener, *, batching: Batching | None = None, bounds: LaneBounds | None = None) -> None:
        self.log = MemoryLog()
        self.health = HealthTable(lambda: 1.0)
        self.lane = Lane(
            opener,
            batching or Batching(),
            identity=LaneIdentity(instance_id="here", lane="audit", epoch=3),
            component=self.health.add("exporters", "audit"),
            log=self.log,
            bounds=bounds,
        )

    @property
    def state(self) -> State:
        return self.health.snapshot()[0].state

    @property
    def books(self) -> LaneBooks:
        books = self.lane.books()
        assert books.rows_in == books.delivered + books.dead_lettered + books.dropped + books.held
        return books

    async def finish(self) -> None:
        self.lane.close()
        await self.lane.run()


async def test_rows_are_delivered_with_an_id_of_instance_lane_epoch_and_sequence(autojump_clock) -> None:
    exporter = MemoryExporter()
    bench = Bench(exporter.open)
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
    bench = Bench(exporter.open)
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
    bench = Bench(exporter.open, batching=Batching(records=3, interval=8))
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
    bench = Bench(exporter.open, batching=Batching(interval=3600))
    bench.lane.offer(batch_of(1))

    await bench.finish()

    assert trio.current_time() == 0
    assert exporter.rows == [1]


async def test_the_lag_is_the_age_of_the_oldest_row_that_waits(autojump_clock, nursery) -> None:
    bench = Bench(MemoryExporter([sleep_for(10), sleep_for(3)]).open)
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
    bench = Bench(exporter.open)
    bench.lane.offer(batch_of())

    await bench.finish()

    assert exporter.calls == []


async def test_a_retryable_failure_brings_the_same_batch_again_after_growing_waits(autojump_clock) -> None:
    exporter = MemoryExporter([RetryableExportError("full")] * 7)
    bench = Bench(exporter.open)
    bench.lane.offer(batch_of(1, 2))

    await bench.finish()

    assert [when for when, _, _ in exporter.calls] == [0, 1, 3, 7, 15, 31, 61, 91]
    assert {id for _, id, _ in exporter.calls} == {"here/audit/3/1"}
    assert (bench.books.delivered, bench.books.failures) == (2, 7)
    assert bench.books.retried == 14


async def test_a_batch_is_not_cut_when_it_is_taken_up_again(autojump_clock, nursery) -> None:
    exporter = MemoryExporter([RetryableExportError()])
    bench = Bench(exporter.open)
    bench.lane.offer(batch_of(1))
    nursery.start_soon(bench.lane.run)
    await trio.sleep(0.5)
    bench.lane.offer(batch_of(2))
    await trio.sleep(5)

    assert [rows for _, _, rows in exporter.calls] == [[1], [1], [2]]
    bench.lane.close()


@pytest.mark.parametrize(
    ("retry_after", "wait"), [(7.0, 7), (0.0, 0), (math.inf, 1), (math.nan, 1), (-5.0, 1), (1e9, 3600), ("soon", 1)]
)
async def test_the_wait_that_a_destination_asks_for_is_kept_within_reason(autojump_clock, retry_after, wait) -> None:
    exporter = MemoryExporter([RetryableExportError(retry_after=retry_after)])
    bench = Bench(exporter.open)
    bench.lane.offer(batch_of(1))

    await bench.finish()

    assert [when for when, _, _ in exporter.calls] == [0, wait]


async def test_rows_refused_for_ever_are_dead_letters_and_the_others_delivered(autojump_clock) -> None:
    exporter = MemoryExporter([PermanentExportError("too long", rows=(0, 2, 2))])
    bench = Bench(exporter.open)
    bench.lane.offer(batch_of(1, 2, 3, 4))

    await bench.finish()

    assert (bench.books.delivered, bench.books.dead_lettered) == (2, 2)
    assert len(exporter.calls) == 1
    (facts,) = bench.log.facts("rows_dead_lettered")
    assert facts == {"batch": "here/audit/3/1", "rows": 2, "first_rows": [0, 2], "problem": "too long"}


@pytest.mark.parametrize(("rows", "dead"), [(None, 3), ((), 0)])
async def test_a_permanent_failure_without_rows_means_all_and_with_no_row_none(autojump_clock, rows, dead) -> None:
    exporter = MemoryExporter([PermanentExportError(rows=rows)])
    bench = Bench(exporter.open)
    bench.lane.offer(batch_of(1, 2, 3))

    await bench.finish()

    assert (bench.books.delivered, bench.books.dead_lettered) == (3 - dead, dead)


async def test_refused_rows_outside_the_batch_are_a_bug_of_the_plugin(autojump_clock) -> None:
    exporter = MemoryExporter([PermanentExportError(rows=[3])])
    bench = Bench(exporter.open)
    bench.lane.offer(batch_of(1, 2, 3))

    await bench.finish()

    assert (bench.books.delivered, bench.books.failures) == (3, 1)
    assert "export_failed" in bench.log.events("error")


class Poisoned(MemoryExporter):
    """Raises for every batch that holds one of these rows."""

    def __init__(self, *poison: int) -> None:
        super().__init__()
        self._poison = set(poison)

    async def export(self, batch: Any) -> None:
        if self._poison & set(numbers_of(batch)):
            self.calls.append((trio.current_time(), batch.id, numbers_of(batch)))
            raise KeyError("poison")
        await super().export(batch)


async def test_after_five_unknown_failures_a_batch_is_halved_down_to_the_row_that_fails_alone(autojump_clock) -> None:
    exporter = Poisoned(3)
    bench = Bench(exporter.open)
    bench.lane.offer(batch_of(1, 2, 3, 4))
    bench.lane.offer(batch_of(5, schema=OTHER_SCHEMA))

    await bench.finish()

    assert [(id.removeprefix("here/audit/3/"), rows) for _, id, rows in exporter.calls] == [
        *[("1", [1, 2, 3, 4])] * 5,
        ("1[0:2]", [1, 2]),
        ("1[2:4]", [3, 4]),
        ("1[2:3]", [3]),
        ("1[3:4]", [4]),
        ("2", [5]),
    ]
    assert exporter.rows == [1, 2, 4, 5]
    assert (bench.books.delivered, bench.books.dead_lettered, bench.books.batches) == (4, 1, 2)
    (facts,) = bench.log.facts("rows_dead_lettered")
    assert isinstance(facts["exc_info"], KeyError)
    assert facts["exc_info"].__traceback__ is not None


async def test_other_failures_between_begin_the_count_anew(autojump_clock) -> None:
    exporter = MemoryExporter([*[KeyError()] * 4, RetryableExportError(), *[KeyError()] * 4])
    bench = Bench(exporter.open)
    bench.lane.offer(batch_of(1, 2))

    await bench.finish()

    assert {tuple(rows) for _, _, rows in exporter.calls} == {(1, 2)}
    assert bench.books.delivered == 2


async def test_a_lone_row_that_fails_five_times_is_a_dead_letter(autojump_clock) -> None:
    exporter = Poisoned(1)
    bench = Bench(exporter.open)
    bench.lane.offer(batch_of(1))

    await bench.finish()

    assert len(exporter.calls) == 5
    assert bench.books.dead_lettered == 1


async def test_health_is_degraded_while_a_batch_fails_and_good_again_after_it(autojump_clock, nursery) -> None:
    exporter = MemoryExporter([RetryableExportError("disk full"), KeyError()])
    bench = Bench(exporter.open)
    assert bench.state is State.STARTING
    bench.lane.offer(batch_of(1))
    nursery.start_soon(bench.lane.run)
    await trio.sleep(0.5)
    assert bench.state is State.DEGRADED
    assert bench.health.snapshot()[0].problem == "RetryableExportError: disk full"
    await trio.sleep(1)
    assert bench.state is State.DEGRADED
    await trio.sleep(10)
    assert bench.state is State.OK
    assert bench.log.events() == ["exporter_opened", "export_retried", "export_failed", "exporter_recovered"]
    bench.lane.close()


async def test_an_error_in_the_group_of_a_plugins_nursery_is_the_error(autojump_clock) -> None:
    async def in_a_nursery(_batch: object) -> None:
        async with trio.open_nursery():
            raise RetryableExportError

    exporter = MemoryExporter([in_a_nursery] * 6)
    bench = Bench(exporter.open)
    bench.lane.offer(batch_of(1, 2))

    await bench.finish()

    assert {tuple(rows) for _, _, rows in exporter.calls} == {(1, 2)}
    assert bench.books.delivered == 2


async def test_a_hanging_exporter_delays_nobody_who_gives_it_rows_and_the_oldest_batch_goes(
    autojump_clock, nursery
) -> None:
    exporter = MemoryExporter([sleep_for(math.inf)])
    bench = Bench(exporter.open, batching=Batching(records=10), bounds=LaneBounds(rows=30))
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
    bench = Bench(exporter.open, batching=Batching(records=2), bounds=LaneBounds(rows=4))
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
    bench = Bench(exporter.open, batching=Batching(records=2), bounds=LaneBounds(rows=2))
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
    bench = Bench(exporter.open, bounds=LaneBounds(rows=2))
    bench.lane.offer(batch_of(1, 2, 3))

    await bench.finish()

    assert bench.books.delivered == 3


async def test_the_bound_in_octets_counts_too(autojump_clock) -> None:
    bounds = LaneBounds(octets=batch_of(10, 11).octets * 3)
    bench = Bench(MemoryExporter().open, batching=Batching(records=2), bounds=bounds)
    for start in range(10, 30, 2):
        bench.lane.offer(batch_of(start, start + 1))

    assert (bench.books.dropped, bench.books.held) == (14, 6)


async def test_a_sender_that_may_wait_loses_nothing(autojump_clock, nursery) -> None:
    exporter = MemoryExporter([sleep_for(5)] * 100)
    bench = Bench(exporter.open, batching=Batching(records=2), bounds=LaneBounds(rows=4))

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


async def test_an_exporter_that_cannot_open_is_tried_again_and_loses_nothing(autojump_clock) -> None:
    exporter = MemoryExporter()
    tries = []

    @asynccontextmanager
    async def open_exporter() -> AsyncIterator[Any]:
        tries.append(trio.current_time())
        if len(tries) < 4:
            raise OSError("no route to host") if len(tries) < 3 else RetryableExportError("starting")
        yield exporter

    bench = Bench(open_exporter)
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

    bench = Bench(open_exporter)
    nursery.start_soon(bench.lane.run)
    await trio.sleep(8)
    bench.lane.close()
    await trio.testing.wait_all_tasks_blocked()

    assert bench.state is State.ENDED
    assert trio.current_time() == 8


async def test_closing_cuts_a_pause_short_so_that_the_grace_time_is_used(autojump_clock, nursery) -> None:
    exporter = MemoryExporter([RetryableExportError(retry_after=3000)])
    bench = Bench(exporter.open)
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

    bench = Bench(open_exporter)
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
    bench = Bench(exporter.open)
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
    bench = Bench(exporter.open)
    bench.lane.offer(batch_of(1, 2, 3))

    await bench.finish()

    assert exporter.rows == [1, 3]
    assert (bench.books.delivered, bench.books.dead_lettered) == (2, 1)


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
    bench = Bench(exporter.open)
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

    bench = Bench(open_exporter)
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

    bench = Bench(open_exporter)
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

    bench = Bench(swallows_everything)
    bench.lane.offer(batch_of(1))
    monkeypatch.setattr(bench.lane._store, "settle", broken)

    with pytest.raises(AssertionError, match="bug"):
        await bench.finish()


async def test_cancelled_is_never_swallowed(autojump_clock) -> None:
    class Stubborn(MemoryExporter):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[Any]:
            try:
                yield self
            finally:
                raise OSError("fails while cancelled")

    exporter = Stubborn([sleep_for(math.inf)])
    bench = Bench(exporter.open)
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


async def _run_with_faults(exporter: MemoryExporter, bench: Bench) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.lane.run)
        for start in range(0, 24, 3):
            bench.lane.offer(batch_of(start, start + 1, start + 2))
            await trio.sleep(2)
        bench.lane.close()


async def test_the_books_balance_wherever_a_lane_is_cancelled(autojump_clock) -> None:
    fired = 0
    for step in range(1, 1000):
        exporter = MemoryExporter(_faults())
        bench = Bench(exporter.open, batching=Batching(records=3), bounds=LaneBounds(rows=9))
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
        bench = Bench(exporter.open, batching=Batching(records=records), bounds=LaneBounds(rows=bound))
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


def replaced_by(bench: Bench, exporter: MemoryExporter, *, grace: float = 10) -> None:
    bench.lane.replace(exporter.open, Batching(records=2), None, grace_seconds=grace)


async def test_another_exporter_gets_what_is_held_and_what_comes_under_the_same_ids(autojump_clock, nursery) -> None:
    old, new = MemoryExporter([None, RetryableExportError(retry_after=3600)]), MemoryExporter()
    bench = Bench(old.open, batching=Batching(records=2))
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
        bench = Bench(old.open, batching=Batching(records=2))
        nursery.start_soon(bench.lane.run)
        bench.lane.offer(batch_of(1, 2))
        await trio.sleep(1)
        replaced_by(bench, new)
        await trio.sleep(20)
        assert bench.books.delivered == 2
        assert bench.books.held == 0
    assert (slow.rows, stuck.rows, new.rows) == ([1, 2], [], [1, 2])
    nursery.cancel_scope.cancel()


async def test_a_new_exporter_that_cannot_use_its_configuration_degrades_the_lane_only(autojump_clock, nursery) -> None:
    @asynccontextmanager
    async def refusing() -> AsyncIterator[Any]:
        raise ConfigError("no such place")
        yield

    bench = Bench(MemoryExporter().open)
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
    bench = Bench(old.open)
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
    bench = Bench(old.open, batching=Batching(records=2))
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
