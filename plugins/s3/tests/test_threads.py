"""Blocking calls give what they give; a cancelled one is told, and left alone if it does not end."""

from __future__ import annotations

import threading

import pytest
import trio
from trio.testing import MockClock

from flowjoin_s3._threads import STOP_SECONDS, run_blocking


@pytest.fixture
def limiter() -> trio.CapacityLimiter:
    return trio.CapacityLimiter(2)


async def test_the_result_comes_back(limiter: trio.CapacityLimiter) -> None:
    assert await run_blocking(lambda stop: (stop.is_set(), 7), limiter) == (False, 7)


async def test_an_error_comes_back_as_it_is(limiter: trio.CapacityLimiter) -> None:
    def fail(_stop: threading.Event) -> None:
        raise ZeroDivisionError("as it is")

    with pytest.raises(ZeroDivisionError, match="as it is"):
        await run_blocking(fail, limiter)


async def test_a_cancelled_call_is_told_and_awaited(limiter: trio.CapacityLimiter) -> None:
    ended: list[bool] = []
    with trio.CancelScope() as scope:

        def wait(stop: threading.Event) -> None:
            trio.from_thread.run_sync(scope.cancel)
            ended.append(stop.wait(30))
            raise ConnectionError("nobody is there to hear it")

        await run_blocking(wait, limiter)
    assert scope.cancelled_caught
    assert ended == [True]
    assert limiter.borrowed_tokens == 0


async def test_a_call_that_does_not_end_is_left_alone(limiter: trio.CapacityLimiter, autojump_clock: MockClock) -> None:
    release = threading.Event()
    try:
        started = trio.current_time()
        with trio.CancelScope() as scope:

            def wait(_stop: threading.Event) -> None:
                trio.from_thread.run_sync(scope.cancel)
                release.wait(60)

            await run_blocking(wait, limiter)
        assert scope.cancelled_caught
        assert trio.current_time() - started == pytest.approx(STOP_SECONDS)
        assert limiter.borrowed_tokens == 1
        assert await run_blocking(lambda _stop: 7, limiter) == 7
    finally:
        release.set()


async def test_cancelled_before_it_begins_the_call_is_told_at_once(limiter: trio.CapacityLimiter) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await run_blocking(lambda stop: stop.wait(30), limiter)
    assert scope.cancelled_caught
