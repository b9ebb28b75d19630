"""The pipeline's metrics, read from its books."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import Metric

from flowjoin._collector.metrics import collector_metrics
from flowjoin._kernel.interface import KernelStatistics
from flowjoin._pipeline.books import Books
from flowjoin._pipeline.health import ComponentHealth, State
from flowjoin._telemetry.metrics import counter_family, gauge_family

__all__ = ["feed_metrics", "pipeline_metrics"]

_GAUGES: Final = {
    "sequence_lost": "Data Records missing now, over all sessions.",
    "templates_remembered": "Templates of an earlier run that were not sent again yet.",
    "flows_held": "Flows stored.",
    "flows_waiting": "Stored halves that wait for the other half.",
}
_COUNTERS: Final = {
    "messages": "Messages whose header was read.",
    "octets": "Octets of Messages.",
    "templates": "Templates and Options Templates received.",
    "option_records": "Data Records of Options Templates.",
    "sets_without_template": "Data Sets whose Template was not known.",
    "sets_held": "Data Sets that waited for their Template.",
    "held_sets_expired": "Data Sets that waited in vain.",
    "templates_expired": "Templates over UDP that were not sent again in time.",
    "malformed_messages": "Messages with a fault.",
    "malformed_templates": "Template Records refused.",
    "records_received": "Data Records about flows.",
    "records_created": "Data Records that made a flow.",
    "records_merged": "Data Records that changed a stored flow.",
    "records_older": "Data Records that ended no later than what their flow knew.",
    "flows_created": "Flows stored since the start.",
    "flows_restored": "Flows stored out of the checkpoint of an earlier run.",
    "flows_exported_last": "Flows that left after their last export.",
    "flows_given_up": "Halves whose other half never came.",
    "flows_evicted": "Flows that left early at the limit of stored flows.",
    "rows": "Rows exported from the table.",
    "counters_clamped": "Deltas or throughputs that would have been negative.",
    "times_clamped": "Records of plain flows that said they ended before they began.",
    "strings_dropped": "Strings stored empty at their limit.",
    "http_vals_replaced": "httpVals that could not be merged as JSON.",
}
_LABELLED: Final = {
    "reasons": ("faults", "reason", "Faults in what original exporters sent, by reason."),
    "records_rejected": ("records_rejected", "reason", "Data Records that made no flow, by reason."),
    "elements_dropped": ("elements_dropped", "element", "Fields that flows have no place for, by element."),
    "elements_absent": ("elements_absent", "element", "Records of plain flows without an element, by element."),
}
_OUTCOMES: Final = {
    "delivered": "Rows that the destination accepted.",
    "dead_lettered": "Rows that the destination will never accept, or that fail even alone.",
    "dropped": "Rows given up: of the oldest batches for lack of room or by age, and of damaged ones.",
}


def pipeline_metrics(books: Books, health: tuple[ComponentHealth, ...], lost_log_lines: int) -> Iterator[Metric]:
    """Everything that a pipeline counts."""
    yield from collector_metrics(books.collectors)
    yield from _kernel_metrics(books.kernel)
    yield from _lane_metrics(books)
    for name, documentation in (
        ("enriched", "Rows an enricher worked on."),
        ("passed", "Rows that passed an enricher that was down or failed."),
    ):
        samples = {key: float(getattr(book, name)) for key, book in books.enrichers.items()}
        yield counter_family("enricher", f"{name}_rows", documentation, samples)
    sources = {name: float(rows) for name, rows in books.source_rows.items()}
    yield counter_family("source", "rows", "Rows that a source gave.", sources)
    degraded = {row.component: float(row.state is State.DEGRADED) for row in health}
    yield gauge_family(
        "component",
        "degraded",
        "1 while a component fails and is tried again, or says that it works in part.",
        degraded,
    )
    failures = {row.component: float(row.failures) for row in health}
    yield counter_family("component", "failures", "How often a component failed.", failures)
    hangs = {row.component: float(row.hangs) for row in health}
    yield counter_family(
        "component", "hangs", "How often a component got nowhere, was cancelled and begun anew.", hangs
    )
    yield counter_family("telemetry", "lost_lines", "Lines that standard error did not take.", lost_log_lines)


def feed_metrics(streams: int, dropped_rows: int) -> Iterator[Metric]:
    """What those get who watch exported flows over HTTP; in no book."""
    yield gauge_family("api", "streams", "Clients that watch exported flows.", float(streams))
    yield counter_family("api", "stream_dropped_rows", "Rows that clients were too slow for.", float(dropped_rows))


def _kernel_metrics(kernel: KernelStatistics) -> Iterator[Metric]:
    figures = {item.name: getattr(kernel, item.name) for item in dataclasses.fields(kernel)}
    for name, documentation in _COUNTERS.items():
        yield counter_family("kernel", name, documentation, figures[name])
    for name, documentation in _GAUGES.items():
        yield gauge_family("kernel", name, documentation, figures[name])
    for name, (noun, label, documentation) in _LABELLED.items():
        counts: Mapping[str, int] = figures[name]
        yield counter_family("kernel", noun, documentation, counts, label)


def _lane_metrics(books: Books) -> Iterator[Metric]:
    for outcome, documentation in _OUTCOMES.items():
        samples = {name: float(getattr(lane, outcome)) for name, lane in books.lanes.items()}
        yield counter_family("lane", f"{outcome}_rows", documentation, samples)
    retried = {name: float(lane.retried) for name, lane in books.lanes.items()}
    yield counter_family("lane", "retried_rows", "Rows of exports that failed, to be tried again.", retried)
    lag = {name: round(lane.lag, 3) for name, lane in books.lanes.items()}
    yield gauge_family("lane", "lag_seconds", "How long the oldest row that is held has waited.", lag)
    rows_in = {name: float(lane.rows_in) for name, lane in books.lanes.items()}
    yield counter_family("lane", "rows", "Rows given to a lane.", rows_in)
    held = {name: float(lane.held) for name, lane in books.lanes.items()}
    yield gauge_family("lane", "held_rows", "Rows that wait in a lane.", held)
    restored = {name: float(lane.restored) for name, lane in books.lanes.items()}
    yield counter_family("lane", "restored_rows", "Rows that a spool held from an earlier run.", restored)
    damaged = {name: float(lane.damaged) for name, lane in books.lanes.items()}
    yield counter_family("lane", "damaged_rows", "Of those dropped, rows whose octets in the spool changed.", damaged)
    spooled = {name: float(lane.spooled) for name, lane in books.lanes.items()}
    yield gauge_family("lane", "spooled_rows", "Of those held, rows that are in the spool.", spooled)
    octets = {name: float(lane.spool_octets) for name, lane in books.lanes.items()}
    yield gauge_family("lane", "spool_octets", "Size of the spool on the disk.", octets)
    failures = {name: float(lane.failures) for name, lane in books.lanes.items()}
    yield counter_family("lane", "export_failures", "Calls of export that failed.", failures)
