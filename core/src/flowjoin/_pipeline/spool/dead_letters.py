"""Rows that a destination will never take, kept as segments of their own: bounded, each piece with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.spool.composing import Composer
from flowjoin._pipeline.spool.cursor import Cursor
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.index import Head
from flowjoin._pipeline.spool.segments import (
    SegmentFiles,
    SegmentWriter,
    list_segments,
    next_number,
    remove_segment,
    size_or_none,
)

__all__ = ["DEAD_LETTERS", "DeadLetter", "DeadLetters"]

DEAD_LETTERS: Final = "dead-letters"  # beside a lane's segments
_SEGMENTS: Final = 8
_REASON_CHARACTERS: Final = 2_000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Rows, the batch they came in, and why they were refused."""

    rows: FlowBatch
    epoch: int
    sequence: int
    reason: str


class DeadLetters:
    """Appends dead letters; blocking."""

    def __init__(self, disk: Disk, directory: Path, max_octets: int, head: Head, wall: Callable[[], float]) -> None:
        """Remember the settings; nothing is opened."""
        self._disk = disk
        self._directory = directory
        self.max_octets = max_octets
        self._head = head
        self._wall = wall
        self._composer: Composer | None = None
        self._writer: SegmentWriter | None = None
        self._groups = 0

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Keep them, on the disk.

        Raises:
            OSError: they are not kept.
        """
        wall = self._wall()
        composer = self._composer if self._writer is not None else None
        if composer is None or composer.octets >= self.max_octets // _SEGMENTS:
            self.close()
            composer = None
        files = None
        if composer is None:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            files = SegmentFiles(self._directory, next_number(self._disk, self._directory, Cursor()))
            composer = Composer(Head(self._head.instance_id, self._head.lane, files.number), wall)
        for letter in letters:
            self._groups += 1
            for _ in composer.add(self._groups, letter.rows, wall, reason=letter.reason[-_REASON_CHARACTERS:]):
                pass
            composer.close(self._groups, letter.epoch, letter.sequence)
        data, lines = composer.take()
        try:
            if files is not None:
                self._writer = SegmentWriter(self._disk, files, data, lines, True)
            else:
                assert self._writer is not None, "an open composer has a writer"
                self._writer.append(data, lines, True)
        except OSError:
            self.close()
            raise
        self._composer = composer

    def close(self) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()
        self._writer = self._composer = None

    def make_room(self) -> int:
        """Remove the oldest files beyond the bound, but never the newest; gives how many.

        Raises:
            OSError: one cannot be removed.
        """
        known = list_segments(self._disk, self._directory)
        sizes = [size_or_none(self._disk, files.data) for files in known]
        gone = 0
        while len(known) - gone > 1 and sum(sizes[gone:]) > self.max_octets:
            remove_segment(self._disk, known[gone])
            gone += 1
        return gone
