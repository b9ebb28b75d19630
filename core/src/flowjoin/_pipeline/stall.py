"""When trio's thread has been blocked for too long, and when a closing has; pure.

Time that nobody had is not counted: while the process is stopped or the machine sleeps, the watching thread stands
still too, so one look never counts more than ``LONGEST_STEP`` seconds.
"""

from __future__ import annotations

import enum
from math import inf
from typing import Final

__all__ = ["LOOK_SECONDS", "StallWatch", "Verdict"]

LOOK_SECONDS: Final = 0.25
LONGEST_STEP: Final = 2 * LOOK_SECONDS
_NAMED_AFTER: Final = 1.0
_SAVING_SECONDS: Final = 10.0  # what a spool takes at most to write down what it was given


class Verdict(enum.Enum):
    """What to do after a look."""

    NOTHING = enum.auto()
    NAME = enum.auto()  # the loop is blocked: say by whom, once
    FREE = enum.auto()  # and it no longer is
    STALLED = enum.auto()  # blocked for too long
    OVERDUE = enum.auto()  # a closing takes too long


class StallWatch:
    """Counts seconds from look to look."""

    def __init__(self, stall_seconds: float) -> None:
        self._stall = stall_seconds
        self._beats = -1
        self._is_named = False
        self._left = inf
        self.blocked = 0.0

    def allow(self, seconds: float | None) -> None:
        """What is going on may take so long; None: as long as it likes."""
        self._left = inf if seconds is None else seconds

    def look(self, beats: int, elapsed: float, *, is_saving: bool = False) -> Verdict:
        """Judge.

        Args:
            beats: of the loop, so far.
            elapsed: seconds since the last look.
            is_saving: rows are being written down, which has some time of its own.
        """
        elapsed = min(elapsed, LONGEST_STEP)
        self._left -= elapsed
        if self._left < (-_SAVING_SECONDS if is_saving else 0):
            return Verdict.OVERDUE
        if beats != self._beats:
            self._beats = beats
            if self._is_named:
                self._is_named = False
                return Verdict.FREE
            self.blocked = 0.0
            return Verdict.NOTHING
        self.blocked += elapsed
        if self.blocked >= self._stall:
            return Verdict.STALLED
        if self.blocked >= _NAMED_AFTER and not self._is_named:
            self._is_named = True
            return Verdict.NAME
        return Verdict.NOTHING
