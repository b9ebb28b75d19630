"""What an earlier run left in a lane's spool; blocking, and the index of one segment in memory at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.spool.cursor import Cursor
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.index import Head, Index
from flowjoin._pipeline.spool.row_layout import DamagedError
from flowjoin._pipeline.spool.segments import SegmentFiles, load_index, read_batch, set_aside, size_or_none
from flowjoin._pipeline.spool.shelf import Segment, batches_from
from flowjoin.api._types import Logger

__all__ = ["Restored", "restore"]


@dataclass(slots=True)
class Restored:
    """What was found.

    Attributes:
        segments: with rows that are not settled, oldest first; their batches are not kept here.
        open_rows: of batches that were never closed: they have no id yet and no exporter has seen them.
        open_rows_in: the segment where those are.
        settled: segments of which nothing is left.
        rows: of batches that are not settled whole, and ``open_rows``.
        damaged_rows: known to be lost; not among ``rows``.
        damaged_lines: of indices.
        problems: files that could not be read, as sentences.
    """

    segments: list[Segment] = field(default_factory=list)
    open_rows: list[FlowBatch] = field(default_factory=list)
    open_rows_in: Segment | None = None
    settled: list[SegmentFiles] = field(default_factory=list)
    rows: int = 0
    damaged_rows: int = 0
    damaged_lines: int = 0
    problems: list[str] = field(default_factory=list)

    def tell(self, log: Logger) -> None:
        """Say what was found."""
        if self.rows or self.damaged_rows or self.damaged_lines:
            log.info("spool_restored", rows=self.rows, segments=len(self.segments))
        if self.damaged_rows or self.damaged_lines:
            log.error("spool_damaged", rows=self.damaged_rows, index_lines=self.damaged_lines)
        for problem in self.problems:
            log.error("spool_not_readable", problem=problem)


def restore(
    disk: Disk,
    found: list[SegmentFiles],
    cursor: Cursor,
    registry: ElementRegistry,
    head: Head,
    *,
    now: float,
    wall: float,
) -> Restored:
    """Read the indices of the segments found.

    Args:
        found: oldest first.
        cursor: up to where batches are settled.
        registry: of the batches made.
        head: for a segment whose own first line is damaged.
        now: on the clock by which segments age from here on.
        wall: the same moment, on the one by which they were written; what lies behind it was written just now.
    """
    restored = Restored()
    for files in found:
        is_newest = files is found[-1]
        if files.number < cursor.segment and not is_newest:
            restored.settled.append(files)
            continue
        try:
            index = load_index(disk, files, registry)
            segment = _segment_of(disk, files, index, cursor, head, now, wall)
        except OSError as exc:
            restored.problems.append(f"{files.index}: {exc.strerror or exc}; {_put_away(disk, files)}")
            continue
        restored.damaged_lines += index.damaged_lines
        if is_newest:
            _take_open_rows(disk, segment, index, restored)
        elif index.damaged_lines:
            # The next segment has the rows of batches that were open at its beginning. What is left here and now
            # had its batch's last line, and that is damaged.
            restored.damaged_rows += sum(piece.rows for pieces in index.open_groups.values() for piece in pieces)
        if segment.rows or restored.open_rows_in is segment:
            restored.segments.append(segment)
            restored.rows += segment.rows
        else:
            restored.settled.append(files)
    return restored


def _put_away(disk: Disk, files: SegmentFiles) -> str:
    """What becomes of a segment that cannot be read; under its name the next start would hold it for settled."""
    try:
        set_aside(disk, files)
    except OSError as exc:
        return f"nor can it be renamed: {exc.strerror or exc}"
    return "its files are set aside, with .damaged behind their names"


def _segment_of(
    disk: Disk, files: SegmentFiles, index: Index, cursor: Cursor, head: Head, now: float, wall: float
) -> Segment:
    batches = batches_from(index.batches, cursor, files.number)
    times = [piece.written_at for batch in index.batches for piece in batch.pieces]
    times += [piece.written_at for pieces in index.open_groups.values() for piece in pieces]
    own = index.head or head
    return Segment(
        files.number,
        files,
        own.instance_id,
        own.lane,
        first_at=min(now, now - wall + min(times, default=wall)),
        last_at=min(now, now - wall + max(times, default=wall)),
        # Where there are no data, its batches count as damaged when they are asked for.
        octets=disk.size(files.index) + size_or_none(disk, files.data),
        rows=sum(batch.rows for batch in batches),
        batches=None,
    )


def _take_open_rows(disk: Disk, segment: Segment, index: Index, restored: Restored) -> None:
    assert segment.files is not None
    for pieces in index.open_groups.values():
        for piece in pieces:
            try:
                batch = read_batch(disk, segment.files, [piece], index.schemas)
            except (DamagedError, OSError) as exc:
                restored.damaged_rows += piece.rows
                restored.problems.append(f"{segment.files.data}, octet {piece.offset}: {exc}")
                continue
            if len(batch):
                restored.open_rows.append(batch)
                restored.open_rows_in = segment
                restored.rows += len(batch)
