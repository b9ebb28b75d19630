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
from flowjoin._model.errors import ConfigError, PluginContractError, said_by
from flowjoin._pipeline.health import Component, HealthTable
from flowjoin._pipeline.lookups import Lookups
from flowjoin._pipeline.plugin_context import InstanceContext
from flowjoin._pipeline.state_directory import State
from flowjoin._pipeline.supervisor import PluginFailure, plugin_code, single_cause
from flowjoin._telemetry.logs import Logs
from flowjoin._telemetry.metrics import Metrics
from flowjoin.api._types import Logger

__all__ = ["Instances", "asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """What all instances of a run share.

    Attributes:
        hang_seconds: for which a plugin may get nowhere, unless it wants more.
        config: gives the configuration in force.
    """

    state: State
    logs: Logs
    metrics: Metrics
    compatibility: str
    registry: ElementRegistry
    health: HealthTable
    hang_seconds: float
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
            tell_progress=partial(self.health.progressed, kind, entry.name),
        )
        return (lambda: _Opening(plugin, context)), log

    def component(self, kind: str, plugin: BoundPlugin[Any, Any]) -> Component:
        """The instance's row in the table of health.

        Raises:
            PluginContractError: its ``patience`` fails or gives nonsense.
        """
        seconds = self.patience(plugin)
        component = self.health.add(kind, plugin.entry.name)
        component.patience.seconds = seconds
        return component

    def patience(self, plugin: BoundPlugin[Any, Any]) -> float:
        """The seconds for which it may get nowhere.

        Raises:
            PluginContractError: its ``patience`` fails or gives nonsense.
        """
        wanted: object = asked("patience", plugin)
        if not isinstance(wanted, int | float) or not wanted >= 0:
            raise PluginContractError(f"its patience gave {wanted!r}, not seconds", plugin=plugin.entry.type)
        return max(wanted, self.hang_seconds)


def asked(what: str, plugin: BoundPlugin[Any, Any]) -> object:
    """What the plugin's type says of itself for these settings.

    Raises:
        PluginContractError: it fails.
    """
    try:
        with plugin_code():
            answer: object = getattr(plugin.type, what)(plugin.settings)
    except PluginFailure as failure:
        cause = single_cause(failure)
        problem = f"its {what} failed: {type(cause).__name__}: {said_by(cause)}"
        raise PluginContractError(problem, plugin=plugin.entry.type) from cause
    return answer


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
