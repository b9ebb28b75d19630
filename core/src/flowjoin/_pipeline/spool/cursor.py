"""Up to where a lane's batches are settled: one line, in two places that are written by turns.

Invariant: after a crash at any moment the cursor is the last one written or the one before it; a batch that was settled
between them is delivered again under the same id.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.index import line_of, value_of

__all__ = ["CURSOR_NAME", "Cursor", "CursorFile", "read_cursor"]

CURSOR_NAME: Final = "cursor"
_SLOT: Final = 1024  # a batch that is being halved has about 20 parts at most


@dataclass(frozen=True, slots=True)
class Cursor:
    """The first batch that is not settled, by segment and ordinal, and which of its rows are left.

    Attributes:
        parts: row ranges that are left of a batch that had to be cut; empty: all of it.
    """

    segment: int = 0
    ordinal: int = 0
    parts: tuple[tuple[int, int], ...] = ()


class CursorFile:
    """Writes the cursor; blocking."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        """Open the file; it is made when it is not there.

        Raises:
            OSError: it cannot be.
        """
        self._disk = disk
        self._path = directory / CURSOR_NAME
        self._descriptor = disk.open_slots(self._path, 2 * _SLOT)
        cursor, number = _newest(disk, directory)
        self.restored = cursor
        self._number = number

    def write(self, cursor: Cursor) -> None:
        """Keep it.

        Raises:
            OSError: it may not be.
        """
        if self._disk.is_removed(self._descriptor):
            fresh = self._disk.open_slots(self._path, 2 * _SLOT)
            self._disk.close(self._descriptor)
            self._descriptor = fresh
        number = self._number + 1
        line = line_of([number, cursor.segment, cursor.ordinal, cursor.parts])
        assert len(line) <= _SLOT, "a batch is cut into few parts"
        self._disk.write_at(self._descriptor, line.ljust(_SLOT), number % 2 * _SLOT)
        self._number = number

    def sync(self) -> None:
        """Wait until it is on the disk."""
        self._disk.sync(self._descriptor)

    def close(self) -> None:
        self._disk.close(self._descriptor)


def read_cursor(disk: Disk, directory: Path) -> Cursor:
    """The cursor of a spool that nobody uses; the very beginning when there is none."""
    return _newest(disk, directory)[0]


def _newest(disk: Disk, directory: Path) -> tuple[Cursor, int]:
    try:
        octets = disk.read(directory / CURSOR_NAME, 0, 2 * _SLOT)
    except FileNotFoundError:
        return Cursor(), 0
    found: list[tuple[int, Cursor]] = []
    for slot in (octets[:_SLOT], octets[_SLOT:]):
        try:
            number, segment, ordinal, parts = value_of(slot.rstrip(b" "))
            cursor = Cursor(int(segment), int(ordinal), tuple((int(a), int(z)) for a, z in parts))
            found.append((int(number), cursor))
        except (ValueError, TypeError):
            continue  # never written, or torn: the other one counts
    number, newest = max(found, key=lambda pair: pair[0], default=(0, Cursor()))
    return newest, number
