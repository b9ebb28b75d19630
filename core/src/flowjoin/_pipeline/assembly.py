"""How a configuration becomes a pipeline: every part made and connected, nothing opened yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flowjoin._aggregator.process import Aggregation
from flowjoin._collector.metrics import CollectorStatistics
from flowjoin._config.model import Config
from flowjoin._config.plugin_settings import BoundConfig
from flowjoin._kernel.interface import IngestResult, Kernel
from flowjoin._model.reasons import Reason
from flowjoin._model.transport_session import TransportSession
from flowjoin._pipeline.books import Books
from flowjoin._pipeline.enrichment import EnricherSlot, Enrichment
from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.instances import Instances
from flowjoin._pipeline.intake_gate import IntakeGate
from flowjoin._pipeline.lane import Lane
from flowjoin._pipeline.lane_maker import LaneMaker
from flowjoin._pipeline.lookups import Lookups, LookupSlot
from flowjoin._pipeline.metrics import feed_metrics, pipeline_metrics
from flowjoin._pipeline.outlets import Outlets
from flowjoin._pipeline.sources import SourceStage
from flowjoin._pipeline.spool.threads import InThread, in_thread
from flowjoin._pipeline.state_directory import State
from flowjoin._telemetry.logs import Logs
from flowjoin._telemetry.metrics import Metrics
from flowjoin.api._types import Logger

__all__ = ["Pipeline", "assemble"]

# What repeats while an exporter restarts is no news; the counters tell it.
_QUIET_REASONS = frozenset({Reason.TEMPLATE_UNKNOWN, Reason.HELD_LIMIT})


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """All stages from the kernel to the lanes, connected.

    Attributes:
        gate: what connections wait at while rows wait that should leave first.
        bound: the configuration in force; a reload changes it.
        collector_statistics: gives the snapshots of the collectors that are open.
        keeps_flows: flows stay in the table at the end, for the checkpoint.
        allow: says how many seconds what is going on may take; None, as long as it likes.
    """

    bound: BoundConfig
    kernel: Kernel
    aggregation: Aggregation
    outlets: Outlets
    lane_maker: LaneMaker
    enrichers: tuple[EnricherSlot, ...]
    lookups: tuple[LookupSlot, ...]
    sources: tuple[SourceStage, ...]
    health: HealthTable
    metrics: Metrics
    logs: Logs
    log: Logger
    gate: IntakeGate
    collector_statistics: Callable[[], Sequence[CollectorStatistics]] = tuple
    keeps_flows: bool = False
    allow: Callable[[float | None], None] = lambda _seconds: None

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.bound.config

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Those that get what the table gives."""
        return self.outlets.lanes

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
        rows_due, lanes = self.outlets.lane_books()
        return Books(
            kernel=self.kernel.statistics(),
            rows=self.outlets.rows,
            source_rows={source.name: source.rows for source in self.sources},
            collectors=tuple(self.collector_statistics()),
            enrichers={slot.name: slot.books() for slot in self.enrichers},
            lanes=lanes,
            rows_due=rows_due,
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
    instances = Instances(
        state=state,
        logs=logs,
        metrics=metrics,
        compatibility=bound.config.compatibility,
        registry=bound.registry,
        health=HealthTable(random),
        hang_seconds=bound.config.limits.hang,
        config=lambda: pipeline.config,
    )
    pipeline = _Assembly(bound, kernel, instances, clock, wall, run).assemble(is_replay)
    return pipeline


@dataclass(slots=True)
class _Assembly:
    bound: BoundConfig
    kernel: Kernel
    instances: Instances
    clock: Callable[[], float]
    wall: Callable[[], float]
    run: InThread

    def assemble(self, is_replay: bool) -> Pipeline:
        health = self.instances.health
        lookups = self._lookups()
        registry_of_lookups = Lookups(lookups)
        enrichers = self._enrichers(registry_of_lookups)
        lane_maker = LaneMaker(
            instances=self.instances,
            health=health,
            lookups=registry_of_lookups,
            lane_octets=self.bound.config.limits.lane_bytes,
            clock=self.clock,
            wall=self.wall,
            run=self.run,
            is_replay=is_replay,
        )
        lanes = [lane_maker.lane(plugin, self.instances.state) for plugin in self.bound.exporters]
        outlets = Outlets(
            Enrichment(enrichers, self.kernel.store_enriched), lanes, is_replay=is_replay, clock=self.clock
        )
        sources = () if is_replay else self._sources(registry_of_lookups, outlets)
        gate = IntakeGate()

        def open_gate(now: float) -> None:
            if not self.kernel.ingest((), (), now).is_due:  # it takes nothing in, and says whether too many rows wait
                gate.open()

        aggregation = Aggregation(
            self.kernel, outlets.deliver, outlets.wait_room, clock=self.clock, after_slice=open_gate
        )
        logs, metrics = self.instances.logs, self.instances.metrics
        pipeline = Pipeline(
            bound=self.bound,
            kernel=self.kernel,
            aggregation=aggregation,
            outlets=outlets,
            lane_maker=lane_maker,
            enrichers=enrichers,
            lookups=lookups,
            sources=sources,
            health=health,
            metrics=metrics,
            logs=logs,
            log=logs.logger(component="core"),
            gate=gate,
        )
        metrics.watch(lambda: pipeline_metrics(pipeline.books(), health.snapshot(), logs.lost))
        metrics.watch(lambda: feed_metrics(len(outlets.feeds), outlets.feeds.dropped))
        return pipeline

    def _lookups(self) -> tuple[LookupSlot, ...]:
        slots: list[LookupSlot] = []
        for plugin in self.bound.lookups:
            # a look-up that asks another finds only those configured before it
            earlier = Lookups(slots)
            opener, log = self.instances.opener("lookups", plugin, earlier)
            component = self.instances.component("lookups", plugin)
            slots.append(LookupSlot(plugin.type, opener, component=component, log=log))
        return tuple(slots)

    def _enrichers(self, lookups: Lookups) -> tuple[EnricherSlot, ...]:
        slots: list[EnricherSlot] = []
        for plugin in self.bound.enrichers:
            opener, log = self.instances.opener("enrichers", plugin, lookups)
            component = self.instances.component("enrichers", plugin)
            slots.append(EnricherSlot(plugin.type, opener, component=component, log=log))
        return tuple(slots)

    def _sources(self, lookups: Lookups, outlets: Outlets) -> tuple[SourceStage, ...]:
        stages: list[SourceStage] = []
        for plugin in self.bound.sources:
            opener, log = self.instances.opener("sources", plugin, lookups)
            component = self.instances.component("sources", plugin)
            stages.append(
                SourceStage(opener, outlets.deliver, wait_room=outlets.wait_room, component=component, log=log)
            )
        return tuple(stages)
