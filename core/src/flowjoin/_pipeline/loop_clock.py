"""Trio's time, for what is also asked when trio no longer runs."""

from __future__ import annotations

import trio

__all__ = ["LoopClock"]


class LoopClock:
    """Monotonic seconds of the loop; outside it, in another thread or after its end, what was told last."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        if trio.lowlevel.in_trio_run():
            self._now = trio.current_time()
        return self._now
