"""Which cluster this is: asked at start, before anything exists that carries the cluster's UUID.

What a cluster said once is kept in the state directory, so that flows go on under its UUID where it cannot be asked
again. A flow under another UUID would be wrong for ever wherever it was delivered: without either, nothing starts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, Final

import trio

from flowjoin._config.plugin_settings import BoundConfig, BoundPlugin
from flowjoin._model.errors import FlowjoinError, PluginContractError, PluginError, said_by
from flowjoin._pipeline.state_directory import State
from flowjoin._pipeline.supervisor import PluginFailure, plugin_code, single_cause
from flowjoin._telemetry.logs import Logs
from flowjoin.api._types import Logger

__all__ = ["with_cluster_uuid"]

_PATIENCE_SECONDS: Final = 30.0


async def with_cluster_uuid(bound: BoundConfig, state: State, logs: Logs) -> State:
    """The state with the UUID that the first plugin which can tell it gives, look-ups before enrichers.

    Raises:
        FlowjoinError: it cannot be told, and was never told before.
    """
    for kind, plugin in _plugins(bound):
        if plugin.type.cluster_uuid is None:
            continue
        log = logs.logger(component=kind, name=plugin.entry.name)
        try:
            told = await _ask(plugin, log)
        except FlowjoinError as exc:
            remembered = state.told_cluster_uuid()
            if remembered is None:
                raise
            log.warning("cluster_uuid_remembered", problem=str(exc), cluster_uuid=remembered.cluster_uuid)
            return remembered
        if told is not None:
            log.info("cluster_uuid_told", cluster_uuid=told)
            return state.told_as(told)
    await trio.lowlevel.checkpoint()
    return state


def _plugins(bound: BoundConfig) -> Iterator[tuple[str, BoundPlugin[Any, Any]]]:
    for lookup in bound.lookups:
        yield "lookups", lookup
    for enricher in bound.enrichers:
        yield "enrichers", enricher


async def _ask(plugin: BoundPlugin[Any, Any], log: Logger) -> str | None:  # the plugin's own settings: Any
    try:
        with plugin_code(), trio.fail_after(_PATIENCE_SECONDS):
            told: object = await plugin.type.cluster_uuid(plugin.settings, log)
    except PluginFailure as failure:
        cause = single_cause(failure)
        if isinstance(cause, FlowjoinError):
            raise cause from failure
        problem = f"asking it for the cluster's UUID failed: {type(cause).__name__}: {said_by(cause)}"
        raise PluginError(problem, plugin=plugin.entry.type) from cause
    if told is None:
        return None
    try:
        return str(uuid.UUID(str(told)))
    except ValueError:
        problem = f"it gave the cluster's UUID as {str(told)[:80]!r}, which is none"
        raise PluginContractError(problem, plugin=plugin.entry.type) from None
