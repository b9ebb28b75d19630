"""What does not work just now, each under its name, as one sentence of the source's health."""

from __future__ import annotations

from flowjoin.api import PluginContext

__all__ = ["Impairments"]


class Impairments:
    """Problems that come and go by themselves."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._problems: dict[str, str] = {}

    def tell(self, name: str, problem: str) -> None:
        """What is wrong under a name now; nothing, with an empty text."""
        if self._problems.get(name, "") == problem:
            return
        if problem:
            self._problems[name] = problem
        else:
            del self._problems[name]
        self._context.impaired("; ".join(self._problems.values()))
