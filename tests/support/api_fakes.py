"""A stand-in for the pipeline behind the HTTP API, and flows to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from flowjoin._api_server.figures import Compatibility, ComponentState, LogLevel, Phase
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter, FlowKey
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin
from flowjoin._model.schemas import build_schemas
from flowjoin._pipeline.flow_feeds import FlowFeed, FlowFeeds
from flowjoin.wire.registry import default_registry

SCHEMAS = build_schemas(default_registry(), extra=["bgpNextHopIPv4Address", "applicationName"])


def batch(
    rows: Sequence[Mapping[str, Any]], *, origin: FlowOrigin = FlowOrigin.AGGREGATED, family: int = 4
) -> FlowBatch:
    schema = SCHEMAS[origin, AddressFamily(family)]
    names = {name for row in rows for name in row}
    return FlowBatch.from_columns(schema, {name: [row[name] for row in rows] for name in names})


def flow(source: str, destination: str, source_port: int, destination_port: int, protocol: int = 6) -> dict[str, Any]:
    return {
        "sourceIPv4Address": source,
        "destinationIPv4Address": destination,
        "sourceTransportPort": source_port,
        "destinationTransportPort": destination_port,
        "protocolIdentifier": protocol,
        "flowStartSeconds": 1_637_706_961,
    }


class FakeFigures:
    """Shows what it is given; ``scan`` goes through batches, a cursor for each."""

    def __init__(self, batches: Sequence[FlowBatch] = (), *, compatibility: Compatibility = "antrea-2.7") -> None:
        self.compatibility: Compatibility = compatibility
        self.phase = Phase.READY
        self.states: list[ComponentState] = []
        self.counters: dict[str, int | bool] = {}
        self.batches = list(batches)
        self.is_endless = False
        self.levels: list[tuple[LogLevel, int]] = [("info", 0)]
        self.found: FlowBatch | None = None
        self.lookups: list[FlowKey] = []
        self.scans: list[tuple[FlowFilter, int]] = []
        self.requests: Counter[tuple[str, int]] = Counter()
        self.cuts: Counter[str] = Counter()
        self.feeds = FlowFeeds()
        self.on_scan: Callable[[], object] = lambda: None

    @property
    def log_level(self) -> tuple[LogLevel, int]:
        return self.levels[-1]

    def set_log_level(self, level: LogLevel, verbosity: int) -> None:
        self.levels.append((level, verbosity))

    def components(self) -> Sequence[ComponentState]:
        return self.states

    def exposition(self) -> bytes:
        return b"flowjoin_kernel_rows_total 1.0\n"

    def record_metrics(self) -> Mapping[str, int | bool]:
        return self.counters

    def lookup(self, key: FlowKey) -> FlowBatch | None:
        self.lookups.append(key)
        return self.found

    def scan(self, flow_filter: FlowFilter, cursor: int, limit: int) -> tuple[list[FlowBatch], int | None]:
        self.scans.append((flow_filter, cursor))
        self.on_scan()
        if self.is_endless:
            return [self.batches[cursor % len(self.batches)]], cursor + 1
        following = cursor + 1 if cursor + 1 < len(self.batches) else None
        return self.batches[cursor : cursor + 1], following

    def watch(self) -> AbstractContextManager[FlowFeed]:
        return self.feeds.watch()

    def count_request(self, path: str, status: int) -> None:
        self.requests[path, status] += 1

    def count_cut(self, reason: str) -> None:
        self.cuts[reason] += 1
