"""What lies in spools, for people: sums, and whether it can be read; blocking, one batch in memory at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.spool.cursor import read_cursor
from flowjoin._pipeline.spool.dead_letters import DEAD_LETTERS
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.index import Index, Piece
from flowjoin._pipeline.spool.row_layout import DamagedError
from flowjoin._pipeline.spool.segments import SegmentFiles, list_segments, list_without_index, load_index, read_batch
from flowjoin._pipeline.spool.shelf import batches_from

__all__ = ["Findings", "Waiting", "examine", "lane_of", "waiting_batches"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A batch that is not settled, or rows of one that was never closed.

    Attributes:
        ranges: rows that are left of a batch that was cut; empty: all.
        is_whole: no line of it is damaged.
    """

    pieces: tuple[Piece, ...]
    rows: int
    ranges: tuple[tuple[int, int], ...] = ()
    is_whole: bool = True

    def read(self, disk: Disk, files: SegmentFiles, index: Index) -> list[FlowBatch]:
        """Its rows.

        Raises:
            DamagedError: they are not what was written.
            OSError: they cannot be read.
        """
        if not self.is_whole:
            raise DamagedError("a line of its index is damaged")
        batch = read_batch(disk, files, self.pieces, index.schemas)
        return [batch.slice(start, stop) for start, stop in self.ranges] if self.ranges else [batch]


@dataclass(slots=True)
class Findings:
    """What is in one directory of segments.

    Attributes:
        rows: that are not settled; those damaged are among them.
        oldest: when the first of them was written, seconds since the Unix epoch; None without rows.
        reasons: of dead letters, with their rows.
        damaged_lines: of indices, that could not be read.
        problems: each damage, as a sentence.
    """

    lane: str
    is_dead_letters: bool
    segments: int = 0
    batches: int = 0
    rows: int = 0
    octets: int = 0
    oldest: float | None = None
    reasons: dict[str, int] = field(default_factory=dict)
    damaged_rows: int = 0
    damaged_lines: int = 0
    problems: list[str] = field(default_factory=list)


def lane_of(directory: Path) -> tuple[str, bool]:
    """The lane's name, and whether it is the directory of its dead letters."""
    is_dead_letters = directory.name == DEAD_LETTERS
    return (directory.parent if is_dead_letters else directory).name, is_dead_letters


def waiting_batches(
    disk: Disk, directory: Path, registry: ElementRegistry
) -> Iterator[tuple[SegmentFiles, Index, list[Waiting]]]:
    """The segments of a directory with what is not settled, oldest first.

    Raises:
        OSError: something cannot be read.
    """
    cursor = read_cursor(disk, directory)
    segments = list_segments(disk, directory)
    for files in segments:
        try:
            index = load_index(disk, files, registry)
        except FileNotFoundError:
            continue  # flowjoin runs, and has delivered it meanwhile
        found: list[Waiting] = []
        for batch in batches_from(index.batches, cursor, files.number):
            is_cut = (files.number, batch.ordinal) == (cursor.segment, cursor.ordinal)
            ranges = cursor.parts if is_cut else ()
            rows = sum(stop - start for start, stop in ranges) if ranges else batch.rows
            found.append(Waiting(batch.pieces, rows, ranges, batch.is_whole))
        if files is segments[-1]:
            found += [Waiting(tuple(pieces), sum(p.rows for p in pieces)) for pieces in index.open_groups.values()]
        yield files, index, found


def examine(directory: Path, registry: ElementRegistry, *, is_thorough: bool) -> Findings:
    """Sum up a directory of segments.

    Args:
        directory: with segments in it.
        registry: of the elements.
        is_thorough: read every batch, not only the indices.

    Raises:
        OSError: something cannot be read.
    """
    disk = Disk()
    findings = Findings(*lane_of(directory))
    without_index = list_without_index(disk, directory)
    for files, index, found in waiting_batches(disk, directory, registry):
        findings.segments += 1
        for path in (files.index, files.data):
            with contextlib.suppress(FileNotFoundError):
                findings.octets += disk.size(path)
        findings.damaged_lines += index.damaged_lines
        if index.damaged_lines:
            findings.problems.append(f"{files.index}: {index.damaged_lines} lines cannot be read")
        for waiting in found:
            _add(findings, waiting)
            if is_thorough:
                try:
                    waiting.read(disk, files, index)
                except DamagedError as exc:
                    if not files.index.exists():
                        break  # flowjoin runs, and has delivered it meanwhile
                    findings.damaged_rows += waiting.rows
                    findings.problems.append(f"{files.data}: {waiting.rows} rows: {exc}")
    for files in list_without_index(disk, directory):
        if files in without_index:  # else flowjoin runs, and has removed the first of the two files
            findings.problems.append(f"{files.data}: its index is not there, so its rows are counted nowhere")
    return findings


def _add(findings: Findings, waiting: Waiting) -> None:
    findings.batches += 1
    findings.rows += waiting.rows
    for piece in waiting.pieces:
        findings.oldest = piece.written_at if findings.oldest is None else min(findings.oldest, piece.written_at)
        if piece.reason:
            findings.reasons[piece.reason] = findings.reasons.get(piece.reason, 0) + piece.rows
