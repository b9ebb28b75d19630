"""Look-ups that may be away for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowjoin.api import Counter, PluginError

__all__ = ["Patient"]


class Patient:
    """Answers None while its look-up is not open, as if nothing were known.

    A connection without a Pod is asked about again, and so is a rule; begun anew instead, the source would tell all
    that it has told before.
    """

    def __init__(self, lookup: object, unanswered: Counter) -> None:
        self._lookup = lookup
        self._unanswered = unanswered

    def __getattr__(self, name: str) -> Callable[..., Any]:
        ask = getattr(self._lookup, name)

        def asked(*arguments: Any, **named: Any) -> Any:  # any look-up's method
            try:
                return ask(*arguments, **named)
            except PluginError:
                self._unanswered.inc()
                return None

        return asked
