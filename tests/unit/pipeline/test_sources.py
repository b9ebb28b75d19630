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
