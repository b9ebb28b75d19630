"""What ``flowjoin top`` shows, computed from two readings of a running flowjoin's metrics; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["CollectorView", "DropView", "LaneView", "Reading", "TopView", "parse_metrics", "view_of"]

Labels: TypeAlias = tuple[tuple[str, str], ...]

# metric: what is lost there, for people
_LOSSES: Final = {
    "flowjoin_collector_kernel_drops_total": "datagrams dropped by the operating system",
    "flowjoin_collector_refused_total": "input refused",
    "flowjoin_collector_connections_cut_total": "connections cut inside a Message",
    "flowjoin_kernel_faults_total": "faults in what was sent",
    "flowjoin_kernel_sequence_lost": "records sent and never seen",
    "flowjoin_kernel_held_sets_expired_total": "sets whose Template did not come",
    "flowjoin_kernel_records_rejected_total": "records that made no flow",
    "flowjoin_kernel_flows_given_up_total": "halves whose other half never came",
    "flowjoin_kernel_flows_evicted_total": "flows that left early, the table was full",
    "flowjoin_kernel_strings_dropped_total": "strings stored empty",
    "flowjoin_enricher_passed_rows_total": "rows that passed an enricher",
    "flowjoin_lane_dropped_rows_total": "rows dropped by a lane",
    "flowjoin_lane_dead_lettered_rows_total": "dead letters",
    "flowjoin_telemetry_lost_lines_total": "log lines lost",
}
_RATES: Final = {
    "messages": "flowjoin_kernel_messages_total",
    "octets": "flowjoin_kernel_octets_total",
    "records": "flowjoin_kernel_records_received_total",
    "rows": "flowjoin_kernel_rows_total",
}
_FLOWS: Final = {
    "held": "flowjoin_kernel_flows_held",
    "waiting": "flowjoin_kernel_flows_waiting",
    "created": "flowjoin_kernel_flows_created_total",
    "exported_last": "flowjoin_kernel_flows_exported_last_total",
    "given_up": "flowjoin_kernel_flows_given_up_total",
    "evicted": "flowjoin_kernel_flows_evicted_total",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """All metrics at one moment.

    Attributes:
        at: monotonic seconds.
        samples: by metric's name and labels.
    """

    at: float
    samples: Mapping[str, Mapping[Labels, float]]

    def of(self, name: str) -> Mapping[Labels, float]:
        """A metric's samples by their labels."""
        return self.samples.get(name, {})

    def value(self, name: str, **labels: str) -> float:
        """One sample; 0 where there is none."""
        return self.of(name).get(tuple(sorted(labels.items())), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorView:
    """A Collecting Process."""

    protocol: str
    address: str
    sessions: int
    messages_per_second: float
    octets_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """A delivery lane.

    Attributes:
        lag_seconds: how long the oldest row that is held has waited, as the metric says.
        drain_seconds: how long what is held takes at the present rate of delivery; None while nothing is delivered.
        spooled: of those held, rows that outlive the process.
        spool_octets: size of the lane's spool.
    """

    name: str
    rows_per_second: float
    delivered_per_second: float
    held: int
    lag_seconds: float
    drain_seconds: float | None
    spooled: int
    spool_octets: int
    delivered: int
    dropped: int
    dead_lettered: int
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropView:
    """Something that was lost.

    Attributes:
        metric: counts it.
        what: for people.
        reason: the metric's labels.
    """

    metric: str
    what: str
    reason: str
    count: int
    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TopView:
    """Everything that is shown.

    Attributes:
        phase: ``starting``, ``ready`` or ``stopping``.
        rates: messages, octets, records and rows per second.
        degraded: component: what went wrong last.
    """

    phase: str
    seconds: float
    rates: Mapping[str, float]
    flows: Mapping[str, int]
    collectors: Sequence[CollectorView]
    lanes: Sequence[LaneView]
    drops: Sequence[DropView]
    degraded: Mapping[str, str]

    def facts(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


def parse_metrics(text: str, at: float) -> Reading:
    """Read Prometheus's text format.

    Raises:
        ValueError: it is something else.
    """
    samples: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return Reading(at, samples)


def view_of(before: Reading, after: Reading, health: Mapping[str, Any]) -> TopView:
    """What happened between two readings; a counter that fell, because flowjoin was restarted, has the rate 0.

    Args:
        before: the earlier reading.
        after: the later one.
        health: what /healthz says, as JSON.
    """
    seconds = max(after.at - before.at, 1e-9)

    def rate(name: str, labels: Labels) -> float:
        grown = after.of(name).get(labels, 0.0) - before.of(name).get(labels, 0.0)
        return round(max(grown, 0.0) / seconds, 3)

    components = health.get("components", [])
    return TopView(
        phase=str(health.get("phase", "")),
        seconds=round(seconds, 3),
        rates={key: rate(name, ()) for key, name in _RATES.items()},
        flows={key: int(after.value(name)) for key, name in _FLOWS.items()},
        collectors=[
            CollectorView(
                protocol=dict(labels)["protocol"],
                address=dict(labels)["address"],
                sessions=int(sessions),
                messages_per_second=rate("flowjoin_collector_messages_total", labels),
                octets_per_second=rate("flowjoin_collector_octets_total", labels),
            )
            for labels, sessions in after.of("flowjoin_collector_sessions").items()
        ],
        lanes=[_lane(labels, after, rate) for labels in after.of("flowjoin_lane_rows_total")],
        drops=list(_drops(after, rate)),
        degraded={row["component"]: row["problem"] for row in components if row["state"] == "degraded"},
    )


def _lane(labels: Labels, after: Reading, rate: Any) -> LaneView:
    held = int(after.of("flowjoin_lane_held_rows").get(labels, 0))
    delivered = rate("flowjoin_lane_delivered_rows_total", labels)

    def count(name: str) -> int:
        return int(after.of(name).get(labels, 0))

    return LaneView(
        name=dict(labels)["name"],
        rows_per_second=rate("flowjoin_lane_rows_total", labels),
        delivered_per_second=delivered,
        held=held,
        lag_seconds=after.of("flowjoin_lane_lag_seconds").get(labels, 0.0),
        drain_seconds=0.0 if not held else (round(held / delivered, 3) if delivered else None),
        spooled=count("flowjoin_lane_spooled_rows"),
        spool_octets=count("flowjoin_lane_spool_octets"),
        delivered=count("flowjoin_lane_delivered_rows_total"),
        dropped=count("flowjoin_lane_dropped_rows_total"),
        dead_lettered=count("flowjoin_lane_dead_lettered_rows_total"),
        failures=count("flowjoin_lane_export_failures_total"),
    )


def _drops(after: Reading, rate: Any) -> Iterator[DropView]:
    for name, what in _LOSSES.items():
        for labels, count in after.of(name).items():
            if count:
                reason = " ".join(value for _, value in labels)
                yield DropView(metric=name, what=what, reason=reason, count=int(count), per_second=rate(name, labels))
