from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import trio
from pipeline_fakes import MemoryLog
from spool_bench import at_once

from flowjoin._model.errors import ConfigError
from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.reload import ConfigurationFile, Reloader


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
