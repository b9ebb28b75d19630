"""The whole pipeline: enrichers, look-ups, sources, and types that make no sense."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from agent_traffic import agent_messages
from pipeline_bench import (
    COLOUR,
    TIMEOUTS,
    TRAFFIC,
    KeepingExporter,
    NoSettings,
    PipelineBench,
    PipelinePlugins,
    keys_of,
)
from pipeline_fakes import batch_of

from flowjoin._generator.config import TrafficConfig
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin, FlowSchema
from flowjoin._pipeline.assembly import assemble
from flowjoin._pipeline.health import State
from flowjoin._pipeline.kernel_factory import make_kernel
from flowjoin._pipeline.state_directory import open_state
from flowjoin._telemetry.metrics import Metrics
from flowjoin.api import (
    Batching,
    EnricherType,
    PluginContext,
    PluginContractError,
    Pod,
    PodLookup,
)
from flowjoin.wire.registry import default_registry


async def test_what_an_enricher_gave_is_repeated_on_later_exports_without_asking_again(
    autojump_clock, tmp_path, kernel_form
) -> None:
    asked: list[int] = []

    def paint(_context: PluginContext) -> Callable[[FlowBatch], Any]:
        def enrich(batch: FlowBatch) -> Any:
            asked.append(len(batch))
            return {"colour": ["blue"] * len(batch)}

        return enrich

    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"paint": paint}
    bench = PipelineBench(
        TIMEOUTS + "exporters: [{type: one}]\nenrichers: [{type: paint}]", plugins, tmp_path, kernel_form
    )
    messages = list(agent_messages(TrafficConfig(flows=20, seed=1, updates=1)))
    half = len(messages) // 2
    async with bench.running():
        await bench.feed(messages[: half + 8])
        await trio.sleep(7)
        await bench.feed(messages[half + 8 :])
        await trio.sleep(30)

    rows = plugins.exporters["one"].dicts
    assert {row["colour"] for row in rows} == {"blue"}
    assert sum(asked) < len(rows)
    assert bench.outcome is not None
    assert bench.outcome.books.enrichers["paint"].enriched == sum(asked)


async def test_rows_that_passed_a_failing_enricher_are_offered_again_at_their_next_export(
    autojump_clock, tmp_path, kernel_form
) -> None:
    calls = 0

    def paint(_context: PluginContext) -> Callable[[FlowBatch], Any]:
        def enrich(batch: FlowBatch) -> Any:
            nonlocal calls
            calls += 1
            if calls <= 2:
                raise KeyError("tables not there")
            return {"colour": ["blue"] * len(batch)}

        return enrich

    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"paint": paint}
    bench = PipelineBench(
        TIMEOUTS + "exporters: [{type: one}]\nenrichers: [{type: paint}]", plugins, tmp_path, kernel_form
    )
    messages = list(agent_messages(TrafficConfig(flows=20, seed=1, updates=3, inter_node_share=0, external_share=0)))
    part = len(messages) // 4
    async with bench.running():
        for start in range(0, len(messages), part):
            await bench.feed(messages[start : start + part])
            await trio.sleep(6)
        await trio.sleep(30)

    rows = plugins.exporters["one"].dicts
    assert {row["colour"] for row in rows} == {"", "blue"}
    last: dict[tuple[Any, ...], str] = {}
    for row in rows:
        last[next(iter(keys_of([row])))] = row["colour"]
    assert set(last.values()) == {"blue"}
    assert bench.outcome is not None
    assert bench.outcome.books.enrichers["paint"].passed > 0


async def test_a_plugin_hears_at_once_whether_pods_labels_are_wanted(autojump_clock, tmp_path) -> None:
    contexts: list[PluginContext] = []

    def paint(context: PluginContext) -> Callable[[FlowBatch], Any]:
        contexts.append(context)
        return lambda _batch: {}

    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"paint": paint}
    text = "exporters: [{type: one}]\nenrichers: [{type: paint}]\n"
    bench = PipelineBench(text, plugins, tmp_path)
    with_labels = PipelineBench(text + "recordContents: {podLabels: true}", plugins, tmp_path).bound
    async with bench.running() as pipeline:
        (context,) = contexts
        assert not context.wants_pod_labels
        pipeline.bound = with_labels
        assert context.wants_pod_labels


async def test_a_plugin_that_says_it_works_in_part_is_degraded_until_it_says_otherwise_or_fails(
    autojump_clock, tmp_path
) -> None:
    contexts: list[PluginContext] = []

    def paint(context: PluginContext) -> Callable[[FlowBatch], Any]:
        def enrich(batch: FlowBatch) -> Any:
            if len(contexts) == 1:
                raise KeyError("a bug")
            return {"colour": ["blue"] * len(batch)}

        contexts.append(context)
        context.impaired("half of it is not there")
        return enrich

    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"paint": paint}
    bench = PipelineBench(TIMEOUTS + "exporters: [{type: one}]\nenrichers: [{type: paint}]", plugins, tmp_path)
    async with bench.running() as pipeline:

        def health() -> tuple[State, str]:
            (row,) = (row for row in pipeline.health.snapshot() if row.component == "enrichers/paint")
            return row.state, row.problem

        assert health() == (State.DEGRADED, "half of it is not there")
        contexts[0].impaired("")
        assert health() == (State.OK, "")
        contexts[0].impaired("again")
        await bench.feed(agent_messages(TRAFFIC))
        await trio.sleep(1.1)
        assert health() == (State.DEGRADED, "KeyError: 'a bug'")
        await trio.sleep(3)
        assert health() == (State.DEGRADED, "half of it is not there")  # as the second one says
        await bench.feed(agent_messages(TRAFFIC))
        await trio.sleep(10)
        assert health() == (State.DEGRADED, "half of it is not there")  # also when rows go through it


async def test_in_proxy_mode_every_record_is_a_row_that_passes_the_enrichers(autojump_clock, tmp_path) -> None:
    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"paint": lambda _: lambda batch: {"colour": ["green"] * len(batch)}}
    bench = PipelineBench("mode: Proxy\nexporters: [{type: one}]\nenrichers: [{type: paint}]", plugins, tmp_path)
    async with bench.running() as pipeline:
        await bench.feed(agent_messages(TRAFFIC))
        await trio.sleep(1.5)
        records = pipeline.kernel.statistics().records_received
        assert records > TRAFFIC.flows
        assert len(plugins.exporters["one"].dicts) == records

    assert {row["colour"] for row in plugins.exporters["one"].dicts} == {"green"}
    assert bench.outcome is not None
    assert bench.outcome.books.enrichers["paint"].enriched == records


class Hanging(PipelinePlugins):
    """Its enrichers never finish opening."""

    def enricher_type(self, name: str) -> EnricherType:
        @asynccontextmanager
        async def open_enricher(_settings: NoSettings, _context: PluginContext) -> AsyncIterator[Any]:
            await trio.sleep_forever()
            yield

        return EnricherType(name, NoSettings, (), ("sourcePodName",), open_enricher, 1)


async def test_an_enricher_that_hangs_while_it_opens_delays_the_start_only_for_a_while(
    autojump_clock, tmp_path
) -> None:
    plugins = Hanging()
    plugins.exporters = {"one": KeepingExporter()}
    bench = PipelineBench("exporters: [{type: one}]\nenrichers: [{type: slow}]", plugins, tmp_path)
    async with bench.running():
        await trio.sleep(29)
        assert bench.lines("ready") == []
        await trio.sleep(2)
        assert len(bench.lines("ready")) == 1
        await bench.feed(agent_messages(TRAFFIC))

    assert bench.outcome is not None
    assert bench.outcome.exit_code == 0
    assert len(keys_of(plugins.exporters["one"].dicts)) == TRAFFIC.flows
    assert bench.outcome.books.enrichers["slow"].passed == len(plugins.exporters["one"].dicts)


async def test_a_wish_to_stop_is_heard_while_enrichers_still_open(autojump_clock, tmp_path) -> None:
    plugins = Hanging()
    plugins.exporters = {"one": KeepingExporter()}
    bench = PipelineBench("exporters: [{type: one}]\nenrichers: [{type: slow}]", plugins, tmp_path)
    async with bench.running():
        await trio.sleep(3)

    assert bench.outcome is not None
    assert bench.outcome.exit_code == 0
    assert trio.current_time() < 4


async def test_an_enricher_asks_a_look_up_through_its_context(autojump_clock, tmp_path) -> None:
    class Pods:
        def pod(self, address: str, at: float | None = None) -> Pod | None:
            return Pod(namespace="n", name=f"pod of {address}")

    def name_pods(context: PluginContext) -> Callable[[FlowBatch], Any]:
        pods = context.lookup(PodLookup)

        def enrich(batch: FlowBatch) -> Any:
            names = []
            for address in batch.address_text("source"):
                pod = pods.pod(address)
                names.append(pod.name if pod else "")
            return {"sourcePodName": names, "colour": names}

        return enrich

    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"pods": name_pods}
    plugins.lookups = {"k8s": Pods()}
    text = "exporters: [{type: one}]\nenrichers: [{type: pods}]\nlookups: [{type: k8s}]"
    bench = PipelineBench(TIMEOUTS + text, plugins, tmp_path)
    async with bench.running():
        await bench.feed(agent_messages(TRAFFIC))

    rows = plugins.exporters["one"].dicts
    assert all(row["colour"].startswith("pod of ") for row in rows)
    filled = [row for row in rows if row["sourcePodName"].startswith("pod of ")]
    assert 0 < len(filled) < len(rows)  # the others had a name of their own


async def test_rows_of_a_source_go_through_enrichers_to_the_lanes(autojump_clock, tmp_path) -> None:
    schema = FlowSchema(
        origin=FlowOrigin.SOURCE,
        family=AddressFamily.IPV4,
        elements=(default_registry().by_name("octetDeltaCount"), default_registry().by_name("interfaceName")),
        registry=default_registry().extended([COLOUR]),
    )

    async def batches() -> AsyncIterator[FlowBatch]:
        yield batch_of(1, 2, schema=schema)
        await trio.sleep(1)
        yield batch_of(3, schema=schema)

    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"paint": lambda _: lambda batch: {"colour": ["red"] * len(batch)}}
    plugins.sources = {"made": batches}
    text = "exporters: [{type: one}]\nenrichers: [{type: paint}]\nsources: [{type: made}]"
    bench = PipelineBench(TIMEOUTS + text, plugins, tmp_path)
    async with bench.running():
        await trio.sleep(5)

    rows = plugins.exporters["one"].dicts
    assert [(row["octetDeltaCount"], row["colour"]) for row in rows] == [(1, "red"), (2, "red"), (3, "red")]
    assert bench.outcome is not None
    assert bench.outcome.books.source_rows == {"made": 3}
    assert {row.component: row.state for row in bench.pipeline.health.snapshot()}["sources/made"] is State.ENDED


def test_a_batching_that_raises_is_the_plugins_error(tmp_path, monkeypatch) -> None:
    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    monkeypatch.delattr(plugins, "batching")
    bench = PipelineBench("exporters: [{type: one}]", plugins, tmp_path)
    with open_state(None) as state, pytest.raises(PluginContractError, match="its batching failed: AttributeError"):
        assemble(
            bench.bound,
            make_kernel(bench.bound, cluster_uuid=state.cluster_uuid, form="auto"),
            state=state,
            logs=bench.logs,
            metrics=Metrics(),
            random=lambda: 1.0,
            clock=lambda: 0.0,
        )


@pytest.mark.parametrize("batching", [Batching(records=0), Batching(octets=0), Batching(interval=-1.0), None])
def test_a_batching_that_nothing_fits_is_the_plugins_error(tmp_path, batching) -> None:
    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.batching = batching
    bench = PipelineBench("exporters: [{type: one}]", plugins, tmp_path)
    with open_state(None) as state, pytest.raises(PluginContractError, match=r"'one'.*its batching gave"):
        assemble(
            bench.bound,
            make_kernel(bench.bound, cluster_uuid=state.cluster_uuid, form="auto"),
            state=state,
            logs=bench.logs,
            metrics=Metrics(),
            random=lambda: 1.0,
            clock=lambda: 0.0,
        )
