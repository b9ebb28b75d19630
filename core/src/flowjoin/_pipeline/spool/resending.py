"""Puts what waits in one spool, or is a dead letter, into another lane's spool, under new ids; blocking.

New ids, because a destination passes over a batch of an id that it has. A segment is copied whole and is on the disk
before its source goes: a crash in between leaves both, and that segment's rows may be delivered twice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.spool.composing import Composer
from flowjoin._pipeline.spool.cursor import read_cursor
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.index import Head
from flowjoin._pipeline.spool.inspecting import waiting_batches
from flowjoin._pipeline.spool.row_layout import DamagedError
from flowjoin._pipeline.spool.segments import (
    SegmentFiles,
    SegmentWriter,
    list_segments,
    load_index,
    next_number,
    read_batch,
    remove_segment,
    remove_unfinished,
    set_aside,
)

__all__ = ["Resent", "resend"]


@dataclass(slots=True)
class Resent:
    """What was done.

    Attributes:
        problems: what could not be, as sentences; its files stay, with ``.damaged`` behind their names.
    """

    batches: int = 0
    rows: int = 0
    damaged_rows: int = 0
    problems: list[str] = field(default_factory=list)


def resend(
    source: Path,
    target: Path,
    *,
    instance_id: str,
    lane: str,
    epoch: int,
    registry: ElementRegistry,
    is_moved: bool,
) -> Resent:
    """Append everything that waits in ``source`` to the spool ``target``.

    Args:
        source: a directory of segments.
        target: another one, which no process uses.
        instance_id: with lane, epoch and a number the id of a batch.
        lane: whose spool ``target`` is.
        epoch: raised for this call.
        registry: of the elements.
        is_moved: remove each segment from the source once it is copied.

    Raises:
        OSError: a file cannot be read or written; what is resent by then is.
    """
    disk = Disk()
    done = Resent()
    if is_moved:
        remove_unfinished(disk, source)
    sequence = 0
    for files, index, found in waiting_batches(disk, source, registry):
        batches: list[FlowBatch] = []
        damaged = 0
        for waiting in found:
            try:
                batches += waiting.read(disk, files, index)
            except DamagedError as exc:
                damaged += waiting.rows
                done.problems.append(f"{files.data}: {waiting.rows} rows: {exc}")
        if batches:
            sequence += _append(
                disk, target, batches, Head(instance_id, lane, 0), epoch, sequence, registry, done.problems
            )
        done.batches += len(batches)
        done.rows += sum(map(len, batches))
        done.damaged_rows += damaged
        if is_moved and (damaged or index.damaged_lines):
            set_aside(disk, files)
        elif is_moved:
            remove_segment(disk, files)
    return done


def _append(
    disk: Disk,
    target: Path,
    batches: list[FlowBatch],
    head: Head,
    epoch: int,
    sequence: int,
    registry: ElementRegistry,
    problems: list[str],
) -> int:
    """One segment of these batches, behind all others; before them what the last one has of open batches.

    Gives how many it has. Rows of open batches count in the last segment only.
    """
    known = list_segments(disk, target)
    number = next_number(disk, target, read_cursor(disk, target))
    first: list[FlowBatch] = []
    if known:
        index = load_index(disk, known[-1], registry)
        for pieces in index.open_groups.values():
            for piece in pieces:
                try:
                    first.append(read_batch(disk, known[-1], [piece], index.schemas))
                except DamagedError as exc:
                    problems.append(f"{known[-1].data}: {piece.rows} rows: {exc}")
    wall = time.time()
    composer = Composer(Head(head.instance_id, head.lane, number), wall)
    for group, batch in enumerate([*first, *batches], 1):
        for _ in composer.add(group, batch, wall):
            pass
        composer.close(group, epoch, sequence + group)
    data, lines = composer.take()
    SegmentWriter(disk, SegmentFiles(target, number), data, lines, True).close()
    return len(first) + len(batches)
