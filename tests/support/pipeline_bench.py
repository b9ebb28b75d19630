"""The whole pipeline with the real kernel, ends in memory, and a clock that jumps."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
import trio.testing
from pipeline_fakes import MemoryExporter
from spool_bench import at_once

from flowjoin._config.load import load_config
from flowjoin._config.plugin_settings import bind_plugins
from flowjoin._generator.config import TrafficConfig
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.assembly import Pipeline, assemble
from flowjoin._pipeline.kernel_factory import make_kernel
from flowjoin._pipeline.process import Outcome, Stop, run_pipeline
from flowjoin._pipeline.state_directory import open_state
from flowjoin._telemetry.logs import Logs
from flowjoin._telemetry.metrics import Metrics
from flowjoin.api import (
    Batching,
    DataType,
    ElementId,
    EnricherType,
    EnterpriseNumber,
    ExporterType,
    InformationElement,
    LookupType,
    PluginContext,
    PodLookup,
    SourceType,
)
from flowjoin.wire.registry import default_registry

COLOUR = InformationElement(
    name="colour", element_id=ElementId(7), enterprise_number=EnterpriseNumber(32473), data_type=DataType.STRING
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSettings:
    pass


class KeepingExporter(MemoryExporter):
    """As MemoryExporter, for batches of any schema."""

    async def export(self, batch: FlowBatch) -> None:
        match next(self.script, None):
            case None:
                pass
            case Exception() as exc:
                raise exc
            case act:
                await act(batch)
        self.accepted.append(batch)

    @property
    def dicts(self) -> list[dict[str, Any]]:
        return [row for batch in self.accepted for row in batch.to_dicts()]


class PipelinePlugins:
    """Hands over types as loaded plugins would."""

    def __init__(self) -> None:
        self.exporters: dict[str, KeepingExporter] = {}
        self.enrichers: dict[str, Callable[[PluginContext], Callable[[FlowBatch], Any]]] = {}
        self.sources: dict[str, Callable[[], AsyncIterator[FlowBatch]]] = {}
        self.lookups: dict[str, object] = {}
        self.batching = Batching()

    def exporter_type(self, name: str) -> ExporterType:
        @asynccontextmanager
        async def open_exporter(_settings: NoSettings, context: PluginContext) -> AsyncIterator[Any]:
            context.counter("opened_files", "Files opened.").inc()
            async with self.exporters[name].open() as exporter:
                yield exporter

        return ExporterType(name, NoSettings, open_exporter, 1, lambda _settings: self.batching)

    def enricher_type(self, name: str) -> EnricherType:
        class Opened:
            pass

        @asynccontextmanager
        async def open_enricher(_settings: NoSettings, context: PluginContext) -> AsyncIterator[Any]:
            opened = Opened()
            opened.enrich = self.enrichers[name](context)  # type: ignore[attr-defined]
            yield opened

        return EnricherType(name, NoSettings, ("colour",), ("sourcePodName",), open_enricher, 1)

    def source_type(self, name: str) -> SourceType:
        @asynccontextmanager
        async def open_source(_settings: NoSettings, _context: PluginContext) -> AsyncIterator[Any]:
            yield self.sources[name]()

        return SourceType(name, NoSettings, open_source, 1)

    def lookup_type(self, name: str) -> LookupType:
        @asynccontextmanager
        async def open_lookup(_settings: NoSettings, _context: PluginContext) -> AsyncIterator[Any]:
            yield self.lookups[name]

        return LookupType(name, NoSettings, (PodLookup,), open_lookup, 1)

    def extend_registry(self, registry: ElementRegistry) -> ElementRegistry:
        return registry.extended([COLOUR])


class PipelineBench:
    """A pipeline of a configuration's text, running in a nursery until told to stop."""

    def __init__(self, text: str, plugins: PipelinePlugins, directory: Path, form: str = "auto") -> None:
        self.stream = io.StringIO()
        self.logs = Logs(self.stream, log_format="json", level="debug", clock=trio.current_time)
        loaded = load_config("aggregatorTransportProtocol: None\n" + text)
        self.bound = bind_plugins(loaded, lambda _names: plugins, default_registry())
        self._directory = directory
        self._form = form
        self.stop = Stop()
        self.outcome: Outcome | None = None
        self.pipeline: Pipeline

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Pipeline]:
        with open_state(self._directory / "state") as state:
            kernel = make_kernel(self.bound, cluster_uuid=state.cluster_uuid, form=self._form)
            self.pipeline = assemble(
                self.bound,
                kernel,
                state=state,
                logs=self.logs,
                metrics=Metrics(),
                random=lambda: 1.0,
                clock=trio.current_time,
                run=at_once,
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._run)
                await trio.testing.wait_all_tasks_blocked()
                yield self.pipeline
                self.stop.wish()
        assert self.outcome is not None
        assert self.outcome.books.imbalances() == ()

    async def _run(self) -> None:
        self.outcome = await run_pipeline(self.pipeline, self.bound.config, self.stop)

    async def feed(self, messages: Iterable[tuple[bytes, Any]]) -> None:
        for message, session in messages:
            self.pipeline.ingest([message], [session], trio.current_time())
        await trio.testing.wait_all_tasks_blocked()

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [line for line in map(json.loads, self.stream.getvalue().splitlines()) if line["event"] == event]


TIMEOUTS = "activeFlowRecordTimeout: 5s\ninactiveFlowRecordTimeout: 10s\nshutdownGracePeriod: 20s\n"
TRAFFIC = TrafficConfig(flows=60, seed=4, updates=2)


def keys_of(rows: Iterable[dict[str, Any]]) -> set[tuple[Any, ...]]:
    names = ("sourceTransportPort", "destinationTransportPort", "protocolIdentifier")
    addresses = ("sourceIPv4Address", "destinationIPv4Address", "sourceIPv6Address", "destinationIPv6Address")
    return {tuple(row.get(name) for name in (*names, *addresses)) for row in rows}
