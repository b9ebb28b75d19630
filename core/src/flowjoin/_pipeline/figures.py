"""What the HTTP API shows of a pipeline: its books, its health, its flows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

import trio

from flowjoin._api_server.figures import Compatibility, ComponentState, LogLevel, Phase
from flowjoin._config import antrea
from flowjoin._config.endpoint import Endpoint
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter, FlowKey
from flowjoin._pipeline.assembly import Pipeline
from flowjoin._pipeline.books import Books
from flowjoin._pipeline.flow_feeds import FlowFeed
from flowjoin._telemetry.logs import redacted

__all__ = ["PipelineFigures", "record_metrics"]


class PipelineFigures:
    """Reads a pipeline whenever somebody asks."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.compatibility: Compatibility = pipeline.config.compatibility
        self.phase = Phase.STARTING
        self._told_verbosity: tuple[LogLevel, int] = ("info", 0)

    async def while_ready(self, _addresses: Sequence[Endpoint]) -> None:
        """A companion of the pipeline, from which it is known that Messages are taken in."""
        self.phase = Phase.READY
        try:
            await trio.sleep_forever()
        finally:
            self.phase = Phase.STOPPING

    def components(self) -> Sequence[ComponentState]:
        return [
            ComponentState(
                name=row.component, state=row.state.value, problem=redacted(row.problem), failures=row.failures
            )
            for row in self._pipeline.health.snapshot()
        ]

    def exposition(self) -> bytes:
        return self._pipeline.metrics.expose()

    def record_metrics(self) -> Mapping[str, int | bool]:
        config = self._pipeline.config
        types = [entry.type for entry in config.exporters]
        return record_metrics(self._pipeline.books(), self.compatibility, config.mode, types)

    def lookup(self, key: FlowKey) -> FlowBatch | None:
        return self._pipeline.kernel.lookup(key)

    def scan(self, flow_filter: FlowFilter, cursor: int, limit: int) -> tuple[list[FlowBatch], int | None]:
        return self._pipeline.kernel.scan(flow_filter, cursor, limit)

    def watch(self) -> AbstractContextManager[FlowFeed]:
        return self._pipeline.outlets.feeds.watch()

    @property
    def log_level(self) -> tuple[LogLevel, int]:
        level = self._pipeline.logs.level
        told, verbosity = self._told_verbosity
        return level, verbosity if told == level else 4 if level == "debug" else 0

    def set_log_level(self, level: LogLevel, verbosity: int) -> None:
        before = self._pipeline.logs.level
        self._told_verbosity = (level, verbosity)
        self._pipeline.logs.level = level
        log = self._pipeline.logs.logger(component="core", is_answer=True)
        log.info("log_level_changed", before=before, now=level)

    def count_request(self, path: str, status: int) -> None:
        documentation = "Requests answered by the HTTP API."
        self._pipeline.metrics.counter("api", "requests", documentation, path=path, status=str(status)).inc()

    def count_cut(self, reason: str) -> None:
        documentation = "Connections of the HTTP API closed on their clients, by reason."
        self._pipeline.metrics.counter("api", "connections_cut", documentation, reason=reason).inc()


def record_metrics(
    books: Books, compatibility: Compatibility, mode: Literal["Aggregate", "Proxy"], exporter_types: Iterable[str]
) -> dict[str, int | bool]:
    """Antrea's counters, with the meaning that a release gives them.

    Antrea 2.7 counts Data Records in, and rows out when they are handed on to the sinks; what a sink loses it does not
    count. Antrea 2.3 counts Messages in, and rows out when every sink has accepted them.
    """
    kernel = books.kernel
    counters: dict[str, int | bool]
    if compatibility == "antrea-2.7":
        counters = {
            "numRecordsExported": books.rows,
            "numRecordsReceived": kernel.records_received + sum(books.source_rows.values()),
            "numRecordsDropped": 0,
        }
    else:
        accepted = [lane.delivered for lane in books.lanes.values()]
        counters = {
            "numRecordsExported": min(accepted, default=books.rows),
            "numRecordsReceived": kernel.messages - kernel.malformed_messages,
        }
    return {
        **counters,
        "numFlows": kernel.flows_held if mode == "Aggregate" else 0,
        "numConnToCollector": sum(collector.sessions for collector in books.collectors),
        **antrea.sinks_present(frozenset(exporter_types)),
    }
