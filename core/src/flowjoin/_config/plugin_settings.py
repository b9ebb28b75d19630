"""Every entry of the configuration with the type its plugin hands over and its settings bound.

The plugins come through a protocol, so that this stays free of how they are found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from flowjoin._config.binder import bind_settings
from flowjoin._config.fields import Settings, fields_of
from flowjoin._config.load import LoadedConfig, Notice, resolve_elements
from flowjoin._config.model import Config, ExporterEntry, PluginEntry
from flowjoin._config.secrets import unread_secrets
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import ConfigError, PluginContractError, PluginError, said_by
from flowjoin._model.information_element import InformationElement
from flowjoin.api._types import EnricherType, ExporterType, LookupType, SourceType

__all__ = ["BoundConfig", "BoundPlugin", "PluginTypes", "bind_plugins", "placed"]

EntryT = TypeVar("EntryT", PluginEntry, ExporterEntry)
TypeT = TypeVar("TypeT", ExporterType, EnricherType, SourceType, LookupType)


class PluginTypes(Protocol):
    """The loaded plugins; every method raises PluginError where one does not keep its word."""

    def exporter_type(self, name: str) -> ExporterType: ...
    def enricher_type(self, name: str) -> EnricherType: ...
    def source_type(self, name: str) -> SourceType: ...
    def lookup_type(self, name: str) -> LookupType: ...
    def extend_registry(self, registry: ElementRegistry) -> ElementRegistry: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPlugin(Generic[EntryT, TypeT]):
    """One entry, ready to be opened.

    Attributes:
        entry: as configured: type, name, and for an exporter its spool.
        type: what the plugin handed over.
        settings: an instance of ``type.config``.
    """

    entry: EntryT
    type: TypeT
    settings: Any  # of the plugin's own class


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundConfig:
    """A configuration whose every part is known to be usable, as far as that shows without opening anything.

    Attributes:
        registry: all elements: built in, of plugins, and defined by ``recordContents.elements``.
        elements: those that ``recordContents.elements`` adds to flows, in order.
        remarks: what the plugins have to say about their settings.
    """

    config: Config
    registry: ElementRegistry
    elements: tuple[InformationElement, ...]
    sources: tuple[BoundPlugin[PluginEntry, SourceType], ...]
    enrichers: tuple[BoundPlugin[PluginEntry, EnricherType], ...]
    lookups: tuple[BoundPlugin[PluginEntry, LookupType], ...]
    exporters: tuple[BoundPlugin[ExporterEntry, ExporterType], ...]
    remarks: tuple[Notice, ...] = ()


def bind_plugins(
    loaded: LoadedConfig, load: Callable[[Iterable[str]], PluginTypes], registry: ElementRegistry
) -> BoundConfig:
    """Load the plugins that the configuration names, and bind each entry's settings.

    Args:
        loaded: the configuration.
        load: imports the plugins of these names and nothing else.
        registry: the built-in elements.

    Raises:
        ConfigError: an entry's settings or an element cannot be used.
        PluginError: a plugin is missing or breaks its contract; says where the configuration names it.
    """
    config = loaded.config
    entries: list[PluginEntry | ExporterEntry] = []
    for several in (config.sources, config.enrichers, config.lookups, config.exporters):
        entries.extend(several)
    try:
        types = load(dict.fromkeys(entry.type for entry in entries))
        registry = types.extend_registry(registry)
    except PluginError as exc:
        raise _named_at(exc, next((entry for entry in entries if entry.type == exc.plugin), None)) from exc
    elements = resolve_elements(loaded, registry)
    known = {element.name for element in registry}
    registry = registry.extended(element for element in elements if element.name not in known)
    sources = tuple(_bound(config.sources, types.source_type))
    enrichers = tuple(_bound(config.enrichers, types.enricher_type))
    lookups = tuple(_bound(config.lookups, types.lookup_type))
    exporters = tuple(_bound(config.exporters, types.exporter_type))
    checked: tuple[BoundPlugin[Any, Any], ...] = (*sources, *enrichers, *lookups, *exporters)
    return BoundConfig(
        config=config,
        registry=registry,
        elements=elements,
        sources=sources,
        enrichers=enrichers,
        lookups=lookups,
        exporters=exporters,
        remarks=(
            *_unread_of_core(loaded),
            *(notice for plugin in checked for notice in _checked(plugin, registry)),
        ),
    )


def _unread_of_core(loaded: LoadedConfig) -> Iterator[Notice]:
    for remark in unread_secrets(loaded.config.api_server):
        place = loaded.located(ConfigError(remark.problem, path=f"apiServer.{remark.path}"))
        yield Notice(severity="warning", problem=place.problem, path=place.path, line=place.line, source=place.source)


def _checked(plugin: BoundPlugin[Any, Any], registry: ElementRegistry) -> list[Notice]:
    try:
        remarks = list(plugin.type.check(plugin.settings, registry) or ())
        remarks += unread_secrets(plugin.settings)
        places = [placed(ConfigError(remark.problem, path=remark.path), plugin) for remark in remarks]
    except ConfigError as exc:
        raise placed(exc, plugin) from exc
    except Exception as exc:
        problem = f"its check failed: {type(exc).__name__}: {said_by(exc)}"
        raise _named_at(PluginContractError(problem, plugin=plugin.entry.type), plugin.entry) from exc
    return [
        Notice(severity="warning", problem=each.problem, path=each.path, line=each.line, source=each.source)
        for each in places
    ]


def _bound(entries: Iterable[EntryT], type_of: Callable[[str], TypeT]) -> Iterator[BoundPlugin[EntryT, TypeT]]:
    for entry in entries:
        try:
            plugin_type = type_of(entry.type)
        except PluginError as exc:
            raise _named_at(exc, entry) from exc
        try:
            settings = bind_settings(entry.settings, plugin_type.config)
        except TypeError as exc:
            problem = f"its configuration {plugin_type.config.__qualname__} cannot be bound: {exc}"
            raise _named_at(PluginContractError(problem, plugin=entry.type), entry) from exc
        yield BoundPlugin(entry=entry, type=plugin_type, settings=settings)


def placed(error: ConfigError, plugin: BoundPlugin[Any, Any]) -> ConfigError:
    """What a plugin said about its own keys, with their place in the file; other errors as they are."""
    settings: Settings = plugin.entry.settings
    own = [spec.key for spec in fields_of(plugin.type.config)]
    head = re.split(r"[.\[]", error.path, maxsplit=1)[0]
    if error.source is not None or (error.path and head not in own):
        return error
    entry = settings.node.get(head)
    return ConfigError(
        error.problem,
        path=f"{settings.path}.{error.path}" if error.path else settings.path,
        line=settings.node.line if entry is None else entry.line,
        source=settings.source,
    )


def _named_at(error: PluginError, entry: PluginEntry | ExporterEntry | None) -> PluginError:
    if entry is None:
        return error
    settings = entry.settings
    place = str(ConfigError("", path=settings.path, line=settings.node.line, source=settings.source))
    problem = f"{error.problem} (named at {place})"
    return type(error)(problem, plugin=error.plugin, distribution=error.distribution, version=error.version)
