"""How blocking work leaves trio's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

__all__ = ["InThread", "in_thread"]

T = TypeVar("T")


class InThread(Protocol):
    """Runs a function elsewhere; tests run it at once, so that their clock does not run away."""

    async def __call__(
        self, function: Callable[[], T], /, *, limiter: trio.CapacityLimiter, abandon_on_cancel: bool = False
    ) -> T: ...


async def in_thread(
    function: Callable[[], T], /, *, limiter: trio.CapacityLimiter, abandon_on_cancel: bool = False
) -> T:
    """In a worker thread."""
    return await trio.to_thread.run_sync(function, limiter=limiter, abandon_on_cancel=abandon_on_cancel)
