"""How long the oldest row that waits in a lane has been there; pure.

Rows leave a lane in the order in which they came, so a moment and the count of rows up to then say which row came when.
Invariant: at most so many moments are kept, and the lag is never understated; an outage of days makes the moments
coarser, not more.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["LaneLag"]

_MOST_MOMENTS: Final = 512
_FINEST_SECONDS: Final = 0.05


class LaneLag:
    """Remembers when rows came."""

    def __init__(self) -> None:
        self._moments: deque[tuple[int, float]] = deque()  # rows so far, and since when the latest of them came
        self._grain = _FINEST_SECONDS

    def came(self, rows: int, now: float) -> None:
        """Rows came; together they are so many now."""
        if self._moments and now - self._moments[-1][1] < self._grain:
            self._moments[-1] = (rows, self._moments[-1][1])
            return
        self._moments.append((rows, now))
        if len(self._moments) > _MOST_MOMENTS:
            self._coarsen()

    def seconds(self, left: int, now: float) -> float:
        """How long the oldest row waits when so many have left the lane."""
        while self._moments and self._moments[0][0] <= left:
            self._moments.popleft()
        if not self._moments:
            self._grain = _FINEST_SECONDS
            return 0.0
        return max(0.0, now - self._moments[0][1])

    def _coarsen(self) -> None:
        pairs = list(self._moments)
        # The later count with the earlier time, so that no row seems younger than it is.
        self._moments = deque((later[0], earlier[1]) for earlier, later in zip(pairs[::2], pairs[1::2], strict=False))
        if len(pairs) % 2:
            self._moments.append(pairs[-1])
        self._grain *= 2
