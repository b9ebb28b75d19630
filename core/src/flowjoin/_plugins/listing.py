"""What ``flowjoin plugins`` shows: every installed plugin, and on request what is in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from flowjoin._model.errors import PluginError
from flowjoin._plugins.discovery import installed_plugins
from flowjoin._plugins.loader import load_plugins

__all__ = ["PluginListing", "list_plugins"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginListing:
    """One installed plugin.

    Attributes:
        kinds: what it brings (``exporter``, ``enricher``, ``source``, ``lookup``, ``elements``); None
            when it was not loaded, because only code of the plugin knows.
        problem: why it cannot be used; empty when it can, or was not tried.
    """

    name: str
    distribution: str
    version: str
    target: str
    kinds: tuple[str, ...] | None = None
    problem: str = ""


def list_plugins(*, load: bool = False) -> tuple[PluginListing, ...]:
    """Every installed plugin by name; with ``load`` each is imported, and a broken one says why."""
    installed = installed_plugins()
    taken = Counter(plugin.name for plugin in installed)
    listings: list[PluginListing] = []
    for plugin in installed:
        kinds: tuple[str, ...] | None = None
        problem = "another distribution brings the same name" if taken[plugin.name] > 1 else ""
        if load and not problem:
            try:
                kinds = next(iter(load_plugins([plugin.name]))).kinds
            except PluginError as exc:
                problem = exc.problem
        listings.append(
            PluginListing(
                name=plugin.name,
                distribution=plugin.distribution,
                version=plugin.version,
                target=plugin.target,
                kinds=kinds,
                problem=problem,
            )
        )
    return tuple(listings)
