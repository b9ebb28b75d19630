from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from pipeline_fakes import MemoryLog, schema_of

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import FlowOrigin
from flowjoin._pipeline.enrichment import EnricherSlot, Enrichment
from flowjoin._pipeline.health import HealthTable, State
from flowjoin.api import EnricherType

SCHEMA = schema_of("octetDeltaCount", "interfaceName", "interfaceDescription", "applicationName")


def rows(*names: str, is_first_export: bool = True, origin: FlowOrigin = FlowOrigin.PLAIN) -> FlowBatch:
    schema = schema_of(*SCHEMA.names, origin=origin)
    columns = {"octetDeltaCount": range(len(names)), "interfaceName": names}
    return FlowBatch.from_columns(schema, columns, is_first_export=is_first_export)


class Store:
    """Stands for the kernel's store_enriched."""

    def __init__(self) -> None:
        self.calls: list[tuple[FlowBatch, Mapping[str, Any]]] = []

    def __call__(self, batch: FlowBatch, columns: Mapping[str, Any]) -> None:
        self.calls.append((batch, {name: list(column) for name, column in columns.items()}))


Enrich = Callable[[FlowBatch], Any]


class Bench:
    def __init__(self, *enrichers: Enrich, fails_to_open: int = 0) -> None:
        self.health = HealthTable(lambda: 1.0)
        self.log = MemoryLog()
        self.store = Store()
        self.opened = 0
        self._left_to_fail = fails_to_open
        self.slots = [self._slot(f"e{index}", enrich) for index, enrich in enumerate(enrichers)]
        self.enrichment = Enrichment(self.slots, self.store)

    def _slot(self, name: str, enrich: Enrich) -> EnricherSlot:
        class Opened:
            pass

        opened = Opened()
        opened.enrich = enrich  # type: ignore[attr-defined]

        @asynccontextmanager
        async def open_enricher() -> AsyncIterator[Any]:
            if self._left_to_fail:
                self._left_to_fail -= 1
                raise OSError("no tables")
            self.opened += 1
            yield opened

        fills = ("interfaceName", "flowDirection")
        declared = EnricherType(name, dict, ("interfaceDescription",), fills, open_enricher, 1)  # type: ignore[arg-type]
        return EnricherSlot(declared, open_enricher, component=self.health.add("enrichers", name), log=self.log)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Enrichment]:
        async with trio.open_nursery() as nursery:
            for slot in self.slots:
                nursery.start_soon(slot.run)
                await slot.wait_tried()
            yield self.enrichment
            nursery.cancel_scope.cancel()

    def state(self, index: int = 0) -> State:
        return self.health.snapshot()[index].state


def fill(value: str, name: str = "interfaceName") -> Enrich:
    return lambda batch: {name: [value] * len(batch)}


async def test_a_value_is_filled_only_where_the_record_had_the_default(autojump_clock) -> None:
    bench = Bench(fill("eth0"))
    async with bench.running() as enrichment:
        enriched = enrichment.enrich(rows("given", "", "also"))

    assert list(enriched.column("interfaceName")) == ["given", "eth0", "also"]
    assert list(enriched.column("octetDeltaCount")) == [0, 1, 2]


async def test_a_direction_is_filled_where_it_is_unknown_and_ingress_stays(autojump_clock) -> None:
    bench = Bench(lambda batch: {"flowDirection": [1] * len(batch)})
    columns = {"flowDirection": [0, 255]}
    batch = FlowBatch.from_columns(schema_of("flowDirection"), columns, is_first_export=True)
    async with bench.running() as enrichment:
        assert list(enrichment.enrich(batch).column("flowDirection")) == [0, 1]


async def test_the_result_is_stored_once_with_the_columns_of_all_enrichers(autojump_clock) -> None:
    bench = Bench(
        fill("eth0"), lambda batch: {"interfaceDescription": [f"is {n}" for n in batch.column("interfaceName")]}
    )
    batch = rows("", "a")
    async with bench.running() as enrichment:
        enriched = enrichment.enrich(batch)

    assert list(enriched.column("interfaceDescription")) == ["is eth0", "is a"]
    ((stored, columns),) = bench.store.calls
    assert stored is batch
    assert columns == {"interfaceName": ["eth0", "a"], "interfaceDescription": ["is eth0", "is a"]}


async def test_an_earlier_enricher_wins_over_a_later_one(autojump_clock) -> None:
    bench = Bench(fill("first"), fill("second"))
    async with bench.running() as enrichment:
        assert list(enrichment.enrich(rows("")).column("interfaceName")) == ["first"]


async def test_rows_of_later_exports_are_not_offered(autojump_clock) -> None:
    bench = Bench(fill("eth0"))
    batch = rows("", is_first_export=False)
    async with bench.running() as enrichment:
        assert enrichment.enrich(batch) is batch
    assert bench.store.calls == []


@pytest.mark.parametrize("origin", [FlowOrigin.PROXY, FlowOrigin.SOURCE])
async def test_rows_without_a_flow_are_offered_and_nothing_is_stored(autojump_clock, origin) -> None:
    bench = Bench(fill("eth0"))
    async with bench.running() as enrichment:
        enriched = enrichment.enrich(rows("", is_first_export=False, origin=origin))
    assert list(enriched.column("interfaceName")) == ["eth0"]
    assert bench.store.calls == []


async def test_an_enricher_that_says_nothing_has_done_its_work(autojump_clock) -> None:
    bench = Bench(lambda _: {})
    async with bench.running() as enrichment:
        enrichment.enrich(rows("a"))
    assert [columns for _, columns in bench.store.calls] == [{}]


async def test_an_element_that_this_kind_of_flow_lacks_is_left_out(autojump_clock) -> None:
    bench = Bench(fill("eth0"))
    narrow = FlowBatch.from_columns(schema_of("octetDeltaCount"), {"octetDeltaCount": [1]}, is_first_export=True)
    async with bench.running() as enrichment:
        assert enrichment.enrich(narrow).schema.names == ("octetDeltaCount",)
    assert [columns for _, columns in bench.store.calls] == [{}]


async def test_where_an_enricher_raises_rows_pass_are_counted_and_offered_again(autojump_clock) -> None:
    calls = []

    def sometimes(batch: FlowBatch) -> Any:
        calls.append(len(batch))
        if len(calls) == 1:
            raise KeyError("bug")
        return {"interfaceDescription": ["seen"] * len(batch)}

    bench = Bench(fill("eth0"), sometimes)
    batch = rows("", "")
    async with bench.running() as enrichment:
        first = enrichment.enrich(batch)
        assert list(first.column("interfaceName")) == ["eth0", "eth0"]  # what the healthy one gave
        assert list(first.column("interfaceDescription")) == ["", ""]
        assert bench.store.calls == []
        await trio.testing.wait_all_tasks_blocked()
        assert bench.state(1) is State.DEGRADED
        enrichment.enrich(batch)  # still down
        assert calls == [2]
        await trio.sleep(5)
        again = enrichment.enrich(batch)

    assert list(again.column("interfaceDescription")) == ["seen", "seen"]
    assert len(bench.store.calls) == 1
    assert (bench.slots[1].books().enriched, bench.slots[1].books().passed) == (2, 4)
    assert bench.opened == 3
    (facts,) = bench.log.facts("plugin_failed")
    assert isinstance(facts["exc_info"], KeyError)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "not a mapping"),
        ({"octetDeltaCount": [1, 1]}, "does not declare"),
        ({"interfaceName": ["one"]}, "1 values of interfaceName for 2 rows"),
        ({"interfaceName": [1, 2]}, "does not fit"),
        ({"interfaceName": [None, "x"]}, "does not fit"),
        ({"noSuchElement": ["x", "x"]}, "does not declare"),
    ],
)
async def test_a_result_that_breaks_the_contract_is_the_enrichers_failure(autojump_clock, given, problem) -> None:
    bench = Bench(lambda _: given)
    batch = rows("", "")
    async with bench.running() as enrichment:
        assert enrichment.enrich(batch) == batch
        await trio.testing.wait_all_tasks_blocked()
        assert problem in bench.health.snapshot()[0].problem

    assert bench.store.calls == []


async def test_while_an_enricher_cannot_open_rows_pass_with_defaults(autojump_clock) -> None:
    bench = Bench(fill("eth0"), fails_to_open=2)
    async with bench.running() as enrichment:
        assert list(enrichment.enrich(rows("")).column("interfaceName")) == [""]
        await trio.sleep(5)
        assert list(enrichment.enrich(rows("")).column("interfaceName")) == ["eth0"]

    assert bench.slots[0].books().passed == 1
    assert len(bench.store.calls) == 1


async def test_without_enrichers_nothing_changes(autojump_clock) -> None:
    batch = rows("a")
    store = Store()
    assert Enrichment([], store).enrich(batch) is batch
    assert len(store.calls) == 1


async def test_an_open_that_yields_no_enricher_is_a_failure(autojump_clock, nursery) -> None:
    @asynccontextmanager
    async def open_nothing() -> AsyncIterator[Any]:
        yield None

    health = HealthTable(lambda: 1.0)
    declared = EnricherType("e", dict, (), (), open_nothing, 1)  # type: ignore[arg-type]
    slot = EnricherSlot(declared, open_nothing, component=health.add("enrichers", "e"), log=MemoryLog())
    nursery.start_soon(slot.run)
    await slot.wait_tried()

    assert "which has no enrich" in health.snapshot()[0].problem
    nursery.cancel_scope.cancel()
