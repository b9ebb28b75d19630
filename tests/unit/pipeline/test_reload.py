from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from pipeline_fakes import MemoryLog
from spool_bench import at_once

from flowjoin._config.load import load_config
from flowjoin._config.plugin_settings import BoundConfig, BoundPlugin
from flowjoin._model.errors import ConfigError
from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.reload import ConfigurationFile, Reloader
from flowjoin.wire.registry import default_registry


async def test_the_end_of_a_run_does_not_wait_for_a_file_system_that_is_away() -> None:
    is_reading, is_back = threading.Event(), threading.Event()

    def read(_path: str) -> bytes:
        is_reading.set()
        is_back.wait(60)
        return b""

    file = ConfigurationFile(
        path="f", octets=b"", bind=lambda _octets: (None, ()), set_log=lambda _log: None, read=read
    )  # type: ignore[arg-type,return-value]
    pipeline: Any = SimpleNamespace(
        lane_maker=SimpleNamespace(instances=SimpleNamespace(state=None)),
        health=HealthTable(lambda: 1.0),
        logs=SimpleNamespace(logger=lambda **_facts: MemoryLog()),
    )
    reloader = Reloader(file, pipeline)
    keeper: Any = None
    try:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reloader.run, keeper)
                reloader.wish()
                await trio.to_thread.run_sync(is_reading.wait, 30)
                nursery.cancel_scope.cancel()
    finally:
        is_back.set()
    assert is_reading.is_set()


async def test_a_file_is_taken_when_two_looks_find_the_same_so_that_half_of_one_is_not(autojump_clock) -> None:
    looks = iter([b"old", b"ne", b"new", b"new", b"new"])
    taken: list[bytes] = []

    def bind(octets: bytes) -> Any:
        taken.append(octets)
        raise ConfigError("no more is wanted here")

    file = ConfigurationFile(
        path="f", octets=b"old", bind=bind, set_log=lambda _log: None, read=lambda _path: next(looks)
    )
    pipeline: Any = SimpleNamespace(
        lane_maker=SimpleNamespace(instances=SimpleNamespace(state=None)),
        health=HealthTable(lambda: 1.0),
        logs=SimpleNamespace(logger=lambda **_facts: MemoryLog()),
    )
    keeper: Any = None
    with trio.move_on_after(5.5):
        await Reloader(file, pipeline, run=at_once).run(keeper)
    assert taken == [b"new"]


class Lanes:
    """One lane, whose change of store by an earlier reload comes about while the next reload waits for the disk."""

    def __init__(self, *, is_durable: bool) -> None:
        self.is_durable = is_durable
        self.moves: list[bool] = []  # of each reload: whether it makes another store
        self.epochs = 1

    def lane(self, _name: str) -> Lanes:
        return self

    def is_spooled(self, plugin: Any) -> bool:
        return plugin.entry.spool != "none"

    def replacement(self, _plugin: Any, _state: Any, *, is_moved: bool) -> Any:
        self.moves.append(is_moved)
        return SimpleNamespace(open_exporter=None, batching=None, bounds=None, next_store=None, patience=1.0)

    def replace(self, *_others: Any, **_facts: Any) -> None: ...

    def next_epoch(self) -> Lanes:
        self.epochs += 1
        return self


def exporter(spool: str) -> Any:
    return BoundPlugin(entry=SimpleNamespace(name="audit", spool=spool), type=None, settings=None)


@pytest.mark.parametrize("comes_about", [True, False])
async def test_a_store_that_changed_while_a_reload_waited_is_not_made_a_second_time(comes_about: bool) -> None:
    """Two spools on one directory would take each other's files."""
    lanes = Lanes(is_durable=False)
    config = load_config("").config

    def bind(octets: bytes) -> Any:
        registry = default_registry()
        bound = BoundConfig(
            config=config, registry=registry, elements=(), sources=(), enrichers=(), lookups=(),
            exporters=(exporter(octets.decode()),),
        )  # fmt: skip
        return bound, ()

    file = ConfigurationFile(path="f", octets=b"none", bind=bind, set_log=lambda _log: None)
    pipeline: Any = SimpleNamespace(
        lane_maker=SimpleNamespace(
            instances=SimpleNamespace(state=lanes), is_spooled=lanes.is_spooled, replacement=lanes.replacement
        ),
        health=HealthTable(lambda: 1.0),
        logs=SimpleNamespace(logger=lambda **_facts: MemoryLog()),
        bound=bind(b"none")[0],
    )
    keeper: Any = lanes

    async def run(function: Any, /, **_facts: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if function == lanes.next_epoch and comes_about:
            lanes.is_durable = True
        return function()

    await Reloader(file, pipeline, run=run)._consider(b"a spool", keeper)
    assert lanes.moves == [not comes_about]
    assert lanes.epochs == 2


async def test_a_storm_of_signals_is_one_look_after_another_and_the_last_one_is_not_missed(autojump_clock) -> None:
    octets = b"old"
    looks: list[bytes] = []
    taken: list[bytes] = []
    log = MemoryLog()

    def bind(found: bytes) -> Any:
        taken.append(found)
        raise ConfigError("no more is wanted here")

    def read(_path: str) -> bytes:
        looks.append(octets)
        return octets

    file = ConfigurationFile(path="f", octets=octets, bind=bind, set_log=lambda _log: None, read=read)
    pipeline: Any = SimpleNamespace(
        lane_maker=SimpleNamespace(instances=SimpleNamespace(state=None)),
        health=HealthTable(lambda: 1.0),
        logs=SimpleNamespace(logger=lambda **_facts: log),
    )

    async def slow(function: Any, /, **_facts: Any) -> Any:
        found = function()
        await trio.sleep(0.4)
        return found

    reloader = Reloader(file, pipeline, run=slow)
    keeper: Any = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloader.run, keeper)
        for number in range(1000):
            octets = b"%d" % number
            reloader.wish()
            await trio.sleep(0.001)
        octets = b"last"
        reloader.wish()
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert len(looks) < 10
    assert taken[-1] == b"last"
    assert len(taken) <= len(looks)
