"""Makes batches of the size an exporter asked for; pure.

Invariant: every row that went in comes out once, in order within its schema, and no batch is larger than
``records`` rows (or than ``octets``, but for a single row). Open batches together have no more than
``most_octets`` and what came last: memory is bounded, however large a batch may become and however many are open.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from math import inf

from flowjoin._model.flow_batch import FlowBatch, join_slowly
from flowjoin._model.flow_schema import FlowSchema
from flowjoin._model.steps import at_once
from flowjoin.api._types import Batching

__all__ = ["Batcher", "Closed", "Gathered"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows that went into the open batch of that number."""

    group: int
    rows: FlowBatch


@dataclass(slots=True)
class Closed:
    """The open batch of that number is closed.

    It is made one batch when that is asked for, and not before: it takes milliseconds, tens of them for a large one,
    which whoever brought the rows need not wait for.
    """

    group: int
    _pieces: list[FlowBatch]

    @property
    def rows(self) -> int:
        """How many it has."""
        return sum(map(len, self._pieces))

    @property
    def octets(self) -> int:
        """Their estimated size."""
        return sum(piece.octets for piece in self._pieces)

    @property
    def pieces(self) -> list[FlowBatch]:
        """All of them, as they came, or together once they were joined."""
        return self._pieces[:]

    def join(self) -> Generator[None, None, None]:
        """Make them one batch, in steps of a millisecond or two; to be iterated to its end."""
        if len(self._pieces) > 1:
            count = len(self._pieces)
            self._pieces[:count] = [(yield from join_slowly(self._pieces))]

    @property
    def batch(self) -> FlowBatch:
        """All of them, together: at once, if they were joined."""
        at_once(self.join())
        return self._pieces[0]


@dataclass(slots=True)
class _Open:
    group: int
    since: float
    pieces: list[FlowBatch] = field(default_factory=list)
    rows: int = 0
    octets: int = 0


class Batcher:
    """Gathers rows, one open batch per schema."""

    def __init__(self, batching: Batching, most_octets: float = inf) -> None:
        """Gather as ``batching`` says, but close the largest open batch where all have more than ``most_octets``."""
        self._batching = batching
        self._most_octets = most_octets
        self._open: dict[FlowSchema, _Open] = {}  # the oldest first row first
        self._groups = 0  # open batches ever begun

    def change(self, batching: Batching) -> None:
        """Gather by other bounds from now on; a batch that is beyond them already takes no more."""
        self._batching = batching

    @property
    def rows(self) -> int:
        """Rows that wait for their batch to close."""
        return sum(opened.rows for opened in self._open.values())

    @property
    def octets(self) -> int:
        """Estimated size of those rows."""
        return sum(opened.octets for opened in self._open.values())

    @property
    def deadline(self) -> float | None:
        """When the oldest open batch is to be closed; None with none."""
        for opened in self._open.values():
            return opened.since + self._batching.interval
        return None

    def add(self, batch: FlowBatch, now: float) -> list[Closed]:
        """Take rows; gives the batches that they closed."""
        return [step for step in self.feed(batch, now) if isinstance(step, Closed)]

    def feed(self, batch: FlowBatch, now: float) -> list[Gathered | Closed]:
        """Take rows; gives where each went, and the batches that they closed, in order."""
        steps: list[Gathered | Closed] = []
        start = 0
        while start < len(batch):
            opened = self._open.get(batch.schema) or self._begin(batch.schema, now)
            if opened.rows >= self._batching.records:  # the bounds were changed
                steps.append(self._close(batch.schema))
                continue
            stop = min(len(batch), start + self._batching.records - opened.rows)
            piece = batch if (start, stop) == (0, len(batch)) else batch.slice(start, stop)
            most = min(self._batching.octets, self._most_octets)
            if opened.octets + piece.octets > most:
                if opened.rows:
                    steps.append(self._close(batch.schema))
                    continue
                stop = start + max(1, int(len(piece) * most // piece.octets))
                piece = piece.slice(0, stop - start)
            opened.pieces.append(piece)
            steps.append(Gathered(opened.group, piece))
            opened.rows += len(piece)
            opened.octets += piece.octets
            start = stop
            if opened.rows >= self._batching.records or opened.octets >= most:
                steps.append(self._close(batch.schema))
            while self.octets > self._most_octets:
                steps.append(self._close(max(self._open, key=lambda schema: self._open[schema].octets)))
        return steps

    def open_batches(self) -> list[Closed]:
        """All open batches, oldest first, as if they were closed now; who joins one has it joined here, too."""
        return [Closed(opened.group, opened.pieces) for opened in self._open.values()]

    def close_due(self, now: float, *, flush: bool = False) -> Closed | None:
        """Close the oldest open batch if its interval is over, or at once with ``flush``."""
        deadline = self.deadline
        if deadline is None or not (flush or now >= deadline):
            return None
        return self._close(next(iter(self._open)))

    def _begin(self, schema: FlowSchema, now: float) -> _Open:
        self._groups += 1
        opened = self._open[schema] = _Open(self._groups, now)
        return opened

    def _close(self, schema: FlowSchema) -> Closed:
        opened = self._open.pop(schema)
        return Closed(opened.group, opened.pieces)
