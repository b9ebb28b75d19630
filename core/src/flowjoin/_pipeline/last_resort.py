"""Ends the process when some code keeps Python's global lock for itself, so that not even the watchdog's thread runs.

A timer of the operating system, which the watchdog puts off at each look, runs out then. ``faulthandler``, which needs
no lock, writes every thread's stack on standard error, and the signal ends the process: with no books and no log line,
for these would need the lock. The spool is as it is after any other sudden end: whole.

The timer counts the process's CPU time, not the clock's: while a process is stopped or its machine sleeps nobody is to
blame. So code that keeps the lock and *waits* is not found; a probe of /livez finds it.
"""

from __future__ import annotations

import faulthandler
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["LastResort"]

_SIGNAL: Final = signal.SIGPROF  # what the timer sends; nobody else does, and its default ends a process
_STANDARD_ERROR: Final = 2


class LastResort:
    """The timer."""

    def __init__(self, cpu_seconds: float) -> None:
        """Nothing runs before ``running``."""
        self._cpu_seconds = cpu_seconds
        self._changing = threading.Lock()
        self._is_running = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Until the end of the block the process must not use so much CPU time without ``put_off``."""
        faulthandler.register(_SIGNAL, file=_STANDARD_ERROR, chain=True)
        self._is_running = True
        try:
            self.put_off()
            yield
        finally:
            with self._changing:  # another thread may be about to set the timer
                self._is_running = False
                signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.unregister(_SIGNAL)

    def put_off(self) -> None:
        """Somebody's thread runs: begin anew."""
        with self._changing:
            if self._is_running:
                signal.setitimer(signal.ITIMER_PROF, self._cpu_seconds)
