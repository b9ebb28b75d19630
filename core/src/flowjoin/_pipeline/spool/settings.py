"""What a spool is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["SpoolSettings"]

_SEGMENTS: Final = 16  # so that dropping the oldest one costs a small share


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSettings:
    """Where a lane's spool lies, and its bounds.

    Attributes:
        directory: of this lane alone; it is there.
        max_octets: on the disk; beyond, the oldest segment goes.
        max_age: seconds; older segments go.
        sync: ``batch``, ``never``, or the seconds between two.
        memory_octets: of batches in memory: those on their way to the disk, and the read cache.
        largest_segment: octets after which a segment takes no more, however large all may be.
    """

    directory: Path
    max_octets: int
    max_age: float
    sync: str | float
    memory_octets: int
    largest_segment: int = 32 * 1024 * 1024

    @property
    def segment_octets(self) -> int:
        """A segment that has so many is full."""
        return min(self.largest_segment, self.max_octets // _SEGMENTS)

    @property
    def segment_age(self) -> float:
        """Seconds after which a segment takes no more, so that age goes by small steps."""
        return self.max_age / _SEGMENTS

    @property
    def is_synced(self) -> bool:
        """Whether each write waits for the disk."""
        return self.sync == "batch"

    @property
    def dead_letter_octets(self) -> int:
        """Bound of the dead letters; beyond, the oldest go."""
        return max(1024 * 1024, self.max_octets // _SEGMENTS)
