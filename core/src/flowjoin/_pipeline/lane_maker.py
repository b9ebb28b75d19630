"""Makes the lane of an exporter, at start and when a reload adds or changes one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from flowjoin._config.model import ExporterEntry, Spool
from flowjoin._config.plugin_settings import BoundPlugin
from flowjoin._model.errors import ConfigError, PluginContractError
from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.instances import Instances, asked
from flowjoin._pipeline.lane import Lane
from flowjoin._pipeline.lane_identity import LaneIdentity
from flowjoin._pipeline.lane_queue import LaneBounds
from flowjoin._pipeline.lane_store import LaneStore, MemoryStore
from flowjoin._pipeline.lookups import Lookups
from flowjoin._pipeline.spool.places import SPOOL
from flowjoin._pipeline.spool.settings import SpoolBounds, SpoolSettings
from flowjoin._pipeline.spool.store import SpoolStore
from flowjoin._pipeline.spool.threads import InThread
from flowjoin._pipeline.state_directory import State
from flowjoin.api._types import Batching, ExporterType, Logger

__all__ = ["BoundExporter", "LaneMaker", "Replacement"]

BoundExporter = BoundPlugin[ExporterEntry, ExporterType]

_OPEN_BATCHES: Final = 16  # at once, one a schema, with a wide margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What a lane delivers through from now on."""

    open_exporter: Callable[[], AbstractAsyncContextManager[Any]]
    batching: Batching
    bounds: SpoolBounds | None
    next_store: Callable[[], LaneStore] | None
    patience: float


@dataclass(slots=True, kw_only=True)
class LaneMaker:
    """What all lanes of a run share.

    Attributes:
        lane_octets: of batches one lane holds in memory.
    """

    instances: Instances
    health: HealthTable
    lookups: Lookups
    lane_octets: int
    clock: Callable[[], float]
    wall: Callable[[], float]
    run: InThread
    is_replay: bool

    def lane(self, plugin: BoundExporter, state: State, *, is_added: bool = False) -> Lane:
        """A lane, not yet running.

        Args:
            plugin: the exporter.
            state: whose epoch the ids of its batches have; no other lane of that name may have had it.
            is_added: to a running program.

        Raises:
            PluginContractError: its ``batching`` fails or gives nonsense.
            ConfigError: the state directory cannot be used.
        """
        bounds = LaneBounds(octets=self.lane_octets)
        name = plugin.entry.name
        opener, log = self.instances.opener("exporters", plugin, self.lookups)
        batching = _batching(plugin)
        self._warn_of_small_batches(batching, log)
        return Lane(
            opener,
            _timeless(batching, bounds) if self.is_replay else batching,
            identity=LaneIdentity(instance_id=state.instance_id, lane=name, epoch=state.epoch),
            component=self.health.add("exporters", name),
            log=log,
            bounds=bounds,
            store=None if self.is_replay else self._store(plugin, batching, state, log),
            clock=self.clock,
            is_added=is_added,
            patience=self.instances.patience(plugin),
        )

    def is_spooled(self, plugin: BoundExporter) -> bool:
        """Whether its lane is to have a spool."""
        return plugin.entry.spool != "none" and self.instances.state.directory is not None

    def replacement(self, plugin: BoundExporter, state: State, *, is_moved: bool) -> Replacement:
        """What a running lane needs to deliver through another exporter.

        Args:
            plugin: the exporter.
            state: whose epoch no batch of the lane has had, if it goes on in a store of the other kind.
            is_moved: it does.

        Raises:
            PluginContractError: its ``batching`` fails or gives nonsense.
            ConfigError: the state directory cannot be used.
        """
        opener, log = self.instances.opener("exporters", plugin, self.lookups)
        spool, batching = plugin.entry.spool, _batching(plugin)
        self._warn_of_small_batches(batching, log)
        identity = LaneIdentity(instance_id=state.instance_id, lane=plugin.entry.name, epoch=state.epoch)

        def next_store() -> LaneStore:
            store = self._store(plugin, batching, state, log)
            return store or MemoryStore(batching, LaneBounds(octets=self.lane_octets), identity.batch_id)

        return Replacement(
            open_exporter=opener,
            batching=batching,
            bounds=_bounds(spool) if isinstance(spool, Spool) else None,
            next_store=next_store if is_moved else None,
            patience=self.instances.patience(plugin),
        )

    def _warn_of_small_batches(self, batching: Batching, log: Logger) -> None:
        if batching.octets > self.lane_octets // 2 and not self.is_replay:
            remedy = f"set limits.laneBytes to {2 * batching.octets} at least"
            log.warning("batches_smaller", wanted=batching.octets, octets=self.lane_octets // 2, remedy=remedy)

    def _store(self, plugin: BoundExporter, batching: Batching, state: State, log: Logger) -> LaneStore | None:
        """The exporter's spool; None where its lane is to be in memory."""
        spool, name = plugin.entry.spool, plugin.entry.name
        if spool == "none" or state.directory is None:
            log.info("lane_in_memory", promise="rows that wait are lost with the process")
            return None
        directory = state.directory_of(SPOOL, name)
        assert directory is not None, "there is a state directory"
        bounds = _bounds(spool)
        settings = SpoolSettings(
            directory=directory,
            max_octets=bounds.max_octets,
            max_age=bounds.max_age,
            sync=bounds.sync,
            memory_octets=self.lane_octets,
        )
        try:
            return SpoolStore(
                settings,
                batching,
                instance_id=state.instance_id,
                lane=name,
                epoch=state.epoch,
                registry=self.instances.registry,
                component=self.health.add("spools", name),
                log=log,
                clock=self.clock,
                wall=self.wall,
                run=self.run,
            )
        except OSError as exc:
            raise ConfigError(f"{directory} cannot be used: {exc.strerror or exc}", path="stateDirectory") from exc


def _bounds(spool: Spool) -> SpoolBounds:
    return SpoolBounds(max_octets=spool.max_size, max_age=spool.max_age, sync=spool.sync)


def _batching(plugin: BoundExporter) -> Batching:
    batching = asked("batching", plugin)
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
