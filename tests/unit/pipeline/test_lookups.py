from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from pipeline_fakes import MemoryLog

from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.lookups import Lookups, LookupSlot
from flowjoin.api import ConfigError, LookupType, NodeLookup, PluginError, Pod, PodLookup, ServiceLookup


class Provider:
    def __init__(self, name: str) -> None:
        self._name = name

    def pod(self, address: str, at: float | None = None) -> Pod | None:
        return Pod(namespace=address, name=self._name)


class Bench:
    def __init__(self, name: str, provides: tuple[type, ...], provider: object) -> None:
        self.kill = trio.Event()
        self.opened = 0

        @asynccontextmanager
        async def open_lookup() -> AsyncIterator[Any]:
            async def die() -> None:
                await self.kill.wait()
                raise OSError("watch ended")

            self.opened += 1
            async with trio.open_nursery() as nursery:
                nursery.start_soon(die)
                yield provider
                nursery.cancel_scope.cancel()

        self.health = HealthTable(lambda: 1.0)
        lookup_type = LookupType(name, dict, provides, open_lookup, 1)  # type: ignore[arg-type]
        component = self.health.add("lookups", name)
        self.slot = LookupSlot(lookup_type, open_lookup, component=component, log=MemoryLog())


async def test_the_first_configured_provider_of_a_protocol_answers(autojump_clock, nursery) -> None:
    one, two = Bench("one", (PodLookup,), Provider("one")), Bench("two", (PodLookup,), Provider("two"))
    for bench in (one, two):
        nursery.start_soon(bench.slot.run)
        await bench.slot.wait_tried()

    lookup = Lookups([one.slot, two.slot]).get(PodLookup)

    assert isinstance(lookup, PodLookup)
    assert lookup.pod("10.0.0.1") == Pod(namespace="10.0.0.1", name="one")
    assert lookup.pod(address="10.0.0.1", at=5.0) is not None
    nursery.cancel_scope.cancel()


def test_a_protocol_that_nothing_provides_is_the_operators_error() -> None:
    bench = Bench("one", (PodLookup,), Provider("one"))

    with pytest.raises(ConfigError, match="nothing under lookups provides NodeLookup"):
        Lookups([bench.slot]).get(NodeLookup)


async def test_what_was_given_out_survives_a_restart_of_the_provider(autojump_clock, nursery) -> None:
    bench = Bench("one", (PodLookup,), Provider("one"))
    nursery.start_soon(bench.slot.run)
    await bench.slot.wait_tried()
    lookup = Lookups([bench.slot]).get(PodLookup)
    bench.kill.set()
    await trio.sleep(0.5)

    with pytest.raises(PluginError, match="not open"):
        lookup.pod("10.0.0.1")
    bench.kill = trio.Event()
    await trio.sleep(5)

    assert lookup.pod("10.0.0.1") is not None
    assert bench.opened == 2
    nursery.cancel_scope.cancel()


async def test_a_provider_without_a_promised_method_fails(autojump_clock, nursery) -> None:
    bench = Bench("one", (PodLookup, ServiceLookup), Provider("one"))
    nursery.start_soon(bench.slot.run)
    await bench.slot.wait_tried()

    assert "Provider without ServiceLookup.service_by_address" in bench.health.snapshot()[0].problem
    nursery.cancel_scope.cancel()
