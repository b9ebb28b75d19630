"""What blocks is waited for a little after a cancellation, and no longer."""

from __future__ import annotations

import threading

import pytest
import trio

from flowjoin_kubernetes._threads import in_thread

PATIENCE = 60.0


async def test_it_gives_what_the_function_gives_and_raises_what_it_raises() -> None:
    assert await in_thread(lambda: threading.current_thread() is not threading.main_thread())
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)


async def test_cancelled_it_waits_for_what_is_about_to_end() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        ended.set()

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_thread, work)
            await trio.to_thread.run_sync(begun.wait)
            go_on.set()
            nursery.cancel_scope.cancel()
    assert ended.wait(PATIENCE)


async def test_cancelled_it_leaves_what_does_not_end() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    with trio.fail_after(PATIENCE / 2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_thread, hang)
            await trio.to_thread.run_sync(begun.wait)
            nursery.cancel_scope.cancel()
    go_on.set()
