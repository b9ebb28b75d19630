"""The whole pipeline: rows, exporters in trouble, the end of a run, the books."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from agent_traffic import agent_messages
from pipeline_bench import (
    TIMEOUTS,
    TRAFFIC,
    KeepingExporter,
    PipelineBench,
    PipelinePlugins,
    keys_of,
)
from pipeline_fakes import cancelled_at_step

from flowjoin._generator.config import TrafficConfig
from flowjoin._model.errors import BindError
from flowjoin._model.flow_batch import FlowBatch
from flowjoin.api import (
    PermanentExportError,
    RetryableExportError,
)


async def test_every_flow_is_joined_and_delivered_to_every_exporter(autojump_clock, tmp_path) -> None:
    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter(), "two": KeepingExporter()}
    bench = PipelineBench(TIMEOUTS + "exporters: [{type: one}, {type: two}]", plugins, tmp_path)
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
    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    bench = PipelineBench("exporters: [{type: one}]", plugins, tmp_path)
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
    plugins = PipelinePlugins()
    bad = Closed() if trouble == "cannot_open" else KeepingExporter(script[trouble])
    plugins.exporters = {"bad": bad, "good": KeepingExporter()}
    bench = PipelineBench(TIMEOUTS + f"exporters: [{{type: bad{spool}}}, {{type: good{spool}}}]", plugins, tmp_path)
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


async def _the_next_run_delivers_the_rest(plugins: PipelinePlugins, directory: Path, rows: int) -> None:
    plugins.exporters["bad"] = KeepingExporter()
    bench = PipelineBench(TIMEOUTS + "exporters: [{type: bad}, {type: good}]", plugins, directory)
    async with bench.running() as pipeline:
        await trio.sleep(1)
        books = pipeline.books().lanes["bad"]
        assert (books.restored, books.delivered, books.held) == (rows, rows, 0)
    assert len(plugins.exporters["bad"].dicts) == rows
    assert not list((directory / "state" / "spool" / "bad").glob("*.ipfix"))


@pytest.mark.parametrize("spool", ["", ", spool: none"])
async def test_a_second_wish_stops_at_once_and_undelivered_rows_are_told(autojump_clock, tmp_path, spool) -> None:
    plugins = PipelinePlugins()
    plugins.exporters = {"bad": KeepingExporter([RetryableExportError()] * 1000)}
    bench = PipelineBench(TIMEOUTS + f"exporters: [{{type: bad{spool}}}]", plugins, tmp_path)
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


async def test_dead_letters_are_no_failure_of_the_run(autojump_clock, tmp_path) -> None:
    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter([PermanentExportError(rows=[0])])}
    bench = PipelineBench("exporters: [{type: one}]", plugins, tmp_path)
    async with bench.running():
        await bench.feed(agent_messages(TRAFFIC))

    assert bench.outcome is not None
    assert bench.outcome.exit_code == 0
    assert bench.outcome.books.lanes["one"].dead_lettered == 1


async def test_ids_differ_between_two_starts_of_one_instance(autojump_clock, tmp_path) -> None:
    ids = []
    for _ in range(2):
        plugins = PipelinePlugins()
        plugins.exporters = {"one": KeepingExporter()}
        bench = PipelineBench("exporters: [{type: one}]", plugins, tmp_path)
        async with bench.running():
            await bench.feed(agent_messages(TrafficConfig(flows=3)))
        ids.append({batch.id for batch in plugins.exporters["one"].accepted})

    assert ids[0]
    assert not ids[0] & ids[1]
    assert {id.split("/")[0] for id in ids[0]} == {id.split("/")[0] for id in ids[1]}


async def test_metrics_tell_what_the_books_tell(autojump_clock, tmp_path) -> None:
    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    bench = PipelineBench("exporters: [{type: one, name: audit}]", plugins, tmp_path)
    async with bench.running() as pipeline:
        await bench.feed(agent_messages(TRAFFIC))

    text = pipeline.metrics.expose().decode()
    books = pipeline.books()
    assert f'flowjoin_lane_delivered_rows_total{{name="audit"}} {float(books.rows)}' in text
    assert f"flowjoin_kernel_records_received_total {float(books.kernel.records_received)}" in text
    assert 'flowjoin_one_opened_files_total{name="audit"} 1.0' in text
    assert 'flowjoin_component_degraded{name="exporters/audit"} 0.0' in text


async def test_what_a_peer_sends_wrong_is_a_line_with_its_address(autojump_clock, tmp_path) -> None:
    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    bench = PipelineBench("exporters: [{type: one}]", plugins, tmp_path)
    (_, session), *_ = agent_messages(TrafficConfig(flows=0))
    async with bench.running():
        for _ in range(50):
            await bench.feed([(b"\x00\x0a\x00\x08....", session)])

    lines = bench.lines("input_refused")
    assert [(line["original_exporter"], line["level"]) for line in lines] == [("192.0.2.1", "warning")]


async def test_a_bug_of_the_core_ends_the_run(autojump_clock, tmp_path, monkeypatch) -> None:
    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    bench = PipelineBench("exporters: [{type: one}]", plugins, tmp_path)
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
        plugins = PipelinePlugins()
        plugins.exporters = {
            "one": KeepingExporter([slow] * 9),
            "two": KeepingExporter([KeyError(), RetryableExportError()]),
        }
        plugins.enrichers = {"paint": lambda _: lambda batch: {"colour": ["red"] * len(batch)}}
        text = "exporters: [{type: one}, {type: two}]\nenrichers: [{type: paint}]"
        bench = PipelineBench(TIMEOUTS + text, plugins, tmp_path / str(step))
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
    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    text = f'collectors: [{{protocol: tcp, address: "127.0.0.1:{port}"}}]\nexporters: [{{type: one}}]'
    bench = PipelineBench(text, plugins, tmp_path)
    with pytest.RaisesGroup(BindError, flatten_subgroups=True, allow_unwrapped=True):
        async with bench.running():
            await trio.sleep(5)
    await listeners[0].aclose()
    assert plugins.exporters["one"].opened == 0


async def test_the_books_are_told_at_an_interval(autojump_clock, tmp_path) -> None:
    plugins = PipelinePlugins()
    plugins.exporters = {"one": KeepingExporter()}
    bench = PipelineBench("exporters: [{type: one}]", plugins, tmp_path)
    async with bench.running():
        await bench.feed(agent_messages(TRAFFIC))
        await trio.sleep(130)

    lines = bench.lines("books")
    assert len(lines) == 2
    assert lines[-1]["records"] > 0
    assert lines[-1]["lanes"]["one"]["delivered"] == lines[-1]["rows"] > 0
    assert bench.lines("books_do_not_balance") == []
