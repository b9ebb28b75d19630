"""Early data: whole Data Sets that wait for their Template.

Over UDP a Template may come after its data (reordering, or a collector that started later); over
ordered transports a missing Template is final. Sets wait as octets, bounded in size and age, together
with the header of their Message, whose times and domain hold for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flowjoin.wire.budget import Budget
from flowjoin.wire.events import MessageHeader
from flowjoin.wire.template_store import TemplateKey

__all__ = ["HeldSet", "HeldSets"]

# What a held Set costs beside its octets (objects, key, header), so that tiny Sets are bounded too.
_OVERHEAD_OCTETS = 512


@dataclass(frozen=True, slots=True)
class HeldSet:
    """One Data Set.

    Attributes:
        header: of the Message it came in.
        octets: of the Set, without its header.
        offset: where they were in the Message.
        until: when they are too old.
    """

    header: MessageHeader
    octets: bytes
    offset: int
    until: float

    @property
    def cost(self) -> int:
        return len(self.octets) + _OVERHEAD_OCTETS


class HeldSets:
    """The early data of one session."""

    __slots__ = ("_budget", "_held", "_limit", "_sets", "count")

    def __init__(self, budget: Budget, *, limit: int) -> None:
        self._budget = budget
        self._limit = limit
        self._held = 0
        self._sets: dict[TemplateKey, list[HeldSet]] = {}
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def hold(self, key: TemplateKey, held: HeldSet) -> bool:
        """Keep a Set; False if there is no room (what came first stays)."""
        cost = held.cost
        if self._held + cost > self._limit or not self._budget.take(cost):
            return False
        self._held += cost
        self.count += 1
        self._sets.setdefault(key, []).append(held)
        return True

    def take(self, key: TemplateKey, now: float) -> tuple[Sequence[HeldSet], int]:
        """The Sets that waited for this Template, oldest first, and how many were too old."""
        waiting = self._sets.pop(key, ())
        cost = sum(held.cost for held in waiting)
        self._budget.give_back(cost)
        self._held -= cost
        self.count -= len(waiting)
        fresh = [held for held in waiting if now < held.until]
        return fresh, len(waiting) - len(fresh)

    def expire(self, now: float) -> int:
        """Forget what is too old; give how many Sets."""
        before = self.count
        for key in list(self._sets):
            for held in self.take(key, now)[0]:
                self.hold(key, held)
        return before - self.count

    def next_end(self) -> float:
        """When the next Set is too old; infinite without one."""
        return min((held.until for waiting in self._sets.values() for held in waiting), default=math.inf)
