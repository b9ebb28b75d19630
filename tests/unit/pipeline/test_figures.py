from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from flowjoin._api_server.figures import Compatibility, Phase
from flowjoin._collector.metrics import CollectorStatistics
from flowjoin._config.load import load_config
from flowjoin._config.model import Config
from flowjoin._kernel.interface import KernelStatistics
from flowjoin._pipeline.books import Books
from flowjoin._pipeline.figures import PipelineFigures, record_metrics
from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.lane_queue import LaneBooks
from flowjoin._telemetry.logs import Logs


def lane(delivered: int) -> LaneBooks:
    return LaneBooks(
        rows_in=20, delivered=delivered, dead_lettered=0, dropped=0, held=20 - delivered, batches=1, failures=0
    )


BOOKS = Books(
    kernel=KernelStatistics(messages=17, malformed_messages=2, records_received=12, flows_held=30, rows=16),
    rows=20,
    source_rows={"conntrack": 4},
    collectors=(
        CollectorStatistics(protocol="tcp", address="127.0.0.1:1", sessions=3),
        CollectorStatistics(protocol="udp", address="127.0.0.1:2", sessions=2),
    ),
    lanes={"log": lane(20), "away": lane(7)},
)
SINKS = {"withClickHouseExporter": False, "withS3Exporter": False, "withLogExporter": True, "withIPFIXExporter": True}


@pytest.mark.parametrize(
    ("compatibility", "counters"),
    [
        # records in, sources' flows too; rows when they are handed on
        ("antrea-2.7", {"numRecordsExported": 20, "numRecordsReceived": 16, "numRecordsDropped": 0}),
        # whole Messages in; rows when every lane has delivered them
        ("antrea-2.3", {"numRecordsExported": 7, "numRecordsReceived": 15}),
    ],
)
def test_the_counters_mean_what_the_release_means(
    compatibility: Compatibility, counters: dict[str, int | bool]
) -> None:
    expected = {**counters, "numFlows": 30, "numConnToCollector": 5, **SINKS}
    assert record_metrics(BOOKS, compatibility, "Aggregate", ["log", "ipfix", "log", "other"]) == expected


def test_in_proxy_mode_no_flow_is_held_though_rows_may_wait() -> None:
    assert record_metrics(BOOKS, "antrea-2.7", "Proxy", [])["numFlows"] == 0


def test_without_a_lane_rows_are_accepted_when_they_leave() -> None:
    books = Books(kernel=KernelStatistics(), rows=9)
    assert record_metrics(books, "antrea-2.3", "Aggregate", [])["numRecordsExported"] == 9


def figures_of(health: HealthTable) -> PipelineFigures:
    return PipelineFigures(cast(Any, SimpleNamespace(health=health, config=load_config("").config)))


def test_a_component_that_fails_is_shown_with_its_problem_and_without_passwords() -> None:
    health = HealthTable(lambda: 0.0)
    health.add("exporters", "db").failed(OSError("http://ada:geheim@example.org refused"))
    (state,) = figures_of(health).components()
    assert (state.name, state.state, state.failures) == ("exporters/db", "degraded", 1)
    assert "example.org refused" in state.problem
    assert "geheim" not in state.problem


async def test_it_is_ready_while_the_pipeline_runs_its_companions() -> None:
    figures = figures_of(HealthTable(lambda: 0.0))
    phases = [figures.phase]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(figures.while_ready, ())
        await trio.testing.wait_all_tasks_blocked()
        phases.append(figures.phase)
        nursery.cancel_scope.cancel()
    assert [*phases, figures.phase] == [Phase.STARTING, Phase.READY, Phase.STOPPING]


def test_the_log_is_written_at_the_level_that_was_asked_for_and_tells_the_verbosity_that_was_given() -> None:
    stream = io.StringIO()
    pipeline: Any = SimpleNamespace(logs=Logs(stream), config=Config())
    figures = PipelineFigures(pipeline)
    assert figures.log_level == ("info", 0)
    figures.set_log_level("debug", 7)
    assert figures.log_level == ("debug", 7)
    assert "log_level_changed component=core before=info now=debug" in stream.getvalue()
    pipeline.logs.change("error", "console")  # a reload
    assert figures.log_level == ("error", 0)
