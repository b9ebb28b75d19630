"""Text that may hold anything, made fit for a terminal."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """The text with control characters, surrogates and direction marks as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
