"""Writes down what became of rows: dead letters first, then the cursor; then files go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Final

import trio

from flowjoin._pipeline.health import Component
from flowjoin._pipeline.spool.cursor import Cursor, CursorFile
from flowjoin._pipeline.spool.dead_letters import DeadLetter, DeadLetters
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.segments import SegmentFiles, remove_segment
from flowjoin._pipeline.spool.threads import InThread
from flowjoin.api._types import Logger

__all__ = ["Settlement"]

_AGAIN_SECONDS: Final = 2.0


@dataclass(slots=True)
class _Work:
    """What is to be written down; ``_write`` leaves here what it could not, and the problems, each with its event."""

    letters: list[DeadLetter]
    doomed: list[SegmentFiles]
    is_stale: bool
    problems: dict[str, dict[str, object]] = field(default_factory=dict)
    dropped_files: int = 0


class Settlement:
    """What is not written down yet. What the disk does not take is tried again, and shown as the spool's health.

    Attributes:
        letters: rows refused for ever.
        doomed: segments of which nothing is left.
        cursor: up to where all is settled.
    """

    def __init__(
        self,
        cursor_file: CursorFile,
        dead_letters: DeadLetters,
        disk: Disk,
        *,
        run: InThread,
        component: Component,
        log: Logger,
        clock: Callable[[], float],
    ) -> None:
        """Begin where the cursor file is."""
        self.letters: list[DeadLetter] = []
        self.doomed: list[SegmentFiles] = []
        self._cursor = cursor_file.restored
        self._is_stale = False
        self._again_at = -inf
        self._told: frozenset[str] = frozenset()  # events of what is still so
        self._cursor_file = cursor_file
        self._dead_letters = dead_letters
        self._disk = disk
        self._run = run
        self._component = component
        self._log = log
        self._clock = clock
        self._limiter = trio.CapacityLimiter(1)

    @property
    def cursor(self) -> Cursor:
        return self._cursor

    @cursor.setter
    def cursor(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._is_stale = True

    async def persist(self, *, is_last: bool = False) -> bool:
        """Write it down; whether there was anything. After a failure not at once again, but for the last time.

        Cancellation: nothing is forgotten.
        """
        work = _Work(self.letters, self.doomed, self._is_stale)
        if not (work.letters or work.doomed or work.is_stale) or (self._clock() < self._again_at and not is_last):
            return False
        self.letters, self.doomed, self._is_stale = [], [], False
        try:
            await self._run(partial(self._write, work, self._cursor), limiter=self._limiter)
        finally:  # all of it, where it was cancelled before it began
            self.letters[:0], self.doomed[:0] = work.letters, work.doomed
            self._is_stale = self._is_stale or work.is_stale
        self._tell(work)
        return True

    def sync(self) -> None:
        """Wait until the cursor is on the disk; blocking.

        Raises:
            OSError: it may not be.
        """
        self._cursor_file.sync()

    def close(self) -> None:
        """Close the files; dead letters that no disk took are gone."""
        if self.letters:
            self._log.error("dead_letters_not_kept", rows=_rows(self.letters))
        self._dead_letters.close()
        self._cursor_file.close()

    def _write(self, work: _Work, cursor: Cursor) -> None:
        """In a thread."""
        if work.letters:
            try:
                self._dead_letters.write(work.letters)
            except OSError as exc:
                work.problems["dead_letters_not_written"] = {"rows": _rows(work.letters), "problem": str(exc)}
            else:
                work.letters = []  # whatever becomes of older ones, these are kept
                self._make_room_for_letters(work)
        if work.is_stale:
            try:
                self._cursor_file.write(cursor)
                work.is_stale = False
            except OSError as exc:
                work.problems["cursor_not_written"] = {"problem": str(exc)}
        unremoved: list[SegmentFiles] = []
        for files in work.doomed:
            try:
                remove_segment(self._disk, files)
            except OSError as exc:
                unremoved.append(files)
                work.problems["segment_not_removed"] = {"file": str(files.data), "problem": str(exc)}
        work.doomed = unremoved

    def _make_room_for_letters(self, work: _Work) -> None:
        try:
            work.dropped_files = self._dead_letters.make_room()
        except OSError as exc:
            work.problems["segment_not_removed"] = {"file": str(exc.filename), "problem": str(exc)}

    def _tell(self, work: _Work) -> None:
        if work.dropped_files:
            self._log.error("dead_letters_dropped", files=work.dropped_files)
        if "dead_letters_not_written" in work.problems:
            self._drop_letters()
        for event, facts in work.problems.items():
            if event not in self._told:
                self._log.error(event, **facts, consequence="it is tried again")
        self._told = frozenset(work.problems)
        if work.problems:
            self._again_at = self._clock() + _AGAIN_SECONDS
        self._component.impair("; ".join(f"{event}: {facts['problem']}" for event, facts in work.problems.items()))

    def _drop_letters(self) -> None:
        """Those that have no room in memory, oldest first, while the disk does not take them; the newest stays."""
        held, drop = sum(letter.rows.octets for letter in self.letters), 0
        while drop < len(self.letters) - 1 and held > self._dead_letters.max_octets:
            held -= self.letters[drop].rows.octets
            drop += 1
        if drop:
            self._log.error("dead_letters_not_kept", rows=_rows(self.letters[:drop]))
        del self.letters[:drop]


def _rows(letters: Sequence[DeadLetter]) -> int:
    return sum(len(letter.rows) for letter in letters)
