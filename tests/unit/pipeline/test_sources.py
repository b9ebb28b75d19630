from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from pipeline_fakes import MemoryLog, batch_of, numbers_of

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.health import HealthTable, State
from flowjoin._pipeline.sources import SourceStage


class Bench:
    def __init__(self, batches: Callable[[], AsyncIterator[Any]], deliver: Callable[[FlowBatch], None] | None = None):
        @asynccontextmanager
        async def open_source() -> AsyncIterator[AsyncIterator[Any]]:
            iterator = batches()
            try:
                yield iterator
            finally:
                self.closed += 1

        self.closed = 0
        self.rows: list[int] = []
        self.log = MemoryLog()
        self.health = HealthTable(lambda: 1.0)
        self.stage = SourceStage(
            open_source,
            deliver or (lambda batch: self.rows.extend(numbers_of(batch))),
            wait_room=trio.lowlevel.checkpoint,
            component=self.health.add("sources", "s"),
            log=self.log,
        )


async def test_batches_go_on_in_order_until_the_iterator_ends(autojump_clock) -> None:
    async def batches() -> AsyncIterator[FlowBatch]:
        yield batch_of(1)
        await trio.sleep(5)
        yield batch_of(2, 3)

    bench = Bench(batches)
    await bench.stage.run()

    assert bench.rows == [1, 2, 3]
    assert (bench.stage.rows, bench.closed) == (3, 1)
    assert bench.health.snapshot()[0].state is State.ENDED
    assert bench.log.events("info") == ["source_opened", "source_ended"]


async def test_a_source_that_raises_is_opened_again_after_a_wait(autojump_clock) -> None:
    times = []

    async def batches() -> AsyncIterator[FlowBatch]:
        times.append(trio.current_time())
        yield batch_of(len(times))
        if len(times) < 3:
            raise OSError("gone")

    bench = Bench(batches)
    await bench.stage.run()

    assert times == [0, 1, 2]  # each gave a batch, so each wait is a first one
    assert bench.rows == [1, 2, 3]
    assert bench.closed == 3


async def test_what_is_no_batch_is_the_sources_failure(autojump_clock, nursery) -> None:
    async def batches() -> AsyncIterator[Any]:
        yield {"octetDeltaCount": 1}

    bench = Bench(batches)
    nursery.start_soon(bench.stage.run)
    await trio.sleep(0.5)

    assert "gave a dict, not a FlowBatch" in bench.health.snapshot()[0].problem
    nursery.cancel_scope.cancel()


async def test_a_source_that_never_waits_lets_others_have_their_turn(autojump_clock) -> None:
    async def batches() -> AsyncIterator[FlowBatch]:
        while True:
            yield batch_of(1)

    bench = Bench(batches)
    turns = 0

    async def other() -> None:
        nonlocal turns
        for _ in range(10):
            await trio.lowlevel.checkpoint()
            turns += 1
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.stage.run)
        nursery.start_soon(other)

    assert turns == 10
    assert bench.closed == 1


async def test_a_bug_behind_the_source_is_not_the_sources(autojump_clock) -> None:
    async def batches() -> AsyncIterator[FlowBatch]:
        yield batch_of(1)

    def broken(_batch: FlowBatch) -> None:
        raise AssertionError("bug")

    with pytest.raises(AssertionError, match="bug"):
        await Bench(batches, broken).stage.run()


class Telling:
    """An iterator that waits, and has some batches left when the program ends."""

    def __init__(self, left: list[FlowBatch], *, pause: float = 0.0, error: Exception | None = None) -> None:
        self._left = left
        self._pause = pause
        self._error = error
        self._finishing = trio.Event()
        self.asked = 0

    def finish(self) -> None:
        self.asked += 1
        if self._error is not None:
            raise self._error
        self._finishing.set()

    def __aiter__(self) -> AsyncIterator[FlowBatch]:
        return self

    async def __anext__(self) -> FlowBatch:
        await self._finishing.wait()
        await trio.sleep(self._pause)
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop(0)


async def finished(bench: Bench) -> float:
    """Seconds that it took to end, once it was told to."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.stage.run)
        await trio.sleep(3)
        began = trio.current_time()
        bench.stage.finish(10)
    return trio.current_time() - began


async def test_a_source_that_has_something_left_tells_it_when_the_program_ends(autojump_clock) -> None:
    bench = Bench(lambda: Telling([batch_of(1), batch_of(2)], pause=2))
    assert await finished(bench) == 6
    assert (bench.rows, bench.closed) == ([1, 2], 1)
    assert bench.log.events("info") == ["source_opened", "source_ended"]


async def test_a_source_that_needs_too_long_for_what_is_left_is_cut_short_and_that_is_said(autojump_clock) -> None:
    bench = Bench(lambda: Telling([batch_of(number) for number in range(9)], pause=4))
    assert await finished(bench) == 10
    assert (bench.rows, bench.closed) == ([0, 1], 1)
    assert bench.log.events("warning") == ["source_cut_short"]


async def test_a_source_that_has_nothing_to_tell_at_the_end_is_cancelled(autojump_clock) -> None:
    async def batches() -> AsyncIterator[FlowBatch]:
        yield batch_of(1)
        await trio.sleep_forever()

    bench = Bench(batches)
    assert await finished(bench) == 0
    assert (bench.rows, bench.closed) == ([1], 1)
    assert bench.log.events("warning") == []


async def test_a_source_that_cannot_finish_is_cancelled_and_named(autojump_clock) -> None:
    bench = Bench(lambda: Telling([batch_of(1)], error=ValueError("no")))
    assert await finished(bench) == 0
    assert (bench.rows, bench.closed) == ([], 1)
    assert bench.log.events("error") == ["plugin_failed"]


async def test_a_source_that_fails_when_the_program_ends_is_not_opened_again(autojump_clock) -> None:
    class Failing(Telling):
        async def __anext__(self) -> FlowBatch:
            await self._finishing.wait()
            raise OSError("gone")

    opened: list[Telling] = []

    def batches() -> Telling:
        opened.append(Failing([]))
        return opened[-1]

    bench = Bench(batches)
    assert await finished(bench) == 0
    assert (len(opened), bench.closed) == (1, 1)


async def test_a_source_that_is_not_open_when_the_program_ends_is_given_up(autojump_clock) -> None:
    async def batches() -> AsyncIterator[FlowBatch]:
        await trio.sleep(2.5)
        raise OSError("gone")
        yield  # a generator

    bench = Bench(batches)
    assert await finished(bench) == 0
    assert (bench.closed, bench.log.events("warning")) == (1, [])
