"""Thins out what repeats: pure, so that its clock is a test's own.

Invariant: every event is either let through or counted, and each count is told once: on the next line of its
key, or by ``drain``.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Key", "RateLimit", "Suppressed"]

Key: TypeAlias = tuple[str, ...]

_MAX_KEYS = 4096  # original exporters are as many as senders make them


@dataclass(slots=True)
class _Entry:
    opened_at: float
    suppressed: int = 0


@dataclass(frozen=True, slots=True)
class Suppressed:
    """Lines of one key that were not written."""

    key: Key
    count: int


class RateLimit:
    """At most one line per key and interval."""

    def __init__(self, interval_seconds: float = 10.0, *, max_keys: int = _MAX_KEYS) -> None:
        self._interval = interval_seconds
        self._max_keys = max_keys
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()  # oldest line first
        self._forgotten = 0

    def admit(self, key: Key, now: float) -> int | None:
        """How many lines of the key were suppressed before this one; None to suppress this one too."""
        entry = self._entries.get(key)
        if entry is not None and now - entry.opened_at < self._interval:
            entry.suppressed += 1
            return None
        if entry is not None:
            del self._entries[key]
        elif len(self._entries) >= self._max_keys:
            _, oldest = self._entries.popitem(last=False)
            self._forgotten += oldest.suppressed
        self._entries[key] = _Entry(now)
        return 0 if entry is None else entry.suppressed

    def drain(self, now: float, *, everything: bool = False) -> list[Suppressed]:
        """Take the counts whose interval is over, so that the end of a burst is told too."""
        told: list[Suppressed] = []
        for key, entry in list(self._entries.items()):
            if not everything and now - entry.opened_at < self._interval:
                break
            del self._entries[key]
            if entry.suppressed:
                told.append(Suppressed(key, entry.suppressed))
        if self._forgotten:
            told.append(Suppressed(("many",), self._forgotten))
            self._forgotten = 0
        return told
