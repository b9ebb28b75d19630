"""The hint at the end of a sentence about an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``" (did you mean 'log'?)"``, or nothing where no known name is near."""
    near = difflib.get_close_matches(name, sorted(set(known)), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
