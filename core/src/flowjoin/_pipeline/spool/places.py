"""Where spools lie: ``spool/<exporter's name>`` in the state directory."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from flowjoin._pipeline.spool.dead_letters import DEAD_LETTERS
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.segments import list_segments, list_without_index

__all__ = ["SPOOL", "orphan_spools", "spool_directories"]

SPOOL: Final = "spool"


def spool_directories(directory: Path) -> list[Path]:
    """The directories with segments in a state directory, a spool, or a directory of spools; dead letters too.

    Raises:
        OSError: it cannot be read.
    """
    disk = Disk()
    below = directory / SPOOL if (directory / SPOOL).is_dir() else directory
    found: list[Path] = []
    for place in (below, *sorted(each for each in below.iterdir() if each.is_dir())):
        for candidate in (place, place / DEAD_LETTERS):
            if candidate in found or not candidate.is_dir():
                continue
            if list_segments(disk, candidate) or list_without_index(disk, candidate):
                found.append(candidate)
    return found


def orphan_spools(directory: Path | None, names: Collection[str]) -> list[str]:
    """Names of spools in a state directory that hold rows and belong to no exporter; what is unreadable is none."""
    if directory is None:
        return []
    try:
        found = spool_directories(directory / SPOOL)
    except OSError:
        return []
    owners = {path.parent.name if path.name == DEAD_LETTERS else path.name for path in found}
    return sorted(owners - set(names))
