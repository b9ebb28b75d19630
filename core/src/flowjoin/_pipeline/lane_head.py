"""The batch that a lane is delivering, and how its deliveries ended; pure.

A batch that failed for an unknown reason is cut into parts: down to the row, the first part first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from flowjoin._model.flow_batch import FlowBatch

__all__ = ["Head", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows ``start`` to ``stop`` of a closed batch: all of it, unless it had to be cut."""

    batch: FlowBatch
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def is_whole(self) -> bool:
        return len(self) == len(self.batch)

    @property
    def id(self) -> str:
        """The batch's id, with the range of rows where it is a cut."""
        return self.batch.id if self.is_whole else f"{self.batch.id}[{self.start}:{self.stop}]"

    def rows(self) -> FlowBatch:
        """What ``export`` gets."""
        return self.batch if self.is_whole else self.batch.slice(self.start, self.stop).with_id(self.id)

    def halves(self) -> tuple[Part, Part]:
        """The first half and the second."""
        middle = (self.start + self.stop) // 2
        return Part(self.batch, self.start, middle), Part(self.batch, middle, self.stop)


class Head:
    """At most one batch, in one part or several.

    Attributes:
        is_exporting: the first part is with the exporter.
        octets: of the batch, estimated.
        delivered: rows that the destination accepted.
        dead_lettered: rows that it will never accept, or that fail even alone.
        batches: batches that were settled, in one part or several.
        failures: calls of ``export`` that failed and left their rows unsettled.
        retried: rows of those calls.
    """

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self.is_exporting = False
        self.octets = 0
        self.delivered = self.dead_lettered = self.batches = self.failures = self.retried = 0

    @property
    def is_empty(self) -> bool:
        return not self._parts

    @property
    def rows(self) -> int:
        """Rows that are not settled."""
        return sum(map(len, self._parts))

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Which rows those are, part by part."""
        return tuple((part.start, part.stop) for part in self._parts)

    def load(self, batch: FlowBatch, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Take the next batch, or what is left of it."""
        assert self.is_empty, "one batch at a time"
        self._parts.extend(Part(batch, start, stop) for start, stop in ranges)
        if not self._parts:
            self._parts.append(Part(batch, 0, len(batch)))
        self.octets = batch.octets

    def begin(self) -> Part:
        """The next part to export; it stays the next until it is settled."""
        assert not self.is_exporting, "one call of export at a time"
        self.is_exporting = True
        return self._parts[0]

    @property
    def first(self) -> Part:
        """The part that is next, or being exported."""
        return self._parts[0]

    @property
    def current(self) -> Part:
        """The part that is being exported."""
        assert self.is_exporting
        return self._parts[0]

    def settle(self, refused: Collection[int] = ()) -> None:
        """The part is done: these rows of it are dead letters, the others delivered."""
        part = self._parts[0]
        self.delivered += len(part) - len(refused)
        self.dead_lettered += len(refused)
        self._leave_part()

    def keep(self, *, was_tried: bool = True) -> None:
        """The part failed, or was not even tried, and stays the next."""
        assert self.is_exporting
        self.is_exporting = False
        if was_tried:
            self.failures += 1
            self.retried += len(self._parts[0])

    def cut(self) -> None:
        """The part, which failed, becomes its two halves."""
        assert not self.is_exporting
        self._parts.extendleft(reversed(self._parts.popleft().halves()))

    def bury(self) -> None:
        """The part, which failed, is dead letters."""
        assert not self.is_exporting
        self.dead_lettered += len(self._parts[0])
        self._leave_part()

    def left(self) -> list[FlowBatch]:
        """The rows that are not settled, part by part."""
        return [part.rows() for part in self._parts]

    def give_up(self) -> int:
        """Forget the batch; gives how many of its rows were not settled."""
        assert not self.is_exporting
        rows = self.rows
        self._parts.clear()
        self.octets = 0
        return rows

    def _leave_part(self) -> None:
        self.is_exporting = False
        self._parts.popleft()
        if not self._parts:
            self.batches += 1
            self.octets = 0
