"""Changes a running program's configuration: on SIGHUP, and when the file's octets change.

The file is read once a second. That sees an edit, a ConfigMap's symbolic links swapped above it, a file that is
deleted or comes back, on every file system; a notice of the kernel's would have to watch each directory on the way.
What was read is acted upon when the next look finds the same, so that a file half written is not taken for a whole one;
SIGHUP says that it is whole.

All is prepared before anything is changed: what cannot be used leaves everything as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import trio

from flowjoin._config.changes import applied, compare
from flowjoin._config.file import read_again
from flowjoin._config.model import Log
from flowjoin._config.plugin_settings import BoundConfig
from flowjoin._model.errors import ConfigError, PluginError
from flowjoin._pipeline.assembly import Pipeline
from flowjoin._pipeline.lane_keeper import LaneKeeper
from flowjoin._pipeline.lane_maker import BoundExporter
from flowjoin._pipeline.spool.threads import InThread, in_thread

__all__ = ["ConfigurationFile", "Reloader"]

T = TypeVar("T")

LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFile:
    """Where the configuration came from, and how it is read again.

    Attributes:
        octets: what it held when it was read.
        bind: makes of octets what a run needs, and sentences that the operator should read; raises ConfigError or
            PluginError. Called in a thread: it imports plugins.
        set_log: changes the process's own log.
        read: gives the octets; raises ConfigError.
    """

    path: str
    octets: bytes
    bind: Callable[[bytes], tuple[BoundConfig, tuple[str, ...]]]
    set_log: Callable[[Log], None]
    read: Callable[[str], bytes] = read_again


@dataclass(slots=True, kw_only=True)
class _Plan:
    added: list[BoundExporter]
    changed: list[BoundExporter]
    removed: list[str]


class Reloader:
    """Keeps a pipeline's configuration what the file says, as far as that can change."""

    def __init__(self, file: ConfigurationFile, pipeline: Pipeline, *, run: InThread = in_thread) -> None:
        """Nothing is read before ``run``."""
        self._file = file
        self._pipeline = pipeline
        self._state = pipeline.lane_maker.instances.state
        self._component = pipeline.health.add("configuration", "file")
        self._component.opened()
        self._log = pipeline.logs.logger(component="core", is_answer=True)
        self._run = run
        self._limiter = trio.CapacityLimiter(1)
        self._accepted = file.octets
        self._settled: bytes | str = file.octets  # what was read and dealt with
        self._before: bytes | str = file.octets  # what the last look found: octets, or why there are none
        self._wished = trio.Event()

    def wish(self) -> None:
        """SIGHUP: look now."""
        self._wished.set()

    async def run(self, keeper: LaneKeeper) -> None:
        """Look again and again, until cancelled."""
        while True:
            with trio.move_on_after(LOOK_SECONDS):
                await self._wished.wait()
            is_asked = self._wished.is_set()
            self._wished = trio.Event()
            found = await self._in_thread(self._read, may_hang=True)
            is_whole = found == self._before
            self._before = found
            if is_asked or (is_whole and found != self._settled):
                self._settled = found
                await self._consider(found, keeper)

    def _read(self) -> bytes | str:
        try:
            return self._file.read(self._file.path)
        except ConfigError as exc:
            return str(exc)

    async def _consider(self, found: bytes | str, keeper: LaneKeeper) -> None:
        if isinstance(found, str):
            self._refuse(ConfigError(found))
            return
        if found == self._accepted:
            self._component.recovered()
            self._log.info("configuration_unchanged", file=self._file.path)
            return
        try:
            bound, sentences = await self._in_thread(partial(self._file.bind, found), may_hang=True)
            await self._apply(bound, keeper)
        except (ConfigError, PluginError) as exc:
            self._refuse(exc)
            return
        self._accepted = found
        self._component.recovered()
        for sentence in sentences:
            self._log.warning("configuration_notice", problem=sentence)

    def _refuse(self, exc: ConfigError | PluginError) -> None:
        self._component.failed(exc)
        self._log.error("configuration_refused", problem=str(exc), consequence="the one before stays in force")

    async def _apply(self, bound: BoundConfig, keeper: LaneKeeper) -> None:
        """Change what is to change, all at once.

        Raises:
            ConfigError: something cannot be used; nothing was changed.
            PluginError: as that.
        """
        pipeline, old = self._pipeline, self._pipeline.bound
        if bound.config.mode != old.config.mode:
            problem = f"cannot change from {old.config.mode} without a restart, and the rest is not taken without it"
            raise ConfigError(problem, path="mode", source=self._file.path)
        changes = compare(old.config, bound.config)
        plan = _plan(old.exporters, bound.exporters)
        maker = pipeline.lane_maker
        lanes = []
        for plugin in plan.added:
            await keeper.wait_gone(plugin.entry.name)
        if plan.added or self._moved(plan, keeper):
            self._state = await self._in_thread(self._state.next_epoch)  # no id of theirs was used before
        moved = self._moved(plan, keeper)  # asked again: an earlier reload's change may have come about meanwhile
        replacements = [
            (plugin.entry.name, maker.replacement(plugin, self._state, is_moved=plugin.entry.name in moved))
            for plugin in plan.changed
        ]
        if plan.added:
            try:
                for plugin in plan.added:
                    lanes.append(maker.lane(plugin, self._state, is_added=True))
            except (ConfigError, PluginError):
                for plugin in plan.added:
                    pipeline.health.remove(plugin.entry.name)
                raise
        # From here on nothing is awaited, and nothing is refused.
        config = applied(old.config, bound.config)
        pipeline.bound = dataclasses.replace(old, config=config, exporters=bound.exporters)
        if config.log != old.config.log:
            self._file.set_log(config.log)
        grace = config.shutdown_grace_period
        for name in plan.removed:
            keeper.take_out(name, grace)
        for name, new in replacements:
            keeper.lane(name).replace(
                new.open_exporter,
                new.batching,
                new.bounds,
                grace_seconds=grace,
                next_store=new.next_store,
                patience=new.patience,
            )
        for lane in lanes:
            keeper.add(lane)
        self._log.info(
            "configuration_reloaded",
            keys=list(changes.live),
            exporters_added=[plugin.entry.name for plugin in plan.added],
            exporters_changed=[plugin.entry.name for plugin in plan.changed],
            exporters_removed=plan.removed,
        )
        fixed = [*changes.fixed, *_new_elements(old, bound)]
        if fixed:
            self._log.warning("restart_needed", keys=fixed, problem="these cannot change while running")

    def _moved(self, plan: _Plan, keeper: LaneKeeper) -> set[str]:
        """Whose lane is in a store of the other kind than it is to have."""
        is_spooled = self._pipeline.lane_maker.is_spooled
        entries = ((plugin.entry.name, is_spooled(plugin)) for plugin in plan.changed)
        return {name for name, is_to_be in entries if keeper.lane(name).is_durable != is_to_be}

    async def _in_thread(self, function: Callable[[], T], *, may_hang: bool = False) -> T:
        """``may_hang``: in a file system that is away, in a plugin's import; the run's end does not wait for it."""
        return await self._run(function, limiter=self._limiter, abandon_on_cancel=may_hang)


def _plan(old: tuple[BoundExporter, ...], new: tuple[BoundExporter, ...]) -> _Plan:
    before = {plugin.entry.name: plugin.entry for plugin in old}
    after = {plugin.entry.name for plugin in new}
    return _Plan(
        added=[plugin for plugin in new if plugin.entry.name not in before],
        changed=[plugin for plugin in new if before.get(plugin.entry.name, plugin.entry) != plugin.entry],
        removed=[name for name in before if name not in after],
    )


def _new_elements(old: BoundConfig, new: BoundConfig) -> list[str]:
    """What a plugin that was not loaded before defines: flows have had their elements since the start."""
    known = {element.name for element in old.registry} | {element.name for element in new.elements}
    names = sorted(element.name for element in new.registry if element.name not in known)
    return [f"Information Elements of plugins that were not loaded before: {', '.join(names)}"] if names else []
