"""When a plain flow's record begins and ends, in milliseconds since the Unix epoch.

Of the elements that a record has, the one that can tell the most is believed; an element whose value is 0
tells nothing. Invariant: the end is never before the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flowjoin._kernel.rows import Row
from flowjoin.wire.events import MessageHeader

__all__ = ["PlainTimes"]

_LATEST: Final = 2**64 - 1

# The suffixes of flowStart… and flowEnd…, best first; the number divides (or, negative, multiplies) to milliseconds.
_ABSOLUTE: Final = (("Nanoseconds", 1_000_000), ("Microseconds", 1_000), ("Milliseconds", 1), ("Seconds", -1_000))
_UPTIME: Final = "SysUpTime"
_BEFORE_EXPORT: Final = "DeltaMicroseconds"
_INIT_TIME: Final = "systemInitTimeMilliseconds"


class PlainTimes:
    """Reads the times of one Template's records.

    Attributes:
        absent: which of ``flowStartMilliseconds`` and ``flowEndMilliseconds`` nothing in the Template tells.
        absent_with_init_time: those of them that are absent even where an options record told when the original
            exporter started.
    """

    def __init__(self, moved: Mapping[str, int]) -> None:
        """Compile, from where the records have which elements."""
        self._init_at = moved.get(_INIT_TIME)
        self._start = _Edge("flowStart", moved)
        self._end = _Edge("flowEnd", moved)
        self.absent = self._absent(has_init_time=self._init_at is not None)
        self.absent_with_init_time = self._absent(has_init_time=True)

    def _absent(self, *, has_init_time: bool) -> tuple[str, ...]:
        edges = (self._start, self._end)
        return tuple(f"{edge.name}Milliseconds" for edge in edges if not edge.is_told(has_init_time=has_init_time))

    def start(self, record: Row, header: MessageHeader, init_time: int = 0) -> int | None:
        """The start alone; None if the record does not tell it."""
        return self._start.read(record, header, self._init_time(record, init_time))

    def end(self, record: Row, header: MessageHeader, init_time: int = 0) -> int | None:
        """The end alone; None if the record does not tell it."""
        return self._end.read(record, header, self._init_time(record, init_time))

    def _init_time(self, record: Row, told: int) -> int:
        """When the original exporter started: what the record says wins; 0 if nothing is known."""
        own: int = 0 if self._init_at is None else record[self._init_at]
        return own if own > 0 else told

    def read(self, record: Row, header: MessageHeader, init_time: int = 0) -> tuple[int, int, bool]:
        """Start, end, and whether the record said that it ended before it began (both are the end then).

        What the record does not tell is the time of its export, but for that a flow ends after its start.

        Args:
            record: decoded.
            header: of its Message.
            init_time: when the original exporter started, as an options record said; 0 if none did.
        """
        start, end = self.start(record, header, init_time), self.end(record, header, init_time)
        exported = header.export_time * 1000
        if start is None:
            end = exported if end is None else end
            return min(end, exported), end, False
        if end is None:
            return start, max(start, exported), False
        if start > end:
            return end, end, True
        return start, end, False


class _Edge:
    """The start or the end."""

    __slots__ = ("_absolute", "_before_export_at", "_uptime_at", "name")

    def __init__(self, name: str, moved: Mapping[str, int]) -> None:
        self.name = name
        self._absolute = [(moved[name + suffix], scale) for suffix, scale in _ABSOLUTE if name + suffix in moved]
        self._uptime_at = moved.get(name + _UPTIME)
        self._before_export_at = moved.get(name + _BEFORE_EXPORT)

    def is_told(self, *, has_init_time: bool) -> bool:
        """Whether the Template has an element to tell it."""
        with_uptime = has_init_time and self._uptime_at is not None
        return bool(self._absolute) or with_uptime or self._before_export_at is not None

    def read(self, record: Row, header: MessageHeader, init_time: int) -> int | None:
        for at, scale in self._absolute:
            value: int = record[at]
            if value > 0:
                return min(value // scale if scale > 0 else value * -scale, _LATEST)
        if init_time > 0 and self._uptime_at is not None:
            return min(init_time + int(record[self._uptime_at]), _LATEST)
        if self._before_export_at is not None:  # an offset of 0 is one
            return max(header.export_time * 1_000_000 - int(record[self._before_export_at]), 0) // 1000
        return None
