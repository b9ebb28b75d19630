"""Signals outside the time in which the pipeline listens: before, a wish to stop is kept; after, nothing is left to do.

Without this a SIGTERM that comes while the books are printed would kill the process, and a supervisor would read a
failure from a run that went well.
"""

from __future__ import annotations

import atexit
import signal
from typing import Final

__all__ = ["EarlySignals"]

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_ALL: Final = (*_STOPPING, signal.SIGHUP)


class EarlySignals:
    """Notes what comes while nobody listens."""

    def __init__(self) -> None:
        self._has_stop = False

    def take_stop(self) -> bool:
        """Whether there was a wish to stop since it was last asked for: passed on twice, it would be a second one."""
        has_stop, self._has_stop = self._has_stop, False
        return has_stop

    def note(self) -> None:
        """Handle all of them to the end of the process: whoever listens meanwhile gives them back to this.

        Python's own end takes its handlers away, so that at last they are ignored.
        """
        for number in _ALL:
            signal.signal(number, self._noted)
        atexit.register(_ignore_all)

    def _noted(self, number: int, _frame: object) -> None:
        self._has_stop = self._has_stop or number in _STOPPING


def _ignore_all() -> None:
    for number in _ALL:
        signal.signal(number, signal.SIG_IGN)
