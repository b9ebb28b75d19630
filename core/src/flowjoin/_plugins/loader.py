"""Imports the plugins that a configuration names, and holds the types they hand over.

stevedore imports, pluggy registers and validates. Whatever is wrong with a plugin is an error that names the
plugin, its distribution and version, before anything is bound. Nothing here lives at module level: each
``load_plugins`` makes its own manager.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import pluggy
from stevedore.named import NamedExtensionManager

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import PluginContractError, PluginLoadError
from flowjoin._model.information_element import InformationElement
from flowjoin._plugins.discovery import GROUP, InstalledPlugin, choose_plugins, did_you_mean, installed_plugins
from flowjoin.api import _hookspecs
from flowjoin.api._types import API_VERSION, EnricherType, ExporterType, LookupType, SourceType

__all__ = ["LoadedPlugin", "Plugins", "load_plugins"]

TypeT = TypeVar("TypeT", ExporterType, EnricherType, SourceType, LookupType)
HandedT = TypeVar("HandedT")

_HOOKS = tuple(name for name in _hookspecs.__all__ if name.startswith("flowjoin_"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlugin:
    """An imported plugin and what it handed over."""

    installed: InstalledPlugin
    elements: tuple[InformationElement, ...]
    lookup_types: tuple[LookupType, ...]
    source_types: tuple[SourceType, ...]
    enricher_types: tuple[EnricherType, ...]
    exporter_types: tuple[ExporterType, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """What it brings, for people: ``("exporter",)``."""
        handed = {
            "exporter": self.exporter_types,
            "enricher": self.enricher_types,
            "source": self.source_types,
            "lookup": self.lookup_types,
            "elements": self.elements,
        }
        return tuple(kind for kind, types_ in handed.items() if types_)


class Plugins:
    """The plugins of one configuration, with one typed method per hook."""

    def __init__(self, loaded: Iterable[LoadedPlugin]) -> None:
        self._loaded = {plugin.installed.name: plugin for plugin in loaded}

    def __iter__(self) -> Iterator[LoadedPlugin]:
        return iter(self._loaded.values())

    def exporter_type(self, name: str) -> ExporterType:
        """The exporter that ``type: <name>`` stands for.

        Raises:
            PluginContractError: the plugin hands over none of that name.
        """
        return self._named(name, "exporter", self._loaded[name].exporter_types)

    def enricher_type(self, name: str) -> EnricherType:
        """As ``exporter_type``, for ``enrichers:``."""
        return self._named(name, "enricher", self._loaded[name].enricher_types)

    def source_type(self, name: str) -> SourceType:
        """As ``exporter_type``, for ``sources:``."""
        return self._named(name, "source", self._loaded[name].source_types)

    def lookup_type(self, name: str) -> LookupType:
        """As ``exporter_type``, for ``lookups:``."""
        return self._named(name, "lookup", self._loaded[name].lookup_types)

    def extend_registry(self, registry: ElementRegistry) -> ElementRegistry:
        """The registry with every plugin's Information Elements.

        Raises:
            PluginContractError: an element's name or number is taken, or an enricher declares an
                element that nobody defines.
        """
        for plugin in self._loaded.values():
            try:
                registry = registry.extended(plugin.elements)
            except ValueError as exc:
                raise _contract_error(plugin.installed, f"cannot add its Information Elements: {exc}") from exc
        names = [element.name for element in registry]
        known = set(names)
        for plugin in self._loaded.values():
            for enricher in plugin.enricher_types:
                for name in (*enricher.adds, *enricher.fills):
                    if name not in known:
                        hint = did_you_mean(name, names)
                        problem = f"enricher {enricher.name!r} declares the unknown element {name!r}{hint}"
                        raise _contract_error(plugin.installed, problem)
        return registry

    def _named(self, name: str, kind: str, handed_over: Sequence[TypeT]) -> TypeT:
        for candidate in handed_over:
            if candidate.name == name:
                return candidate
        plugin = self._loaded[name]
        brings = ", ".join(
            f"{kind_} {type_.name!r}"
            for kind_, types_ in (
                ("exporter", plugin.exporter_types),
                ("enricher", plugin.enricher_types),
                ("source", plugin.source_types),
                ("lookup", plugin.lookup_types),
            )
            for type_ in types_
        )
        problem = f"hands over no {kind} of that name; it brings {brings or 'no type at all'}"
        raise _contract_error(plugin.installed, problem)


def load_plugins(names: Iterable[str]) -> Plugins:
    """Import the plugins of these names, and nothing else.

    Raises:
        PluginLoadError: one is missing, brought twice, or cannot be imported.
        PluginContractError: one breaks the contract of the hooks.
    """
    chosen = choose_plugins(list(dict.fromkeys(names)), installed_plugins())
    manager = pluggy.PluginManager("flowjoin")
    manager.add_hookspecs(_hookspecs)
    objects = {name: _import_plugin(installed) for name, installed in chosen.items()}
    for name, installed in chosen.items():
        _register(manager, objects[name], installed)
    _check_hook_names(manager, chosen, objects)
    return Plugins(_collect(manager, objects[name], installed) for name, installed in chosen.items())


class _OnePlugin(NamedExtensionManager[Any]):  # an entry point may be any object
    """stevedore over the one entry point that was chosen, instead of its list kept on disk."""

    def __init__(self, installed: InstalledPlugin) -> None:
        self._installed = installed
        super().__init__(
            GROUP,
            [installed.name],
            on_load_failure_callback=self._refuse,
            on_missing_entrypoints_callback=None,
        )

    def list_entry_points(self) -> list[importlib.metadata.EntryPoint]:
        return [self._installed.entry_point]

    def _refuse(self, _manager: object, _entry_point: object, cause: BaseException) -> NoReturn:
        raise _load_error(self._installed, cause) from cause


def _import_plugin(installed: InstalledPlugin) -> object:
    try:
        extension: object = _OnePlugin(installed)[installed.name].plugin
    except (AssertionError, SystemExit) as cause:  # these pass stevedore's failure callback
        raise _load_error(installed, cause) from cause
    if extension is None:
        raise _contract_error(installed, f"its entry point {installed.target!r} is None")
    return extension


def _register(manager: pluggy.PluginManager, plugin: object, installed: InstalledPlugin) -> None:
    if manager.is_registered(plugin):
        return  # one module under two entry points: its types are told apart by name
    unmarked = [
        name
        for name in dir(plugin)
        if name in _HOOKS
        and inspect.isfunction(getattr(plugin, name))
        and manager.parse_hookimpl_opts(plugin, name) is None
    ]
    if unmarked:
        raise _contract_error(installed, f"its function {unmarked[0]} lacks the decorator @hookimpl")
    try:
        manager.register(plugin, installed.name)
    except pluggy.PluginValidationError as exc:
        raise _contract_error(installed, " ".join(str(exc).split())) from exc
    if not manager.get_hookcallers(plugin):
        raise _contract_error(installed, f"it implements no hook; there are {', '.join(_HOOKS)}")


def _check_hook_names(
    manager: pluggy.PluginManager, chosen: dict[str, InstalledPlugin], objects: dict[str, object]
) -> None:
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as exc:
        for name, installed in chosen.items():
            for hook in manager.get_hookcallers(objects[name]) or ():
                if not hook.has_spec():
                    problem = f"it implements the unknown hook {hook.name!r}{did_you_mean(hook.name, _HOOKS)}"
                    raise _contract_error(installed, problem) from exc
        raise


def _collect(manager: pluggy.PluginManager, plugin: object, installed: InstalledPlugin) -> LoadedPlugin:
    others = [other for other in manager.get_plugins() if other is not plugin]

    def hand_over(hook: str, kind: type[HandedT]) -> tuple[HandedT, ...]:
        try:
            results: list[object] = manager.subset_hook_caller(hook, others)()
        except Exception as exc:
            raise _contract_error(installed, f"its hook {hook} failed: {type(exc).__name__}: {exc}") from exc
        handed: list[HandedT] = []
        for result in results:
            if not isinstance(result, list | tuple):
                raise _contract_error(installed, f"its hook {hook} gave a {type(result).__name__}, not a list")
            for item in result:
                if not isinstance(item, kind):
                    problem = f"its hook {hook} gave a {type(item).__name__} where a {kind.__name__} belongs"
                    raise _contract_error(installed, problem)
                handed.append(item)
        return tuple(handed)

    loaded = LoadedPlugin(
        installed=installed,
        elements=hand_over("flowjoin_information_elements", InformationElement),
        lookup_types=hand_over("flowjoin_lookup_types", LookupType),
        source_types=hand_over("flowjoin_source_types", SourceType),
        enricher_types=hand_over("flowjoin_enricher_types", EnricherType),
        exporter_types=hand_over("flowjoin_exporter_types", ExporterType),
    )
    for kind in (loaded.lookup_types, loaded.source_types, loaded.enricher_types, loaded.exporter_types):
        _check_types(kind, installed)
    return loaded


def _check_types(
    handed: Sequence[LookupType | SourceType | EnricherType | ExporterType], installed: InstalledPlugin
) -> None:
    names: set[str] = set()
    for type_ in handed:
        what = f"its {type(type_).__name__} {type_.name!r}"
        if type_.name in names:
            raise _contract_error(installed, f"{what} is handed over twice")
        names.add(type_.name)
        version: object = type_.api_version
        if not isinstance(version, int):
            raise _contract_error(installed, f"{what} has the api_version {version!r}; a number belongs there")
        if version != API_VERSION:
            which = "newer" if version > API_VERSION else "older"
            remedy = "flowjoin" if which == "newer" else installed.distribution
            problem = f"{what} was written for the {which} plugin API {version}, this flowjoin has "
            raise _contract_error(installed, f"{problem}{API_VERSION}: upgrade {remedy}")
        parameters = getattr(type_.config, "__dataclass_params__", None)
        if parameters is None or not parameters.frozen:
            raise _contract_error(installed, f"{what} has a config that is no frozen dataclass")
        if not callable(type_.open):
            raise _contract_error(installed, f"{what} has an open that cannot be called")
        if not callable(type_.check):
            raise _contract_error(installed, f"{what} has a check that cannot be called")


def _load_error(installed: InstalledPlugin, cause: BaseException) -> PluginLoadError:
    return PluginLoadError(
        f"cannot be imported: {type(cause).__name__}: {cause}",
        plugin=installed.name,
        distribution=installed.distribution,
        version=installed.version,
    )


def _contract_error(installed: InstalledPlugin, problem: str) -> PluginContractError:
    return PluginContractError(
        problem, plugin=installed.name, distribution=installed.distribution, version=installed.version
    )
