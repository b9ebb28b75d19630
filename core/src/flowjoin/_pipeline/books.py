"""The books: where every record, flow and row is, and whether the sums are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from flowjoin._collector.metrics import CollectorStatistics
from flowjoin._kernel.interface import KernelStatistics
from flowjoin._pipeline.enrichment import EnricherBooks
from flowjoin._pipeline.lane_queue import LaneBooks

__all__ = ["Books"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """A snapshot of everything that is counted.

    Attributes:
        rows: given to every lane; of them ``source_rows`` came from sources, the others from the kernel.
        lanes: by exporter's name, those of exporters that were taken out included.
        rows_due: of the rows, those that went on while a lane was there; all, where it is not named.
    """

    kernel: KernelStatistics
    rows: int = 0
    source_rows: Mapping[str, int] = field(default_factory=dict)
    collectors: tuple[CollectorStatistics, ...] = ()
    enrichers: Mapping[str, EnricherBooks] = field(default_factory=dict)
    lanes: Mapping[str, LaneBooks] = field(default_factory=dict)
    rows_due: Mapping[str, int] = field(default_factory=dict)

    @property
    def undelivered(self) -> int:
        """Rows that lanes still hold."""
        return sum(lane.held for lane in self.lanes.values())

    @property
    def unkept(self) -> int:
        """Of them, rows that are in no spool."""
        return sum(lane.held - lane.spooled for lane in self.lanes.values())

    def imbalances(self) -> tuple[str, ...]:
        """Each equation that does not hold, as a sentence; a bug of ours when there is one."""
        return tuple(self._imbalances())

    def facts(self) -> dict[str, object]:
        """Every book, for one line of the log: what is needed to add it up."""
        kernel = self.kernel
        return {
            "messages": kernel.messages,
            "datagrams_dropped": sum(collector.kernel_drops for collector in self.collectors),
            "sequence_lost": kernel.sequence_lost,
            "sets_without_template": kernel.sets_without_template,
            "malformed_messages": kernel.malformed_messages,
            "records": kernel.records_received,
            "records_created": kernel.records_created,
            "records_merged": kernel.records_merged,
            "records_older": kernel.records_older,
            "records_rejected": sum(kernel.records_rejected.values()),
            "flows": kernel.flows_created,
            "flows_restored": kernel.flows_restored,
            "flows_exported_last": kernel.flows_exported_last,
            "flows_given_up": kernel.flows_given_up,
            "flows_evicted": kernel.flows_evicted,
            "flows_held": kernel.flows_held,
            "source_rows": sum(self.source_rows.values()),
            "rows": self.rows,
            "lanes": {
                name: {
                    "delivered": lane.delivered,
                    "dead_lettered": lane.dead_lettered,
                    "dropped": lane.dropped,
                    "held": lane.held,
                    "restored": lane.restored,
                    "spooled": lane.spooled,
                    "left": lane.left,
                }
                for name, lane in self.lanes.items()
            },
        }

    def table(self) -> str:
        """All of them, for people."""
        return "\n".join(self._lines())

    def _imbalances(self) -> Iterator[str]:
        kernel = self.kernel
        accounted = kernel.records_created + kernel.records_merged + kernel.records_older
        accounted += sum(kernel.records_rejected.values())
        if kernel.records_received != accounted:
            yield f"{kernel.records_received} records were received, {accounted} are accounted for"
        flows = kernel.flows_exported_last + kernel.flows_given_up + kernel.flows_evicted + kernel.flows_held
        if kernel.flows_created + kernel.flows_restored != flows:
            told = f" and {kernel.flows_restored} restored" if kernel.flows_restored else ""
            yield f"{kernel.flows_created} flows were created{told}, {flows} are accounted for"
        rows = kernel.rows + sum(self.source_rows.values())
        if self.rows != rows:
            yield f"{rows} rows came from the kernel and from sources, {self.rows} went on"
        for name, lane in self.lanes.items():
            due = self.rows_due.get(name, self.rows)
            if due != lane.rows_in or not lane.is_balanced:
                settled = lane.delivered + lane.dead_lettered + lane.dropped + lane.held + lane.left
                taken = f"{lane.rows_in} and had {lane.restored}" if lane.restored else f"{lane.rows_in}"
                yield f"{due} rows went on, lane {name} took {taken} and accounts for {settled}"

    def _lines(self) -> Iterator[str]:
        kernel = self.kernel
        for collector in self.collectors:
            yield _line(
                f"{collector.protocol} {collector.address}",
                collector.messages,
                "messages",
                {
                    "refused": sum(collector.refused.values()),
                    "dropped by the kernel": collector.kernel_drops,
                    "socket errors": collector.socket_errors,
                    "connections cut": collector.connections_cut,
                },
            )
        malformed = {"malformed": kernel.malformed_messages, "sequence lost": kernel.sequence_lost}
        yield _line("messages", kernel.messages, "read", malformed)
        yield _line(
            "records",
            kernel.records_received,
            "received",
            {
                "made a flow": kernel.records_created,
                "merged": kernel.records_merged,
                "older than known": kernel.records_older,
                **{f"rejected, {reason}": count for reason, count in kernel.records_rejected.items()},
                "sets without template": kernel.sets_without_template,
                "of them waited in vain": kernel.held_sets_expired,
            },
        )
        yield _line(
            "flows",
            kernel.flows_created,
            "created",
            {
                "exported to the end": kernel.flows_exported_last,
                "halves given up": kernel.flows_given_up,
                "evicted": kernel.flows_evicted,
                "held": kernel.flows_held,
                "from the checkpoint": kernel.flows_restored,
            },
        )
        for name, rows in self.source_rows.items():
            yield _line(f"source {name}", rows, "rows", {})
        yield _line("rows", self.rows, "exported", {})
        for name, enricher in self.enrichers.items():
            yield _line(f"enricher {name}", enricher.enriched, "enriched", {"passed by": enricher.passed})
        for name, lane in self.lanes.items():
            yield _line(
                f"exporter {name}",
                lane.delivered,
                "delivered",
                {
                    "dead letters": lane.dead_lettered,
                    "dropped": lane.dropped,
                    "of them damaged": lane.damaged,
                    "held": lane.held,
                    "of them in the spool": lane.spooled,
                    "left in the spool": lane.left,
                    "from an earlier run": lane.restored,
                },
            )


def _line(name: str, figure: int, what: str, others: Mapping[str, int]) -> str:
    parts = [f"{count:,} {other}" for other, count in others.items() if count]
    return f"{name:<24} {figure:>12,} {what}{': ' if parts else ''}{', '.join(parts)}"
