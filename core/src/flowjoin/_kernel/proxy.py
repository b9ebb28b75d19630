"""Proxy mode's kernel: records become rows as they come, and wait for the next ``expire``.

Invariant: rows leave in the order of their records; what a record says itself is never changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from flowjoin._kernel.batches import column_of_stored
from flowjoin._kernel.flow_table import MAXIMUM_DEPARTED
from flowjoin._kernel.intake import DataSet, Intake, Notices
from flowjoin._kernel.interface import CompilePlan, IngestResult, KernelLimits, KernelStatistics
from flowjoin._kernel.original_exporters import NO_IPV4, NO_IPV6, OriginalExporters
from flowjoin._kernel.plain_times import PlainTimes
from flowjoin._kernel.python_kernel import DUE_ROWS, FLOWS_PER_SLICE
from flowjoin._kernel.rows import Row, RowReader, positions_of
from flowjoin._kernel.tally import Tally, add_bounded
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter, FlowKey
from flowjoin._model.flow_schema import ADDRESS_ELEMENTS, AddressFamily, FlowOrigin, FlowSchema
from flowjoin._model.information_element import InformationElement, Value
from flowjoin._model.plan import Plan
from flowjoin._model.schemas import UNKNOWN_DIRECTION, FlowSchemas
from flowjoin._model.state_layout import Storage, storage_of
from flowjoin._model.template import FieldSpecifier, Template
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire.decoder import Decoder
from flowjoin.wire.events import MessageHeader
from flowjoin.wire.records import carries_octets
from flowjoin.wire.remembered import RememberedTemplate

__all__ = ["ProxyKernel", "as_column"]

_INGRESS, _EGRESS = 0, 1  # flowDirection
_INTER_NODE, _TO_EXTERNAL, _FROM_EXTERNAL = 2, 3, 4  # flowType
_LAST_SECOND: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class _OfFamily:
    """How the rows of one Template and family are made.

    Attributes:
        at: positions in the row of the elements that are set when the record does not bring them.
    """

    schema: FlowSchema
    read: RowReader
    at: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Rows:
    """What was compiled for one Template.

    Attributes:
        addresses: of each family, where the records have the addresses that the Template has.
        of_family: of each family whose two addresses it has.
        has: names of the elements that it brings.
    """

    addresses: Mapping[AddressFamily, tuple[int, ...]]
    of_family: Mapping[AddressFamily, _OfFamily]
    times: PlainTimes
    has: frozenset[str]
    dropped: tuple[str, ...]


class ProxyKernel:
    """Passes records on; the flow table's calls find nothing. See ``interface.Kernel``."""

    flows_per_slice: Final = FLOWS_PER_SLICE

    def __init__(
        self,
        *,
        decoder: Decoder,
        compile_plan: CompilePlan,
        schemas: FlowSchemas,
        limits: KernelLimits,
        cluster_id: str = "",
        is_enriched: bool = False,
    ) -> None:
        """Begin empty; the arguments are the other kernels', of ``limits`` none applies to rows that only pass."""
        self._schemas = {family: schemas[FlowOrigin.PROXY, family] for family in AddressFamily}
        self._cluster_id = cluster_id
        self._is_enriched = is_enriched
        self._tally = Tally()
        self._intake = Intake(decoder, compile_plan, self._compile, self._tally)
        self._exporters = OriginalExporters()
        self._waiting: deque[tuple[FlowSchema, Row]] = deque()
        self._now = float("-inf")

    def ingest(
        self, messages: Sequence[bytes | memoryview], sessions: Sequence[TransportSession], now: float
    ) -> IngestResult:
        self._now = now = max(now, self._now)
        notices = Notices()
        for message, session in zip(messages, sessions, strict=True):
            for data_set in self._intake.receive(message, session, now, notices):
                self._pass(data_set, session)
        return IngestResult(faulty=notices.faulty, notices=notices.all, is_due=len(self._waiting) >= DUE_ROWS)

    def expire(self, now: float, limit: int) -> list[FlowBatch]:
        self._now = max(now, self._now)
        groups: dict[int, tuple[FlowSchema, list[Row]]] = {}
        for _ in range(min(limit, len(self._waiting))):
            schema, row = self._waiting.popleft()
            groups.setdefault(id(schema), (schema, []))[1].append(row)
            self._tally.rows += 1
            self._tally.flows_exported_last += 1
        return [
            FlowBatch(
                schema,
                [
                    column_of_stored(element, values)
                    for element, values in zip(schema.elements, zip(*rows, strict=True), strict=True)
                ],
                is_first_export=self._is_enriched,
            )
            for schema, rows in groups.values()
        ]

    def next_expiry(self) -> float | None:
        return self._now if self._waiting else None

    def lookup(self, key: FlowKey) -> FlowBatch | None:
        return None

    def scan(self, flow_filter: FlowFilter, cursor: int, limit: int) -> tuple[list[FlowBatch], int | None]:
        return [], None

    def store_enriched(self, batch: FlowBatch, columns: Mapping[str, Sequence[Value]]) -> None:
        """Nothing is held that could keep them."""

    def close_session(self, session: TransportSession) -> None:
        self._intake.close_session(session)

    def tick(self, now: float) -> Sequence[TransportSession]:
        return self._intake.tick(now)

    def remembered_templates(self, now: float) -> Sequence[RememberedTemplate]:
        return self._intake.remembered_templates(now)

    def remember_templates(self, templates: Sequence[RememberedTemplate], now: float) -> int:
        return self._intake.remember_templates(templates, now)

    def statistics(self) -> KernelStatistics:
        return self._intake.statistics(held=len(self._waiting), waiting=0, strings_dropped=0)

    def _compile(self, template: Template, plan: Plan) -> _Rows:
        positions = positions_of(plan)
        extra: list[InformationElement] = []
        for index in plan.extra:
            element = as_column(template.fields[index])
            extra.append(element)
            positions[element.name] = index
        of_family = {
            family: self._compile_family(family, extra, positions)
            for family, pair in ADDRESS_ELEMENTS.items()
            if all(name in positions for name in pair)
        }
        return _Rows(
            addresses={
                family: tuple(positions[name] for name in pair if name in positions)
                for family, pair in ADDRESS_ELEMENTS.items()
            },
            of_family=of_family,
            times=PlainTimes(positions),
            has=frozenset(positions),
            dropped=plan.dropped,
        )

    def _compile_family(
        self, family: AddressFamily, extra: list[InformationElement], positions: Mapping[str, int]
    ) -> _OfFamily:
        schema = self._schemas[family]
        if extra:
            schema = replace(schema, elements=(*schema.elements, *extra))
        set_here = ("clusterId", "originalObservationDomainId", "originalExporterIPv4Address")
        names = (*set_here, "originalExporterIPv6Address", "flowDirection", "flowStartSeconds", "flowEndSeconds")
        named = (*names, "flowType", "sourcePodName", "destinationPodName")
        return _OfFamily(
            schema=schema,
            read=RowReader(schema.elements, positions, {"clusterId": self._cluster_id}),
            at={name: schema.position(name) for name in named},
        )

    def _pass(self, data_set: DataSet[_Rows], session: TransportSession) -> None:
        rows, received = data_set.rows, data_set.received
        if rows.dropped:
            add_bounded(self._tally.elements_dropped, rows.dropped, len(received.records))
        peer = self._exporters.of_session(session)
        for record in received.records:
            cause = self._add(record, rows, received.header, peer, data_set.init_time)
            if cause is not None:
                self._tally.reject(cause)
            else:
                self._tally.records_created += 1
                self._tally.flows_created += 1

    def _add(
        self, record: Row, rows: _Rows, header: MessageHeader, peer: tuple[bytes, bytes], init_time: int
    ) -> str | None:
        """Let a record's row wait; why not, if it cannot."""
        present = [family for family in AddressFamily if any(any(record[at]) for at in rows.addresses[family])]
        if not present:  # addresses that are all zero are addresses, if there are no others
            present = list(rows.of_family)[:1]
        if len(present) > 1:
            return "address_mixed"
        if not present or present[0] not in rows.of_family:
            return "address_absent"
        start = rows.times.start(record, header, init_time)
        if start is None and "flowStartSeconds" not in rows.has:
            return "time_absent"
        if len(self._waiting) >= MAXIMUM_DEPARTED:
            return "table_full"
        compiled = rows.of_family[present[0]]
        self._waiting.append((compiled.schema, self._complete(record, rows, compiled, header, peer, init_time)))
        return None

    def _complete(
        self,
        record: Row,
        rows: _Rows,
        compiled: _OfFamily,
        header: MessageHeader,
        peer: tuple[bytes, bytes],
        init_time: int,
    ) -> Row:
        """The row, with what the record leaves to us."""
        row: list[Any] = list(compiled.read(record))
        at = compiled.at
        for name, read in (("flowStartSeconds", rows.times.start), ("flowEndSeconds", rows.times.end)):
            if name not in rows.has:
                row[at[name]] = min((read(record, header, init_time) or 0) // 1000, _LAST_SECOND)
        row[at["clusterId"]] = row[at["clusterId"]] or self._cluster_id
        if "originalObservationDomainId" not in rows.has:
            row[at["originalObservationDomainId"]] = header.observation_domain_id
        ipv4_at, ipv6_at = at["originalExporterIPv4Address"], at["originalExporterIPv6Address"]
        if (row[ipv4_at], row[ipv6_at]) == (NO_IPV4, NO_IPV6):
            row[ipv4_at], row[ipv6_at] = peer
        if "flowDirection" not in rows.has:
            row[at["flowDirection"]] = _direction(
                row[at["flowType"]], bool(row[at["sourcePodName"]]), bool(row[at["destinationPodName"]])
            )
        return tuple(row)


def _direction(flow_type: int, has_source_pod: bool, has_destination_pod: bool) -> int:
    """flowDirection as the Node that sent an Antrea record saw it."""
    if flow_type == _INTER_NODE and has_source_pod != has_destination_pod:
        return _EGRESS if has_source_pod else _INGRESS
    if flow_type == _TO_EXTERNAL and has_source_pod:
        return _EGRESS
    if flow_type == _FROM_EXTERNAL and has_destination_pod:
        return _INGRESS
    return UNKNOWN_DIRECTION


def as_column(field: FieldSpecifier) -> InformationElement:
    """The element of a column that is kept as it came: by number, where its length does not fit its type."""
    element = field.element
    storage, _ = storage_of(element)
    is_cut = storage is Storage.OCTETS and field.length not in (0, element.length)
    if not carries_octets(field) and not is_cut:
        return element
    return ElementRegistry.unknown(element.enterprise_number, element.element_id, field.length)
