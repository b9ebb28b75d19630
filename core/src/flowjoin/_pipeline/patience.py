"""When a plugin gets nowhere: how long it has been at the same thing without a sign of progress; pure.

Time that nobody had is not counted: while the process is stopped, or its loop blocked by another plugin, a look comes
late, and one look never counts more than ``LONGEST_STEP`` seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

__all__ = ["LOOK_SECONDS", "Patience"]

LOOK_SECONDS: Final = 1.0
LONGEST_STEP: Final = 2 * LOOK_SECONDS


class Patience:
    """Counts seconds from look to look.

    Attributes:
        seconds: what is under way may take so long without progress.
    """

    def __init__(self, seconds: float = inf) -> None:
        self.seconds = seconds
        self._doing = ""  # nothing that must end
        self._waited = 0.0
        self._steps = self._seen = 0

    def begin(self, doing: str) -> None:
        """The plugin begins what must end; a noun says what."""
        self._doing = doing
        self._waited = 0.0

    def end(self) -> None:
        """It ended; what the plugin does now may take for ever."""
        self._doing = ""

    @contextmanager
    def during(self, doing: str) -> Iterator[None]:
        """From ``begin`` to ``end``."""
        self.begin(doing)
        try:
            yield
        finally:
            self.end()

    def progressed(self) -> None:
        """It is getting on; may be called in any thread."""
        self._steps += 1

    def look(self, elapsed: float) -> str:
        """What has just been given up as a hang; empty if nothing, and at every later look at the same.

        Args:
            elapsed: seconds since the last look.
        """
        if not self._doing:
            return ""
        if self._steps != self._seen:
            self._seen = self._steps
            self._waited = 0.0
            return ""
        before = self._waited
        self._waited += min(elapsed, LONGEST_STEP)
        return self._doing if before < self.seconds <= self._waited else ""
