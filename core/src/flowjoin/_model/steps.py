"""Long work in steps of a millisecond or two, so that whoever does it can let others have their turn between two."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

__all__ = ["at_once"]

T = TypeVar("T")


def at_once(steps: Generator[object, None, T]) -> T:
    """What they come to, with nobody's turn between."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result
