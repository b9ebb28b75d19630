"""The known name that somebody probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

__all__ = ["nearest"]

_LONGEST: Final = 100  # comparing takes time in proportion to the length


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like the given one, whatever its letters' case; None where none is near."""
    by_lower = {each.lower(): each for each in sorted(known)}
    found = difflib.get_close_matches(name[:_LONGEST].lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None
