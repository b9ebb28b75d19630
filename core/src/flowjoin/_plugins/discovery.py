"""Which plugins are installed: read from distributions' metadata, nothing is imported.

stevedore's own list of entry points loses the distribution an entry point came from, drops the second of two
distributions that give one name the same target, and is kept on disk in the home directory, where it goes stale.
So the list is made here and given to stevedore, which imports from it (``loader``).
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from flowjoin._config import antrea
from flowjoin._model.errors import PluginLoadError
from flowjoin._model.nearest import nearest

__all__ = ["GROUP", "InstalledPlugin", "choose_plugins", "did_you_mean", "installed_plugins"]

GROUP = "flowjoin.plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPlugin:
    """One entry point of the group.

    Attributes:
        name: the ``type`` written in the configuration.
        distribution: what ``pip`` knows it by.
        target: module, and attribute where there is one: ``flowjoin_log``.
    """

    name: str
    distribution: str
    version: str
    target: str

    @property
    def entry_point(self) -> importlib.metadata.EntryPoint:
        """What stevedore loads."""
        return importlib.metadata.EntryPoint(self.name, self.target, GROUP)


def installed_plugins() -> tuple[InstalledPlugin, ...]:
    """Every plugin that is installed, by name; the first of two copies of one distribution on the path counts."""
    found: list[InstalledPlugin] = []
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        metadata = distribution.metadata
        if "Name" not in metadata:
            continue  # a half-removed distribution
        name = metadata["Name"]
        if (key := name.lower().replace("_", "-").replace(".", "-")) in seen:
            continue
        seen.add(key)
        found.extend(
            InstalledPlugin(name=entry.name, distribution=name, version=distribution.version, target=entry.value)
            for entry in distribution.entry_points
            if entry.group == GROUP
        )
    return tuple(sorted(found, key=lambda plugin: (plugin.name, plugin.distribution)))


def choose_plugins(names: Sequence[str], installed: Sequence[InstalledPlugin]) -> dict[str, InstalledPlugin]:
    """The installed plugin of each name, in the order given.

    Raises:
        PluginLoadError: a name is not installed, or more than one distribution brings it.
    """
    chosen: dict[str, InstalledPlugin] = {}
    for name in names:
        match [plugin for plugin in installed if plugin.name == name]:
            case [plugin]:
                chosen[name] = plugin
            case []:
                raise PluginLoadError(_what_to_do(name, {plugin.name for plugin in installed}), plugin=name)
            case [first, *_] as several:
                brought = " and ".join(f"{plugin.distribution} {plugin.version}" for plugin in several)
                raise PluginLoadError(
                    f"is brought by {brought}: uninstall all but one",
                    plugin=name,
                    distribution=first.distribution,
                    version=first.version,
                )
    return chosen


def _what_to_do(name: str, installed: Collection[str]) -> str:
    """The nearest name first: nobody should be sent to install what is only a mistake in writing."""
    if name in antrea.TYPES:
        return f"is not installed: pip install {_distribution_of(name)}"
    near = nearest(name, {*installed, *antrea.TYPES})
    if near is None:
        there = ", ".join(sorted(installed)) or "none"
        return (
            f"is not installed; installed: {there} (flowjoin plugins shows more); if there is such a plugin, "
            f"its distribution is as a rule {_distribution_of(name)}"
        )
    is_there = "" if near in installed else f" (then: pip install {_distribution_of(near)})"
    return f"is not installed; did you mean {near!r}?{is_there}"


def _distribution_of(name: str) -> str:
    return f"flowjoin-{name.replace('_', '-')}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What to add to an error about a name: ``" (did you mean 'log'?)"``, or nothing where no known name is near."""
    near = nearest(name, known)
    return "" if near is None else f" (did you mean {near!r}?)"
