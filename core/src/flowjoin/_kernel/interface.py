"""The kernel's interface: what both forms promise.

The kernel belongs to one thread, does no I/O and reads no clock. One call never runs longer than a
slice: ``ingest`` is bounded by what one wake-up brought, the others by ``limit``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter, FlowKey
from flowjoin._model.information_element import Value
from flowjoin._model.plan import Plan
from flowjoin._model.reasons import Reason
from flowjoin._model.template import Template
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire.remembered import RememberedTemplate

__all__ = [
    "CompilePlan",
    "IngestResult",
    "KeepsFlows",
    "Kernel",
    "KernelLimits",
    "KernelStatistics",
    "RemembersTemplates",
]


class CompilePlan(Protocol):
    """Makes the plan of a Template; None for Options Templates, whose records are no flows."""

    def __call__(self, template: Template) -> Plan | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLimits:
    """Bounds on what peers can make us hold.

    Attributes:
        flows: stored flows; at the limit the ready flow longest without a record leaves first.
        string_octets: octets of distinct strings held; beyond it new strings are stored empty and counted.
        active_timeout: seconds between two exports of a flow that goes on (element 36).
        idle_timeout: seconds without a record after which a flow leaves (element 37).
    """

    flows: int = 1_000_000
    string_octets: int = 256 * 1024 * 1024
    active_timeout: float = 60.0
    idle_timeout: float = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """What one ``ingest`` met, beside what it counted.

    Attributes:
        faulty: sessions whose byte stream cannot be trusted any more (ordered transports: close them).
        notices: (session, reason, set or template id, observation domain id) worth a log line, at
            most one per session and reason in a call.
        is_due: rows wait that should leave before the next tick (evictions, Proxy mode).
    """

    faulty: tuple[TransportSession, ...] = ()
    notices: tuple[tuple[TransportSession, Reason, int, int], ...] = ()
    is_due: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStatistics:
    """Everything the kernel counted since it was made: the books of messages, records and flows.

    Invariants: ``records_received == records_created + records_merged + records_older +
    sum(records_rejected.values())`` and ``flows_created + flows_restored ==
    flows_exported_last + flows_given_up + flows_evicted + flows_held``.

    Attributes:
        messages: whole Messages whose header was read.
        sets_held: Data Sets that waited for their Template.
        held_sets_expired: of them, those for which it did not come in time; their records are lost.
        templates_expired: over UDP, not sent again in time.
        templates_remembered: Templates of an earlier run that were not sent again yet.
        sequence_lost: Data Records missing now, over all sessions (a late arrival takes its loss back).
        records_received: Data Records about flows; option_records count apart.
        records_created: made a flow.
        records_merged: changed a stored flow.
        records_older: ended no later than what the flow knew from that side; only deadlines moved.
        records_rejected: by cause: ``address_absent``, ``address_mixed`` (Proxy mode: of both families),
            ``time_absent``, ``table_full`` (rows of evicted flows, or of Proxy mode, were not fetched).
        flows_exported_last: left the table after their last export.
        flows_given_up: a half whose other half never came.
        flows_restored: stored by ``KeepsFlows.restore``, out of an earlier process.
        flows_evicted: left at the limit of stored flows, exported as they were.
        rows: rows given by ``expire``, over all batches.
        counters_clamped: deltas or throughputs that would have been negative.
        times_clamped: plain flows' records that said they ended before they began.
        elements_dropped: fields the flow has no place for, by element name (bounded, then ``other``).
        elements_absent: plain flows' records without an element the key or the books want, by name.
        strings_dropped: strings stored empty because ``string_octets`` was reached.
        http_vals_replaced: httpVals that could not be merged as JSON.
    """

    messages: int = 0
    octets: int = 0
    templates: int = 0
    templates_remembered: int = 0
    option_records: int = 0
    sets_without_template: int = 0
    sets_held: int = 0
    held_sets_expired: int = 0
    templates_expired: int = 0
    malformed_messages: int = 0
    malformed_templates: int = 0
    sequence_lost: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    records_received: int = 0
    records_created: int = 0
    records_merged: int = 0
    records_older: int = 0
    records_rejected: Mapping[str, int] = field(default_factory=dict)
    flows_created: int = 0
    flows_exported_last: int = 0
    flows_given_up: int = 0
    flows_restored: int = 0
    flows_evicted: int = 0
    flows_held: int = 0
    flows_waiting: int = 0
    rows: int = 0
    counters_clamped: int = 0
    times_clamped: int = 0
    elements_dropped: Mapping[str, int] = field(default_factory=dict)
    elements_absent: Mapping[str, int] = field(default_factory=dict)
    strings_dropped: int = 0
    http_vals_replaced: int = 0


@runtime_checkable
class RemembersTemplates(Protocol):
    """What a kernel may be able to do beside: keep the Templates of UDP sessions over a restart."""

    def remembered_templates(self, now: float) -> Sequence[RememberedTemplate]:
        """Those in force."""
        ...

    def remember_templates(self, templates: Sequence[RememberedTemplate], now: float) -> int:
        """Put those of an earlier run in force until they are sent again; gives how many."""
        ...


@runtime_checkable
class KeepsFlows(Protocol):
    """What a kernel that stores flows can do beside: let them outlive the process."""

    @property
    def kept_layout(self) -> Sequence[Sequence[str]]:
        """What flows consist of, a line for each kind and part; blocks are read where it is the same."""
        ...

    def flush(self, cursor: int, limit: int) -> tuple[list[FlowBatch], int | None]:
        """Rows of the ready flows with something new among the next ``limit`` places; the flows stay.

        After it, and with nothing taken in meanwhile, only halves that wait have what was not exported.
        """
        ...

    def dump(self, cursor: int, limit: int) -> tuple[bytes, int | None]:
        """A block of the flows among the next ``limit`` places from ``cursor`` (0 begins); the next, None at the end.

        A flow that is held throughout is in one block, whatever comes and leaves between the calls.
        """
        ...

    def restore(self, block: bytes, offset: float, *, is_continued: bool) -> tuple[int, int]:
        """Store the flows of a block, before the first ``ingest``.

        Args:
            block: of a kernel of the same ``kept_layout`` in either form.
            offset: what is to be added to its times: our clock's time now less the writer's when it wrote.
            is_continued: the writer did nothing after it wrote. Else what it did then is not known: each flow
                begins anew with deltas of 0, and goes on with its totals.

        Returns:
            How many flows were stored, and how many not: their key is there already, or there is no room.

        Raises:
            ValueError: it is no such block; flows before the fault were stored.
        """
        ...

    def order_restored(self, limit: int) -> bool:
        """Put so many of the flows in their order; to be called until it gives False, before the first ``ingest``."""
        ...


class Kernel(Protocol):
    """Bytes in, batches out."""

    @property
    def flows_per_slice(self) -> int:
        """How many flows one ``expire`` may look at and still give the thread back within a slice."""
        ...

    def ingest(
        self, messages: Sequence[bytes | memoryview], sessions: Sequence[TransportSession], now: float
    ) -> IngestResult:
        """Decode whole Messages, each with its session, and merge their records into the table.

        A Message is checked to its end or first fault before any of it is merged; records before
        the fault count. Nothing a sender does raises.
        """
        ...

    def expire(self, now: float, limit: int) -> list[FlowBatch]:
        """Take what is due at ``now``: at most ``limit`` flows are looked at.

        Batches are split by schema and by whether the flows wait for enrichment. More is due while
        ``next_expiry()`` is not after ``now``.
        """
        ...

    def next_expiry(self) -> float | None:
        """When the earliest flow is due; None with none."""
        ...

    def lookup(self, key: FlowKey) -> FlowBatch | None:
        """The flow as it stands: a batch of one row, or None."""
        ...

    def scan(self, flow_filter: FlowFilter, cursor: int, limit: int) -> tuple[list[FlowBatch], int | None]:
        """Matching flows among the next ``limit`` places from ``cursor`` (0 begins); the next cursor, None at the end.

        A flow that is held throughout is given once, whatever comes and leaves between the calls.
        """
        ...

    def store_enriched(self, batch: FlowBatch, columns: Mapping[str, Sequence[Value]]) -> None:
        """Keep what enrichers gave for a batch of ``expire`` in the flows still held."""
        ...

    def close_session(self, session: TransportSession) -> None:
        """Forget a session's Templates, sequence and held sets."""
        ...

    def tick(self, now: float) -> Sequence[TransportSession]:
        """Expire Templates; gives the UDP sessions that fell silent and were forgotten."""
        ...

    def statistics(self) -> KernelStatistics:
        """A snapshot of all counters."""
        ...
