"""How long to wait before trying again."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Backoff"]


class Backoff:
    """Doubles from ``first`` to ``limit`` seconds; the upper half of each wait is random.

    Jitter keeps many lanes, and many flowjoins, from calling a destination that comes back all at once.
    """

    def __init__(self, random: Callable[[], float], *, first: float = 1.0, limit: float = 30.0) -> None:
        """Take a source of numbers from 0 up to 1."""
        self._random = random
        self._first = first
        self._limit = limit
        self._next = first

    def next(self) -> float:
        """The wait after one more failure, in seconds."""
        ceiling = self._next
        self._next = min(self._limit, ceiling * 2)
        return ceiling * (0.5 + self._random() / 2)

    def reset(self) -> None:
        """Something worked."""
        self._next = self._first
