from __future__ import annotations

import pytest

from flowjoin._api_server.figures import Compatibility
from flowjoin._collector.metrics import CollectorStatistics
from flowjoin._kernel.interface import KernelStatistics
from flowjoin._pipeline.books import Books
from flowjoin._pipeline.figures import record_metrics
from flowjoin._pipeline.lane import LaneBooks


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
