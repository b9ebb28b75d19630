"""How a configuration becomes a pipeline: every part made and connected, nothing opened yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from math import inf
from typing import Any

from flowjoin._aggregator.process import Aggregation
from flowjoin._collector.metrics import CollectorStatistics
from flowjoin._config.model import ExporterEntry, PluginEntry
from flowjoin._config.plugin_settings import BoundConfig, BoundPlugin, placed
from flowjoin._kernel.interface import IngestResult, Kernel
from flowjoin._model.errors import ConfigError, PluginContractError, said_by
from flowjoin._model.reasons import Reason
from flowjoin._model.transport_session import TransportSession
from flowjoin._pipeline.books import Books
from flowjoin._pipeline.enrichment import EnricherSlot, Enrichment
from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.intake_gate import IntakeGate
from flowjoin._pipeline.lane import Lane, LaneIdentity
from flowjoin._pipeline.lane_queue import LaneBounds
from flowjoin._pipeline.lane_store import LaneStore
from flowjoin._pipeline.lookups import Lookups, LookupSlot
from flowjoin._pipeline.metrics import pipeline_metrics
from flowjoin._pipeline.outlets import Outlets
from flowjoin._pipeline.plugin_context import InstanceContext
from flowjoin._pipeline.sources import SourceStage
from flowjoin._pipeline.spool.places import SPOOL
from flowjoin._pipeline.spool.settings import SpoolSettings
from flowjoin._pipeline.spool.store import SpoolStore
from flowjoin._pipeline.spool.threads import InThread, in_thread
from flowjoin._pipeline.state_directory import State
from flowjoin._pipeline.supervisor import PluginFailure, plugin_code, single_cause
from flowjoin._telemetry.logs import Logs
from flowjoin._telemetry.metrics import Metrics
from flowjoin.api._types import Batching, ExporterType, Logger

__all__ = ["Pipeline", "assemble"]

# What repeats while an exporter restarts is no news; the counters tell it.
_QUIET_REASONS = frozenset({Reason.TEMPLATE_UNKNOWN, Reason.HELD_LIMIT})
_OPEN_BATCHES = 16  # at once, one a schema, with a wide margin


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """All stages from the kernel to the lanes, connected.

    Attributes:
        gate: what connections wait at while rows wait that should leave first.
        collector_statistics: gives the snapshots of the collectors that are open.
    """

    kernel: Kernel
    aggregation: Aggregation
    outlets: Outlets
    lanes: tuple[Lane, ...]
    enrichers: tuple[EnricherSlot, ...]
    lookups: tuple[LookupSlot, ...]
    sources: tuple[SourceStage, ...]
    health: HealthTable
    metrics: Metrics
    logs: Logs
    log: Logger
    gate: IntakeGate
    collector_statistics: Callable[[], Sequence[CollectorStatistics]] = tuple

    def ingest(
        self, messages: Sequence[bytes | memoryview], sessions: Sequence[TransportSession], now: float
    ) -> IngestResult:
        """What collectors call: the kernel's ingest, and what follows from its result."""
        result = self.kernel.ingest(messages, sessions, now)
        for session, reason, number, domain in result.notices:
            write = self.log.debug if reason in _QUIET_REASONS else self.log.warning
            write(
                "input_refused",
                original_exporter=session.peer or str(session),
                reason=reason.value,
                set_or_template_id=number,
                observation_domain_id=domain,
            )
        if result.is_due:
            self.gate.close()
            self.aggregation.wake()
        return result

    def books(self) -> Books:
        """A snapshot of everything that is counted."""
        return Books(
            kernel=self.kernel.statistics(),
            rows=self.outlets.rows,
            source_rows={source.name: source.rows for source in self.sources},
            collectors=tuple(self.collector_statistics()),
            enrichers={slot.name: slot.books() for slot in self.enrichers},
            lanes={lane.name: lane.books() for lane in self.lanes},
        )


def assemble(
    bound: BoundConfig,
    kernel: Kernel,
    *,
    state: State,
    logs: Logs,
    metrics: Metrics,
    random: Callable[[], float],
    clock: Callable[[], float],
    wall: Callable[[], float] = time.time,
    run: InThread = in_thread,
    is_replay: bool = False,
) -> Pipeline:
    """Make every part of a configuration, connected to the kernel.

    Args:
        bound: the configuration, with its plugins' types and settings.
        kernel: of the same schemas.
        state: who this flowjoin is.
        logs: makes every part's logger.
        metrics: gets every part's figures.
        random: numbers from 0 up to 1, for jitter.
        clock: monotonic seconds.
        wall: seconds since the Unix epoch, for what lies in spools.
        run: runs what blocks.
        is_replay: lanes are in memory and make the table wait, nothing is dropped, and sources stay closed.

    Raises:
        PluginContractError: an exporter's ``batching`` fails or gives nonsense.
        ConfigError: the state directory cannot be used.
    """
    return _Assembly(bound, kernel, state, logs, metrics, random, clock, wall, run).assemble(is_replay)


@dataclass(slots=True)
class _Assembly:
    bound: BoundConfig
    kernel: Kernel
    state: State
    logs: Logs
    metrics: Metrics
    random: Callable[[], float]
    clock: Callable[[], float]
    wall: Callable[[], float]
    run: InThread

    def assemble(self, is_replay: bool) -> Pipeline:
        health = HealthTable(self.random)
        lookups = self._lookups(health)
        registry_of_lookups = Lookups(lookups)
        enrichers = self._enrichers(health, registry_of_lookups)
        lanes = self._lanes(health, registry_of_lookups, is_replay)
        outlets = Outlets(
            Enrichment(enrichers, self.kernel.store_enriched), lanes, is_replay=is_replay, clock=self.clock
        )
        sources = () if is_replay else self._sources(health, registry_of_lookups, outlets)
        gate = IntakeGate()

        def open_gate(now: float) -> None:
            if not self.kernel.ingest((), (), now).is_due:  # it takes nothing in, and says whether too many rows wait
                gate.open()

        aggregation = Aggregation(
            self.kernel, outlets.deliver, outlets.wait_room, clock=self.clock, after_slice=open_gate
        )
        pipeline = Pipeline(
            kernel=self.kernel,
            aggregation=aggregation,
            outlets=outlets,
            lanes=lanes,
            enrichers=enrichers,
            lookups=lookups,
            sources=sources,
            health=health,
            metrics=self.metrics,
            logs=self.logs,
            log=self.logs.logger(component="core"),
            gate=gate,
        )
        self.metrics.watch(lambda: pipeline_metrics(pipeline.books(), health.snapshot(), self.logs.lost))
        return pipeline

    def _lookups(self, health: HealthTable) -> tuple[LookupSlot, ...]:
        slots: list[LookupSlot] = []
        for plugin in self.bound.lookups:
            # a look-up that asks another finds only those configured before it
            earlier = Lookups(slots)
            opener, log = self._opener("lookups", plugin, earlier)
            component = health.add("lookups", plugin.entry.name)
            slots.append(LookupSlot(plugin.type, opener, component=component, log=log))
        return tuple(slots)

    def _enrichers(self, health: HealthTable, lookups: Lookups) -> tuple[EnricherSlot, ...]:
        slots: list[EnricherSlot] = []
        for plugin in self.bound.enrichers:
            opener, log = self._opener("enrichers", plugin, lookups)
            component = health.add("enrichers", plugin.entry.name)
            slots.append(EnricherSlot(plugin.type, opener, component=component, log=log))
        return tuple(slots)

    def _sources(self, health: HealthTable, lookups: Lookups, outlets: Outlets) -> tuple[SourceStage, ...]:
        stages: list[SourceStage] = []
        for plugin in self.bound.sources:
            opener, log = self._opener("sources", plugin, lookups)
            component = health.add("sources", plugin.entry.name)
            stages.append(
                SourceStage(opener, outlets.deliver, wait_room=outlets.wait_room, component=component, log=log)
            )
        return tuple(stages)

    def _lanes(self, health: HealthTable, lookups: Lookups, is_replay: bool) -> tuple[Lane, ...]:
        bounds = LaneBounds(octets=self.bound.config.limits.lane_bytes)
        lanes: list[Lane] = []
        for plugin in self.bound.exporters:
            opener, log = self._opener("exporters", plugin, lookups)
            name = plugin.entry.name
            batching = _batching(plugin)
            lanes.append(
                Lane(
                    opener,
                    _timeless(batching, bounds) if is_replay else batching,
                    identity=LaneIdentity(instance_id=self.state.instance_id, lane=name, epoch=self.state.epoch),
                    component=health.add("exporters", name),
                    log=log,
                    bounds=bounds,
                    store=None if is_replay else self._store(plugin, batching, health, log),
                    clock=self.clock,
                )
            )
        return tuple(lanes)

    def _store(
        self, plugin: BoundPlugin[ExporterEntry, ExporterType], batching: Batching, health: HealthTable, log: Logger
    ) -> LaneStore | None:
        """The exporter's spool; None where its lane is to be in memory."""
        spool, name = plugin.entry.spool, plugin.entry.name
        if spool == "none" or self.state.directory is None:
            log.info("lane_in_memory", promise="rows that wait are lost with the process")
            return None
        directory = self.state.directory_of(SPOOL, name)
        assert directory is not None, "there is a state directory"
        settings = SpoolSettings(
            directory=directory,
            max_octets=spool.max_size,
            max_age=spool.max_age,
            sync=spool.sync,
            memory_octets=self.bound.config.limits.lane_bytes,
        )
        try:
            return SpoolStore(
                settings,
                batching,
                instance_id=self.state.instance_id,
                lane=name,
                epoch=self.state.epoch,
                registry=self.bound.registry,
                component=health.add("spools", name),
                log=log,
                clock=self.clock,
                wall=self.wall,
                run=self.run,
            )
        except OSError as exc:
            raise ConfigError(f"{directory} cannot be used: {exc.strerror or exc}", path="stateDirectory") from exc

    def _opener(
        self, kind: str, plugin: BoundPlugin[Any, Any], lookups: Lookups
    ) -> tuple[Callable[[], AbstractAsyncContextManager[Any]], Logger]:
        """A function that opens the instance, and its logger; the plugin's own types are its business: Any."""
        entry: PluginEntry | ExporterEntry = plugin.entry
        log = self.logs.logger(component=kind, name=entry.name)
        context = InstanceContext(
            plugin=entry.type,
            name=entry.name,
            log=log,
            state_directory=self.state.directory_of(kind, entry.name),
            instance_id=self.state.instance_id,
            cluster_uuid=self.state.cluster_uuid,
            compatibility=self.bound.config.compatibility,
            registry=self.bound.registry,
            metrics=self.metrics,
            lookups=lookups,
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


def _batching(plugin: BoundPlugin[ExporterEntry, ExporterType]) -> Batching:
    try:
        with plugin_code():
            batching: object = plugin.type.batching(plugin.settings)
    except PluginFailure as failure:
        cause = single_cause(failure)
        problem = f"its batching failed: {type(cause).__name__}: {said_by(cause)}"
        raise PluginContractError(problem, plugin=plugin.entry.type) from cause
    if not isinstance(batching, Batching):
        raise PluginContractError(f"its batching gave a {type(batching).__name__}", plugin=plugin.entry.type)
    if batching.records < 1 or batching.octets < 1 or not batching.interval >= 0:
        raise PluginContractError(f"its batching gave {batching}, where nothing fits", plugin=plugin.entry.type)
    return batching


def _timeless(batching: Batching, bounds: LaneBounds) -> Batching:
    """Batches whose boundaries depend on their rows alone, for replay: the same capture, the same batches.

    They stay open until they are full or all is over, so those of all schemas together must leave the lane room.
    """
    return Batching(
        records=min(batching.records, max(1, bounds.rows // _OPEN_BATCHES)),
        octets=min(batching.octets, bounds.octets // _OPEN_BATCHES),
        interval=inf,
    )
