"""Blocking calls in threads, that end soon when nobody wants them any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import trio

__all__ = ["STOP_SECONDS", "run_blocking"]

T = TypeVar("T")

STOP_SECONDS: Final = 2.0


async def run_blocking(call: Callable[[threading.Event], T], limiter: trio.CapacityLimiter) -> T:
    """Run the call in a thread.

    Cancellation: the event that the call was given is set, and the call has ``STOP_SECONDS`` to end; after that it is
    left to itself, and whatever it gives or raises is lost.
    """
    stop = threading.Event()
    error: Exception | None = None
    async with trio.open_nursery() as nursery:
        with trio.CancelScope(shield=True) as scope:

            async def watch() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    stop.set()
                    scope.deadline = trio.current_time() + STOP_SECONDS

            nursery.start_soon(watch)
            try:
                result = await trio.to_thread.run_sync(call, stop, abandon_on_cancel=True, limiter=limiter)
            except Exception as exc:  # noqa: BLE001 - raised below, outside the nursery, which would wrap it
                error = exc
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error
    return result
