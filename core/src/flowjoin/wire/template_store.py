"""The Templates of one Transport Session.

A Template is known by (session, version, observation domain, Template id); data and Options
Templates share one id space (RFC 7011 section 3.4.1). Changes apply in wire order.

Invariant: no Template is given after its end, whether by withdrawal, redefinition or age; and each
change costs no more than the octets that asked for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, TypeAlias

from flowjoin.wire.budget import Budget
from flowjoin.wire.template_records import CompiledTemplate

__all__ = ["TemplateKey", "TemplateStore"]

TemplateKey: TypeAlias = tuple[int, int, int]  # version, observation domain id, template id

# What a Template costs beside its fields, in fields, so that many tiny ones are bounded too.
_OVERHEAD_FIELDS: Final = 8


class TemplateStore:
    """Templates by key, each with the moment it ends."""

    __slots__ = ("_budget", "_entries", "_ids", "_lifetime", "_limit")

    def __init__(self, budget: Budget, *, limit: int, lifetime: float = math.inf) -> None:
        """Begin empty.

        Args:
            budget: of fields, shared with the other sessions.
            limit: Templates held at once.
            lifetime: seconds from the last definition; infinite over ordered transports, where a
                Template lives as long as its session (RFC 7011 section 8.4).
        """
        self._budget = budget
        self._limit = limit
        self._lifetime = lifetime
        # In the order of their ends: the lifetime is one, and a definition goes to the end.
        self._entries: dict[TemplateKey, tuple[CompiledTemplate, float]] = {}
        self._ids: dict[tuple[int, int, bool], set[int]] = {}  # of each version, domain and kind

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: TemplateKey, now: float) -> CompiledTemplate | None:
        """The Template in force."""
        entry = self.entry(key)
        return entry[0] if entry is not None and now < entry[1] else None

    def entry(self, key: TemplateKey) -> tuple[CompiledTemplate, float] | None:
        """A Template and when it ends, which may have been; good until a Message or ``expire`` changes the store."""
        return self._entries.get(key)

    def define(self, key: TemplateKey, compiled: CompiledTemplate, now: float) -> bool:
        """Put a Template in force from now on, in place of an earlier one; False (and none) without room."""
        self.remove(key)
        if len(self._entries) >= self._limit or not self._budget.take(_cost(compiled)):
            return False
        self._entries[key] = (compiled, now + self._lifetime)
        self._ids.setdefault(_kind(key, compiled), set()).add(key[2])
        return True

    def remove(self, key: TemplateKey) -> None:
        """End one Template, if it is there."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        compiled = entry[0]
        self._budget.give_back(_cost(compiled))
        kind = _kind(key, compiled)
        ids = self._ids[kind]
        ids.remove(key[2])
        if not ids:
            del self._ids[kind]

    def remove_all(self, version: int, observation_domain_id: int, *, is_options: bool) -> None:
        """End all Templates of one kind in one domain."""
        for template_id in tuple(self._ids.get((version, observation_domain_id, is_options), ())):
            self.remove((version, observation_domain_id, template_id))

    def clear(self) -> None:
        """End all Templates."""
        for key in tuple(self._entries):
            self.remove(key)

    def expire(self, now: float) -> int:
        """Forget what has ended; give how many."""
        count = 0
        while self.next_end() <= now:
            self.remove(next(iter(self._entries)))
            count += 1
        return count

    def items(self) -> Iterator[tuple[TemplateKey, CompiledTemplate, float]]:
        """Every Template, the one that ends first at the beginning, with its end."""
        for key, (compiled, end) in self._entries.items():
            yield key, compiled, end

    def next_end(self) -> float:
        """When the next Template ends; infinite without one."""
        for _, end in self._entries.values():
            return end
        return math.inf


def _cost(compiled: CompiledTemplate) -> int:
    return _OVERHEAD_FIELDS + len(compiled.template.fields)


def _kind(key: TemplateKey, compiled: CompiledTemplate) -> tuple[int, int, bool]:
    return key[0], key[1], compiled.template.is_options
