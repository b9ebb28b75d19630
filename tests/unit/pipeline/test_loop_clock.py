from __future__ import annotations

import trio

from flowjoin._pipeline.loop_clock import LoopClock


def test_after_the_loop_it_tells_what_it_told_last() -> None:
    clock = LoopClock()

    async def main() -> tuple[float, float]:
        return trio.current_time(), clock()

    before, told = trio.run(main)
    assert told >= before
    assert clock() == told


async def test_in_another_thread_it_tells_what_it_told_last(autojump_clock: object) -> None:
    clock = LoopClock()
    told = clock()
    await trio.sleep(5)
    assert await trio.to_thread.run_sync(clock) == told
    assert clock() == told + 5
