"""Octets that came before those in front of them."""

from __future__ import annotations

import bisect

__all__ = ["SpanBuffer"]


class SpanBuffer:
    """Spans of a sequence of octets, sorted and without overlap: of octets given twice the first to come counts.

    Attributes:
        octets: how many are held.
    """

    __slots__ = ("_spans", "_starts", "octets")

    def __init__(self) -> None:
        self.octets = 0
        self._starts: list[int] = []
        self._spans: list[bytes] = []

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, at: int, octets: memoryview) -> None:
        """Keep a copy of those octets, the first of which stands at position ``at``, that are not held already."""
        index = bisect.bisect_right(self._starts, at)
        if index:
            octets, at = self._behind(index - 1, octets, at)
        while octets:
            is_last = index == len(self._starts)
            piece = octets if is_last else octets[: self._starts[index] - at]
            if piece:
                self._starts.insert(index, at)
                self._spans.insert(index, bytes(piece))  # a slice would hold its whole frame
                self.octets += len(piece)
                index += 1
            if is_last:
                return
            octets, at = self._behind(index, octets, at)
            index += 1

    def take(self, position: int) -> tuple[int, bytes] | None:
        """Take the span in front if it stands at ``position`` or before; gives where it stands, too."""
        if not self._starts or self._starts[0] > position:
            return None
        span = self._spans.pop(0)
        self.octets -= len(span)
        return self._starts.pop(0), span

    def clear(self) -> None:
        self.octets = 0
        self._starts.clear()
        self._spans.clear()

    def _behind(self, index: int, octets: memoryview, at: int) -> tuple[memoryview, int]:
        """What of ``octets`` stands behind the end of a span; all of it when it begins there."""
        end = self._starts[index] + len(self._spans[index])
        return (octets[end - at :], end) if end > at else (octets, at)
