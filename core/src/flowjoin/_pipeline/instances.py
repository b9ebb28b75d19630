"""How an instance of a plugin comes to be opened: its context, its logger, its errors' place in the file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from flowjoin._config.model import Config, ExporterEntry, PluginEntry
from flowjoin._config.plugin_settings import BoundPlugin, placed
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import ConfigError
from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.lookups import Lookups
from flowjoin._pipeline.plugin_context import InstanceContext
from flowjoin._pipeline.state_directory import State
from flowjoin._pipeline.supervisor import single_cause
from flowjoin._telemetry.logs import Logs
from flowjoin._telemetry.metrics import Metrics
from flowjoin.api._types import Logger

__all__ = ["Instances"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """What all instances of a run share.

    Attributes:
        config: gives the configuration in force.
    """

    state: State
    logs: Logs
    metrics: Metrics
    compatibility: str
    registry: ElementRegistry
    health: HealthTable
    config: Callable[[], Config]

    def opener(
        self, kind: str, plugin: BoundPlugin[Any, Any], lookups: Lookups
    ) -> tuple[Callable[[], AbstractAsyncContextManager[Any]], Logger]:
        """A function that opens the instance, and its logger; the plugin's own types are its business: Any.

        Raises:
            ConfigError: the state directory cannot be used.
        """
        entry: PluginEntry | ExporterEntry = plugin.entry
        log = self.logs.logger(component=kind, name=entry.name)
        context = InstanceContext(
            plugin=entry.type,
            name=entry.name,
            log=log,
            state_directory=self.state.directory_of(kind, entry.name),
            instance_id=self.state.instance_id,
            cluster_uuid=self.state.cluster_uuid,
            compatibility=self.compatibility,
            registry=self.registry,
            metrics=self.metrics,
            lookups=lookups,
            asks_pod_labels=lambda: self.config().record_contents.pod_labels,
            tell_impaired=partial(self.health.impair, kind, entry.name),
        )
        return (lambda: _Opening(plugin, context)), log


class _Opening:
    """A plugin's own context, but for an error about its configuration, which gets its place in the file."""

    def __init__(self, plugin: BoundPlugin[Any, Any], context: InstanceContext) -> None:
        self._plugin = plugin
        self._context = context

    async def __aenter__(self) -> Any:
        try:
            self._manager = self._plugin.type.open(self._plugin.settings, self._context)
            return await self._manager.__aenter__()
        except Exception as exc:
            cause = single_cause(exc)
            if isinstance(cause, ConfigError):
                raise placed(cause, self._plugin) from exc
            raise

    async def __aexit__(self, *error: Any) -> bool | None:
        swallows: bool | None = await self._manager.__aexit__(*error)
        return swallows
