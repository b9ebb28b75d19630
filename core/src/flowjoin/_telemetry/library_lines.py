"""What libraries say through the standard ``logging``, as lines of our own log.

Without a handler Python writes their warnings to standard error as they are, in the middle of lines that a program
reads as JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from flowjoin._telemetry.logs import Logs

__all__ = ["libraries_told"]


class _Lines(logging.Handler):
    """An error is a warning of ours, for whoever uses the library goes on; what it warns of, its user says better."""

    def __init__(self, logs: Logs) -> None:
        super().__init__(logging.WARNING)
        self._log = logs.logger(component="libraries")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # the arguments do not fit the text
            text = str(record.msg)
        tell = self._log.warning if record.levelno >= logging.ERROR else self._log.debug
        tell("library_said", name=record.name, text=text)


@contextmanager
def libraries_told(logs: Logs) -> Iterator[None]:
    """While it lasts, libraries' lines go to the log."""
    root, lines = logging.getLogger(), _Lines(logs)
    root.addHandler(lines)
    try:
        yield
    finally:
        root.removeHandler(lines)
