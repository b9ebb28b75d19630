"""What was sent in the last seconds, for the case that the collector's system took it and the collector did not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from flowjoin_ipfix._rows import Unit

__all__ = ["ResendBuffer"]


class ResendBuffer:
    """Units in the order they were acknowledged, bounded by time and size.

    Time passes by acknowledgements only: what is older than the interval when another one comes was sent to a
    collector that lives, and is forgotten. A collector that went away silently may have done so right after the last.
    Once a connection is lost, what it leaves is owed: no time passes until another connection has carried it, however
    many come to nothing in between.
    """

    def __init__(self, *, interval: float, max_octets: int) -> None:
        self._interval = interval
        self._max_octets = max_octets
        self._units: deque[tuple[float, Unit]] = deque()
        self._octets = 0
        self._is_owed = False

    @property
    def units(self) -> list[Unit]:
        """What another connection must carry."""
        return [unit for _, unit in self._units]

    def acknowledged(self, units: Iterable[Unit], now: float) -> int:
        """Take what the collector's system has just acknowledged; gives the rows given up for want of room."""
        self.forget_before(now - self._interval)
        if self._interval <= 0:
            return 0
        for unit in units:
            self._units.append((now, unit))
            self._octets += len(unit.octets)
        rows = 0
        while self._octets > self._max_octets:
            rows += self._pop()
        return rows

    def lost(self, closed_at: float | None) -> None:
        """The connection is no more; the collector lived until that moment, if one is known."""
        if not self._is_owed and closed_at is not None:
            self.forget_before(closed_at - self._interval)
        self._is_owed = bool(self._units)

    def forget_before(self, moment: float) -> None:
        """Drop what was acknowledged earlier."""
        while self._units and self._units[0][0] < moment:
            self._pop()

    def clear(self) -> None:
        """Drop everything: it has been carried."""
        self._is_owed = False
        self._units.clear()
        self._octets = 0

    def _pop(self) -> int:
        _, unit = self._units.popleft()
        self._octets -= len(unit.octets)
        return unit.rows
