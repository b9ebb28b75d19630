"""Writes down what became of rows: dead letters first, then the cursor; then files go."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import trio

from flowjoin._pipeline.spool.cursor import Cursor, CursorFile
from flowjoin._pipeline.spool.dead_letters import DeadLetter, DeadLetters
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.segments import SegmentFiles, remove_segment
from flowjoin._pipeline.spool.threads import InThread
from flowjoin.api._types import Logger

__all__ = ["Settlement"]

_Problem: TypeAlias = tuple[str, dict[str, object]]


class Settlement:
    """What is not written down yet.

    Attributes:
        letters: rows refused for ever.
        doomed: segments of which nothing is left.
        cursor: up to where all is settled.
    """

    def __init__(
        self, cursor_file: CursorFile, dead_letters: DeadLetters, disk: Disk, *, run: InThread, log: Logger
    ) -> None:
        """Begin where the cursor file is."""
        self.letters: list[DeadLetter] = []
        self.doomed: list[SegmentFiles] = []
        self._cursor = cursor_file.restored
        self._is_stale = False
        self._cursor_file = cursor_file
        self._dead_letters = dead_letters
        self._disk = disk
        self._run = run
        self._log = log
        self._limiter = trio.CapacityLimiter(1)

    @property
    def cursor(self) -> Cursor:
        return self._cursor

    @cursor.setter
    def cursor(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._is_stale = True

    async def persist(self) -> bool:
        """Write it down; whether there was anything.

        Cancellation: nothing is forgotten.
        """
        letters, doomed, is_stale = self.letters, self.doomed, self._is_stale
        if not (letters or doomed or is_stale):
            return False
        self.letters, self.doomed, self._is_stale = [], [], False
        try:
            problems = await self._run(partial(self._write, letters, self._cursor, doomed), limiter=self._limiter)
        except trio.Cancelled:  # before it began
            self.letters[:0], self.doomed[:0], self._is_stale = letters, doomed, True
            raise
        for event, facts in problems:
            self._log.error(event, **facts)
        return True

    def sync(self) -> None:
        """Wait until the cursor is on the disk; blocking.

        Raises:
            OSError: it may not be.
        """
        self._cursor_file.sync()

    def close(self) -> None:
        """Close the files."""
        self._dead_letters.close()
        self._cursor_file.close()

    def _write(self, letters: list[DeadLetter], cursor: Cursor, doomed: list[SegmentFiles]) -> list[_Problem]:
        """In a thread; gives what went wrong."""
        problems: list[_Problem] = []
        if letters:
            try:
                gone = self._dead_letters.write(letters)
                if gone:
                    problems.append(("dead_letters_dropped", {"files": gone}))
            except OSError as exc:
                rows = sum(len(letter.rows) for letter in letters)
                problems.append(("dead_letters_not_kept", {"rows": rows, "problem": str(exc)}))
        try:
            self._cursor_file.write(cursor)
        except OSError as exc:
            problems.append(("cursor_not_written", {"problem": str(exc)}))
        for files in doomed:
            try:
                remove_segment(self._disk, files)
            except OSError as exc:
                problems.append(("segment_not_removed", {"file": str(files.data), "problem": str(exc)}))
        return problems
