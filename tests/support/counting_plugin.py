"""A pipeline of a configuration's text whose exporters, of type ``counting``, only count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio

from flowjoin._config.load import load_config
from flowjoin._config.plugin_settings import BoundConfig, bind_plugins
from flowjoin._kernel.interface import Kernel
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.assembly import Pipeline, assemble
from flowjoin._pipeline.kernel_factory import make_kernel
from flowjoin._pipeline.state_directory import State
from flowjoin._telemetry.logs import Logs
from flowjoin._telemetry.metrics import Metrics
from flowjoin.api import ExporterType
from flowjoin.wire import default_registry


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSettings:
    pass


class CountingExporter:
    rows = 0

    async def export(self, batch: FlowBatch) -> None:
        self.rows += len(batch)


class CountingPlugins:
    """Hands over the exporter's type as loaded plugins would."""

    def __init__(self) -> None:
        self.exporter = CountingExporter()

    def exporter_type(self, name: str) -> ExporterType:
        @asynccontextmanager
        async def open_exporter(_settings: Any, _context: Any) -> AsyncIterator[CountingExporter]:
            yield self.exporter

        return ExporterType(name, NoSettings, open_exporter, 1)

    def source_type(self, _name: str) -> Any:
        raise AssertionError("none is configured")

    lookup_type = enricher_type = source_type

    def extend_registry(self, registry: Any) -> Any:
        return registry


def bound(text: str, plugins: CountingPlugins) -> BoundConfig:
    return bind_plugins(load_config(text), lambda _names: plugins, default_registry())


def assembled(bound: BoundConfig, kernel: Kernel, state: State, logs: Logs) -> Pipeline:
    return assemble(
        bound, kernel, state=state, logs=logs, metrics=Metrics(), random=lambda: 1.0, clock=trio.current_time
    )


def kernel_of(bound: BoundConfig) -> Kernel:
    return make_kernel(bound, cluster_uuid="a-cluster", form="python")
