from __future__ import annotations

from math import inf
from typing import Any

import trio
import trio.testing
from pipeline_fakes import batch_of, cancelled_at_step, numbers_of

from flowjoin._aggregator.process import Aggregation
from flowjoin._model.flow_batch import FlowBatch

FLOWS_PER_SLICE = 128


class FakeKernel:
    """Flows are numbers with a time at which they are due."""

    flows_per_slice = FLOWS_PER_SLICE

    def __init__(self, due: dict[int, float]) -> None:
        self.due = due
        self.ticks: list[float] = []
        self.limits: list[int] = []

    def tick(self, now: float) -> tuple[()]:
        self.ticks.append(now)
        return ()

    def next_expiry(self) -> float | None:
        return min(self.due.values(), default=None)

    def expire(self, now: float, limit: int) -> list[FlowBatch]:
        self.limits.append(limit)
        ready = [number for number, time in self.due.items() if time <= now][:limit]
        for number in ready:
            del self.due[number]
        middle = len(ready) // 2
        return [batch_of(*part) for part in (ready[:middle], ready[middle:]) if part]


class Bench:
    def __init__(self, due: dict[int, float]) -> None:
        self.kernel: Any = FakeKernel(due)
        self.delivered: list[tuple[float, int]] = []
        self.waits = 0
        self.aggregation = Aggregation(self.kernel, self._deliver, self._wait_room)

    def _deliver(self, batch: FlowBatch) -> None:
        self.delivered.extend((trio.current_time(), number) for number in numbers_of(batch))

    async def _wait_room(self) -> None:
        self.waits += 1
        await trio.lowlevel.checkpoint()


async def test_it_ticks_once_a_second_and_delivers_at_the_tick_after_a_deadline(autojump_clock) -> None:
    bench = Bench({1: 0.0, 2: 2.5, 3: 3.0, 4: 99.0})
    with trio.move_on_after(4.5):
        await bench.aggregation.run()

    assert bench.kernel.ticks == [0, 1, 2, 3, 4]
    assert bench.delivered == [(0, 1), (3, 2), (3, 3)]


async def test_rows_that_should_not_wait_leave_before_the_tick(autojump_clock, nursery) -> None:
    bench = Bench({})
    nursery.start_soon(bench.aggregation.run)
    await trio.sleep(0.25)
    bench.kernel.due[7] = 0.25
    bench.aggregation.wake()
    await trio.sleep(0.25)

    assert bench.delivered == [(0.25, 7)]
    assert bench.kernel.ticks == [0]
    nursery.cancel_scope.cancel()


async def test_much_that_is_due_leaves_in_slices_between_which_others_run(autojump_clock) -> None:
    flows = FLOWS_PER_SLICE * 3 + 1
    bench = Bench(dict.fromkeys(range(flows), 0.0))
    await bench.aggregation.expire(0.0)

    assert bench.kernel.limits == [FLOWS_PER_SLICE] * 4
    assert bench.waits == 5
    assert [number for _, number in bench.delivered] == list(range(flows))


async def test_finishing_takes_everything_out(autojump_clock) -> None:
    bench = Bench({1: 5.0, 2: 1e9, 3: inf})
    await bench.aggregation.finish()

    assert [number for _, number in bench.delivered] == [1, 2, 3]


async def test_no_row_is_lost_wherever_it_is_cancelled(autojump_clock) -> None:
    flows = FLOWS_PER_SLICE * 3
    step = 0
    while True:
        step += 1
        bench = Bench({number: number / FLOWS_PER_SLICE for number in range(flows)})
        with cancelled_at_step(step) as instrument, trio.move_on_after(4):
            await bench.aggregation.run()
        numbers = [number for _, number in bench.delivered]
        assert sorted(numbers + list(bench.kernel.due)) == list(range(flows))
        if not instrument.has_fired:
            break
    assert step > 5
