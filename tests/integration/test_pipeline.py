"""The whole pipeline with the real kernel, ends in memory, and a clock that jumps."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from agent_traffic import agent_messages
from pipeline_fakes import MemoryExporter, batch_of, cancelled_at_step
from spool_bench import at_once

from flowjoin._config.load import load_config
from flowjoin._config.plugin_settings import bind_plugins
from flowjoin._generator.config import TrafficConfig
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import BindError
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin, FlowSchema
from flowjoin._pipeline.assembly import Pipeline, assemble
from flowjoin._pipeline.health import State
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
    PermanentExportError,
    PluginContext,
    PluginContractError,
    Pod,
    PodLookup,
    RetryableExportError,
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


class Plugins:
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


class Bench:
    """A pipeline of a configuration's text, running in a nursery until told to stop."""

    def __init__(self, text: str, plugins: Plugins, directory: Path, form: str = "auto") -> None:
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


async def test_every_flow_is_joined_and_delivered_to_every_exporter(autojump_clock, tmp_path) -> None:
    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter(), "two": KeepingExporter()}
    bench = Bench(TIMEOUTS + "exporters: [{type: one}, {type: two}]", plugins, tmp_path)
    async with bench.running():
        await bench.feed(agent_messages(TRAFFIC))
        await trio.sleep(30)

    assert bench.outcome is not None
    assert bench.outcome.exit_code == 0
    assert len(keys_of(plugins.exporters["one"].dicts)) == TRAFFIC.flows
    assert plugins.exporters["one"].dicts == plugins.exporters["two"].dicts
    books = bench.outcome.books
    assert books.kernel.flows_created == TRAFFIC.flows
    assert (books.kernel.flows_held, books.undelivered) == (0, 0)
    assert books.lanes["one"].delivered == books.rows


async def test_at_the_end_every_ready_flow_leaves_at_once(autojump_clock, tmp_path) -> None:
    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    bench = Bench("exporters: [{type: one}]", plugins, tmp_path)
    async with bench.running():
        await bench.feed(agent_messages(TRAFFIC))

    assert len(keys_of(plugins.exporters["one"].dicts)) == TRAFFIC.flows
    assert trio.current_time() < 1


@pytest.mark.parametrize("spool", ["", ", spool: none"])
@pytest.mark.parametrize("trouble", ["hangs", "refuses", "cannot_open", "bug"])
async def test_trouble_of_one_exporter_delays_neither_the_table_nor_another_one(
    autojump_clock, tmp_path, trouble, spool
) -> None:
    class Closed(KeepingExporter):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[Any]:
            raise OSError("no such host")
            yield

    async def hang(_batch: FlowBatch) -> None:
        await trio.sleep_forever()

    script: dict[str, list[Any]] = {
        "hangs": [hang],
        "refuses": [RetryableExportError("full")] * 1000,
        "bug": [ZeroDivisionError()] * 3,
        "cannot_open": [],
    }
    plugins = Plugins()
    bad = Closed() if trouble == "cannot_open" else KeepingExporter(script[trouble])
    plugins.exporters = {"bad": bad, "good": KeepingExporter()}
    bench = Bench(TIMEOUTS + f"exporters: [{{type: bad{spool}}}, {{type: good{spool}}}]", plugins, tmp_path)
    async with bench.running():
        await bench.feed(agent_messages(TRAFFIC))
        await trio.sleep(1.5)
        early = len(plugins.exporters["good"].dicts)
        await trio.sleep(30)
        if trouble != "bug":
            assert bench.pipeline.books().lanes["bad"].delivered == 0

    assert early > 0  # what needs no other half leaves at the first tick
    assert len(keys_of(plugins.exporters["good"].dicts)) == TRAFFIC.flows
    assert bench.outcome is not None
    is_left = trouble != "bug"
    assert bench.outcome.exit_code == int(is_left and bool(spool))
    assert bool(bench.outcome.books.undelivered) == is_left
    if is_left:
        assert bench.lines("grace_period_over")
    if is_left and not spool:
        await _the_next_run_delivers_the_rest(plugins, tmp_path, bench.outcome.books.undelivered)


async def _the_next_run_delivers_the_rest(plugins: Plugins, directory: Path, rows: int) -> None:
    plugins.exporters["bad"] = KeepingExporter()
    bench = Bench(TIMEOUTS + "exporters: [{type: bad}, {type: good}]", plugins, directory)
    async with bench.running() as pipeline:
        await trio.sleep(1)
        books = pipeline.books().lanes["bad"]
        assert (books.restored, books.delivered, books.held) == (rows, rows, 0)
    assert len(plugins.exporters["bad"].dicts) == rows
    assert not list((directory / "state" / "spool" / "bad").glob("*.ipfix"))


@pytest.mark.parametrize("spool", ["", ", spool: none"])
async def test_a_second_wish_stops_at_once_and_undelivered_rows_are_told(autojump_clock, tmp_path, spool) -> None:
    plugins = Plugins()
    plugins.exporters = {"bad": KeepingExporter([RetryableExportError()] * 1000)}
    bench = Bench(TIMEOUTS + f"exporters: [{{type: bad{spool}}}]", plugins, tmp_path)
    async with bench.running():
        await bench.feed(agent_messages(TRAFFIC))
        await trio.sleep(2)
        bench.stop.wish()
        await trio.sleep(1)
        assert bench.outcome is None
        bench.stop.wish()
        await trio.testing.wait_all_tasks_blocked()

        assert trio.current_time() == 3
        assert bench.outcome is not None
        assert bench.outcome.exit_code == int(bool(spool))
        assert bench.outcome.books.undelivered > 0
    assert plugins.exporters["bad"].closed == 1


async def test_what_an_enricher_gave_is_repeated_on_later_exports_without_asking_again(
    autojump_clock, tmp_path, kernel_form
) -> None:
    asked: list[int] = []

    def paint(_context: PluginContext) -> Callable[[FlowBatch], Any]:
        def enrich(batch: FlowBatch) -> Any:
            asked.append(len(batch))
            return {"colour": ["blue"] * len(batch)}

        return enrich

    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"paint": paint}
    bench = Bench(TIMEOUTS + "exporters: [{type: one}]\nenrichers: [{type: paint}]", plugins, tmp_path, kernel_form)
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

    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"paint": paint}
    bench = Bench(TIMEOUTS + "exporters: [{type: one}]\nenrichers: [{type: paint}]", plugins, tmp_path, kernel_form)
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

    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"paint": paint}
    text = "exporters: [{type: one}]\nenrichers: [{type: paint}]\n"
    bench = Bench(text, plugins, tmp_path)
    with_labels = Bench(text + "recordContents: {podLabels: true}", plugins, tmp_path).bound
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

    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"paint": paint}
    bench = Bench(TIMEOUTS + "exporters: [{type: one}]\nenrichers: [{type: paint}]", plugins, tmp_path)
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
    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"paint": lambda _: lambda batch: {"colour": ["green"] * len(batch)}}
    bench = Bench("mode: Proxy\nexporters: [{type: one}]\nenrichers: [{type: paint}]", plugins, tmp_path)
    async with bench.running() as pipeline:
        await bench.feed(agent_messages(TRAFFIC))
        await trio.sleep(1.5)
        records = pipeline.kernel.statistics().records_received
        assert records > TRAFFIC.flows
        assert len(plugins.exporters["one"].dicts) == records

    assert {row["colour"] for row in plugins.exporters["one"].dicts} == {"green"}
    assert bench.outcome is not None
    assert bench.outcome.books.enrichers["paint"].enriched == records


class Hanging(Plugins):
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
    bench = Bench("exporters: [{type: one}]\nenrichers: [{type: slow}]", plugins, tmp_path)
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
    bench = Bench("exporters: [{type: one}]\nenrichers: [{type: slow}]", plugins, tmp_path)
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

    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"pods": name_pods}
    plugins.lookups = {"k8s": Pods()}
    text = "exporters: [{type: one}]\nenrichers: [{type: pods}]\nlookups: [{type: k8s}]"
    bench = Bench(TIMEOUTS + text, plugins, tmp_path)
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

    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.enrichers = {"paint": lambda _: lambda batch: {"colour": ["red"] * len(batch)}}
    plugins.sources = {"made": batches}
    text = "exporters: [{type: one}]\nenrichers: [{type: paint}]\nsources: [{type: made}]"
    bench = Bench(TIMEOUTS + text, plugins, tmp_path)
    async with bench.running():
        await trio.sleep(5)

    rows = plugins.exporters["one"].dicts
    assert [(row["octetDeltaCount"], row["colour"]) for row in rows] == [(1, "red"), (2, "red"), (3, "red")]
    assert bench.outcome is not None
    assert bench.outcome.books.source_rows == {"made": 3}
    assert {row.component: row.state for row in bench.pipeline.health.snapshot()}["sources/made"] is State.ENDED


async def test_dead_letters_are_no_failure_of_the_run(autojump_clock, tmp_path) -> None:
    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter([PermanentExportError(rows=[0])])}
    bench = Bench("exporters: [{type: one}]", plugins, tmp_path)
    async with bench.running():
        await bench.feed(agent_messages(TRAFFIC))

    assert bench.outcome is not None
    assert bench.outcome.exit_code == 0
    assert bench.outcome.books.lanes["one"].dead_lettered == 1


async def test_ids_differ_between_two_starts_of_one_instance(autojump_clock, tmp_path) -> None:
    ids = []
    for _ in range(2):
        plugins = Plugins()
        plugins.exporters = {"one": KeepingExporter()}
        bench = Bench("exporters: [{type: one}]", plugins, tmp_path)
        async with bench.running():
            await bench.feed(agent_messages(TrafficConfig(flows=3)))
        ids.append({batch.id for batch in plugins.exporters["one"].accepted})

    assert ids[0]
    assert not ids[0] & ids[1]
    assert {id.split("/")[0] for id in ids[0]} == {id.split("/")[0] for id in ids[1]}


async def test_metrics_tell_what_the_books_tell(autojump_clock, tmp_path) -> None:
    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    bench = Bench("exporters: [{type: one, name: audit}]", plugins, tmp_path)
    async with bench.running() as pipeline:
        await bench.feed(agent_messages(TRAFFIC))

    text = pipeline.metrics.expose().decode()
    books = pipeline.books()
    assert f'flowjoin_lane_delivered_rows_total{{name="audit"}} {float(books.rows)}' in text
    assert f"flowjoin_kernel_records_received_total {float(books.kernel.records_received)}" in text
    assert 'flowjoin_one_opened_files_total{name="audit"} 1.0' in text
    assert 'flowjoin_component_degraded{name="exporters/audit"} 0.0' in text


async def test_what_a_peer_sends_wrong_is_a_line_with_its_address(autojump_clock, tmp_path) -> None:
    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    bench = Bench("exporters: [{type: one}]", plugins, tmp_path)
    (_, session), *_ = agent_messages(TrafficConfig(flows=0))
    async with bench.running():
        for _ in range(50):
            await bench.feed([(b"\x00\x0a\x00\x08....", session)])

    lines = bench.lines("input_refused")
    assert [(line["original_exporter"], line["level"]) for line in lines] == [("192.0.2.1", "warning")]


async def test_a_bug_of_the_core_ends_the_run(autojump_clock, tmp_path, monkeypatch) -> None:
    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    bench = Bench("exporters: [{type: one}]", plugins, tmp_path)
    with pytest.RaisesGroup(
        pytest.RaisesExc(AssertionError, match="bug"), flatten_subgroups=True, allow_unwrapped=True
    ):
        async with bench.running() as pipeline:

            async def broken(*_: object) -> None:
                raise AssertionError("bug")

            monkeypatch.setattr(pipeline.aggregation, "expire", broken)
            await trio.sleep(5)
    assert plugins.exporters["one"].closed == 1


@pytest.mark.slow
async def test_the_books_balance_wherever_a_run_is_stopped_at_once(autojump_clock, tmp_path) -> None:
    """At every step of a run with a slow, a failing and an enriching plugin."""

    async def slow(_batch: FlowBatch) -> None:
        await trio.sleep(1)

    messages = list(agent_messages(TrafficConfig(flows=6, updates=1)))
    step, has_fired = 1, True
    while has_fired:
        plugins = Plugins()
        plugins.exporters = {
            "one": KeepingExporter([slow] * 9),
            "two": KeepingExporter([KeyError(), RetryableExportError()]),
        }
        plugins.enrichers = {"paint": lambda _: lambda batch: {"colour": ["red"] * len(batch)}}
        text = "exporters: [{type: one}, {type: two}]\nenrichers: [{type: paint}]"
        bench = Bench(TIMEOUTS + text, plugins, tmp_path / str(step))
        with cancelled_at_step(step) as instrument:
            async with bench.running():
                await bench.feed(messages)
                await trio.sleep(8)
        has_fired = instrument.has_fired
        books = bench.pipeline.books()
        assert books.imbalances() == ()
        for name, exporter in plugins.exporters.items():
            assert exporter.opened == exporter.closed
            assert books.lanes[name].delivered <= len(exporter.dicts)
        if not has_fired:
            assert books.undelivered == 0
        step += 1
    assert step > 60


async def test_a_taken_address_ends_the_run_before_anything_is_opened(autojump_clock, tmp_path) -> None:
    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    text = f'collectors: [{{protocol: tcp, address: "127.0.0.1:{port}"}}]\nexporters: [{{type: one}}]'
    bench = Bench(text, plugins, tmp_path)
    with pytest.RaisesGroup(BindError, flatten_subgroups=True, allow_unwrapped=True):
        async with bench.running():
            await trio.sleep(5)
    await listeners[0].aclose()
    assert plugins.exporters["one"].opened == 0


async def test_the_books_are_told_at_an_interval(autojump_clock, tmp_path) -> None:
    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    bench = Bench("exporters: [{type: one}]", plugins, tmp_path)
    async with bench.running():
        await bench.feed(agent_messages(TRAFFIC))
        await trio.sleep(130)

    lines = bench.lines("books")
    assert len(lines) == 2
    assert lines[-1]["records"] > 0
    assert lines[-1]["lanes"]["one"]["delivered"] == lines[-1]["rows"] > 0
    assert bench.lines("books_do_not_balance") == []


def test_a_batching_that_raises_is_the_plugins_error(tmp_path, monkeypatch) -> None:
    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    monkeypatch.delattr(plugins, "batching")
    bench = Bench("exporters: [{type: one}]", plugins, tmp_path)
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
    plugins = Plugins()
    plugins.exporters = {"one": KeepingExporter()}
    plugins.batching = batching
    bench = Bench("exporters: [{type: one}]", plugins, tmp_path)
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
