"""The kernel in plain Python: written for reading, and what any other form is compared with.

Strategy: Messages become Data Sets with their plans (``Intake``), records become rows (``RowReader``), rows
are merged by their kind of flow (``AggregatedFlows``, ``PlainFlows``) into packed states (``FlowTable``), and
states become batches (``BatchMaker``). Invariant: everything that comes out is a function of the calls made
and their arguments; nothing depends on hash order, identity or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from flowjoin._kernel.aggregated import AggregatedFlows, AggregatedRows
from flowjoin._kernel.batches import BatchMaker
from flowjoin._kernel.checkpoint import FlowKeeper, described
from flowjoin._kernel.flow_keys import KeyFilter, key_of
from flowjoin._kernel.flow_table import FlowTable
from flowjoin._kernel.intake import DataSet, Intake, Notices
from flowjoin._kernel.interface import CompilePlan, IngestResult, KernelLimits, KernelStatistics
from flowjoin._kernel.original_exporters import OriginalExporters
from flowjoin._kernel.plain import PlainFlows, PlainRows
from flowjoin._kernel.rows import Row, positions_of
from flowjoin._kernel.store_enriched import EnrichedColumns
from flowjoin._kernel.strings import Strings
from flowjoin._kernel.tally import Tally, add_bounded
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter, FlowKey
from flowjoin._model.flow_schema import ADDRESS_ELEMENTS, AddressFamily, FlowOrigin
from flowjoin._model.information_element import Value
from flowjoin._model.plan import Plan
from flowjoin._model.schemas import FlowSchemas
from flowjoin._model.template import Template
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire.decoder import Decoder
from flowjoin.wire.remembered import RememberedTemplate

__all__ = ["DUE_ROWS", "FLOWS_PER_SLICE", "PythonKernel"]

DUE_ROWS: Final = 4_096  # rows that wait beside the table: as many should not wait for the next tick
FLOWS_PER_SLICE: Final = 128  # some 40 µs a flow: 5 ms
_TIMES: Final = {"flowStartSeconds", "flowEndSeconds"}


@dataclass(frozen=True, slots=True)
class _Rows:
    """What was compiled for one Template.

    Attributes:
        aggregated: by family, if the records are Antrea's.
        plain: by family, if not.
        family: of the records, unless the Template has the addresses of both.
        ipv4_at: then, where the IPv4 addresses are.
        ipv6_at: and the IPv6 addresses.
        dropped: names of fields that no flow takes.
        rejected: why no record of the Template can be a flow.
    """

    aggregated: Mapping[AddressFamily, AggregatedRows]
    plain: Mapping[AddressFamily, PlainRows]
    family: AddressFamily
    ipv4_at: tuple[int, int] | None
    ipv6_at: tuple[int, int] | None
    dropped: tuple[str, ...]
    rejected: str | None


class PythonKernel:
    """Joins and merges flows; see ``interface.Kernel``."""

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
        """Begin empty.

        Args:
            decoder: of Messages; it becomes the kernel's own.
            compile_plan: makes the plans of Templates; of the same schemas.
            schemas: of the batches.
            limits: on what is stored.
            cluster_id: of flows whose records bring none.
            is_enriched: whether rows of flows are offered, apart, until ``store_enriched`` was called for them.
        """
        tally = Tally()
        self._tally = tally
        self._limits = limits
        self._is_enriched = is_enriched
        self._strings = Strings(limits.string_octets)
        self._table = FlowTable(limits, self._strings, tally)
        self._aggregated = {
            family: AggregatedFlows(
                schemas[FlowOrigin.AGGREGATED, family], self._table, self._strings, tally, cluster_id=cluster_id
            )
            for family in AddressFamily
        }
        self._plain = {
            family: PlainFlows(schemas[FlowOrigin.PLAIN, family], self._table, self._strings, tally)
            for family in AddressFamily
        }
        kinds: list[AggregatedFlows | PlainFlows] = [*self._aggregated.values(), *self._plain.values()]
        self._layouts = {(kind.layout.schema.origin, kind.layout.schema.family): kind.layout for kind in kinds}
        self._reset = {kind.layout: kind.reset for kind in kinds}
        self._keeper = FlowKeeper(self._table, self._strings, list(self._reset), self._reset)
        self._intake = Intake(decoder, compile_plan, self._compile, tally)
        self._exporters = OriginalExporters()
        self._now = float("-inf")

    def ingest(
        self, messages: Sequence[bytes | memoryview], sessions: Sequence[TransportSession], now: float
    ) -> IngestResult:
        self._now = now = max(now, self._now)
        notices = Notices()
        for message, session in zip(messages, sessions, strict=True):
            for data_set in self._intake.receive(message, session, now, notices):
                self._merge(data_set, session, now)
        return IngestResult(faulty=notices.faulty, notices=notices.all, is_due=len(self._table.departed) >= DUE_ROWS)

    def expire(self, now: float, limit: int) -> list[FlowBatch]:
        self._now = now = max(now, self._now)
        table = self._table
        maker = BatchMaker(self._strings)
        looked_at = 0
        while table.departed and looked_at < limit:
            departed = table.departed.popleft()
            is_first = self._is_enriched and not departed.is_enriched
            maker.add(departed.layout, departed.state, is_first_export=is_first, handle=None)
            table.release_departed(departed)
            looked_at += 1
        while looked_at < limit:
            handle = table.first_due(now)
            if handle is None:
                break
            looked_at += 1
            if not table.is_ready(handle):
                table.retry(handle, now)
                continue
            if table.take_update(handle):
                layout, state = table.layout(handle), table.state(handle)
                is_first = self._is_enriched and not table.is_enriched(handle)
                maker.add(layout, state, is_first_export=is_first, handle=(handle, table.serial(handle)))
                self._reset[layout](state)
            table.settle(handle, now)
        self._tally.rows += maker.rows
        return maker.batches()

    def next_expiry(self) -> float | None:
        if self._table.departed:
            return self._now  # their time has come
        return self._table.next_deadline()

    def lookup(self, key: FlowKey) -> FlowBatch | None:
        packed = key_of(key)
        handle = None if packed is None else self._table.find(packed)
        if handle is None:
            return None
        maker = BatchMaker(self._strings)
        maker.add(self._table.layout(handle), self._table.state(handle), is_first_export=False, handle=None)
        return maker.batches()[0]

    def scan(self, flow_filter: FlowFilter, cursor: int, limit: int) -> tuple[list[FlowBatch], int | None]:
        table = self._table
        maker = BatchMaker(self._strings)
        wanted = KeyFilter(flow_filter)
        end = min(cursor + limit, table.slots)
        for handle in range(cursor, end):
            key = table.key(handle)
            if key is not None and wanted.matches(key):
                maker.add(table.layout(handle), table.state(handle), is_first_export=False, handle=None)
        return maker.batches(), end if end < table.slots else None

    def store_enriched(self, batch: FlowBatch, columns: Mapping[str, Sequence[Value]]) -> None:
        layout = self._layouts.get((batch.schema.origin, batch.schema.family))
        if layout is None:
            return  # rows of a source: no flow is held for them
        enriched = EnrichedColumns(layout, len(batch), columns)
        table = self._table
        for row, handle in enumerate(batch.handles):
            if not isinstance(handle, tuple):
                continue  # the flow had left when its row was made
            place, serial = handle
            if table.key(place) is not None and table.serial(place) == serial:  # else it has left since
                enriched.fill(row, table.state(place), self._strings)
                table.set_enriched(place)

    def close_session(self, session: TransportSession) -> None:
        self._intake.close_session(session)

    def tick(self, now: float) -> Sequence[TransportSession]:
        return self._intake.tick(now)

    def remembered_templates(self, now: float) -> Sequence[RememberedTemplate]:
        return self._intake.remembered_templates(now)

    def remember_templates(self, templates: Sequence[RememberedTemplate], now: float) -> int:
        return self._intake.remember_templates(templates, now)

    @property
    def kept_layout(self) -> Sequence[Sequence[str]]:
        return described(list(self._reset))

    def flush(self, cursor: int, limit: int) -> tuple[list[FlowBatch], int | None]:
        table = self._table
        maker = BatchMaker(self._strings)
        end = min(cursor + limit, table.slots)
        for handle in range(cursor, end):
            if table.key(handle) is not None and table.is_ready(handle) and table.take_update(handle):
                layout, state = table.layout(handle), table.state(handle)
                is_first = self._is_enriched and not table.is_enriched(handle)
                maker.add(layout, state, is_first_export=is_first, handle=(handle, table.serial(handle)))
                self._reset[layout](state)
        self._tally.rows += maker.rows
        return maker.batches(), end if end < table.slots else None

    def dump(self, cursor: int, limit: int) -> tuple[bytes, int | None]:
        return self._keeper.dump(cursor, limit)

    def restore(self, block: bytes, offset: float, *, is_continued: bool) -> tuple[int, int]:
        return self._keeper.restore(block, offset, is_continued=is_continued)

    def order_restored(self, limit: int) -> bool:
        return self._keeper.order(limit)

    def statistics(self) -> KernelStatistics:
        return self._intake.statistics(
            held=len(self._table), waiting=self._table.waiting, strings_dropped=self._strings.dropped
        )

    def _compile(self, _template: Template, plan: Plan) -> _Rows:
        moved = positions_of(plan)
        is_antrea = plan.origin is FlowOrigin.AGGREGATED
        at = {
            family: (moved[pair[0]], moved[pair[1]]) if all(name in moved for name in pair) else None
            for family, pair in ADDRESS_ELEMENTS.items()
        }
        # A plain flow may lack an address, or both: then what it has tells its family.
        has_some_ipv4 = any(name in moved for name in ADDRESS_ELEMENTS[AddressFamily.IPV4])
        has_some_ipv6 = any(name in moved for name in ADDRESS_ELEMENTS[AddressFamily.IPV6])
        is_ipv6 = not plan.has_ipv4 and (plan.has_ipv6 or (has_some_ipv6 and not has_some_ipv4))
        family = AddressFamily.IPV6 if is_ipv6 else AddressFamily.IPV4
        families = tuple(AddressFamily) if plan.has_ipv4 and plan.has_ipv6 else (family,)
        rejected = None
        if is_antrea and not plan.has_ipv4 and not plan.has_ipv6:
            rejected = "address_absent"
        elif is_antrea and not moved.keys() >= _TIMES:
            rejected = "time_absent"
        return _Rows(
            aggregated={each: self._aggregated[each].compile(plan) for each in families} if is_antrea else {},
            plain={} if is_antrea else {each: self._plain[each].compile(plan) for each in families},
            family=family,
            ipv4_at=at[AddressFamily.IPV4] if len(families) > 1 else None,
            ipv6_at=at[AddressFamily.IPV6] if len(families) > 1 else None,
            dropped=plan.dropped,
            rejected=rejected,
        )

    def _merge(self, data_set: DataSet[_Rows], session: TransportSession, now: float) -> None:
        rows, header, records = data_set.rows, data_set.received.header, data_set.received.records
        if rows.dropped:
            add_bounded(self._tally.elements_dropped, rows.dropped, len(records))
        if rows.rejected is not None:
            self._tally.reject(rows.rejected, len(records))
            return
        if rows.plain:
            peer = self._exporters.of_session(session)
            for record in records:
                family = _family_of(record, rows)
                self._plain[family].merge(record, rows.plain[family], header, peer, now, init_time=data_set.init_time)
            return
        for record in records:
            family = _family_of(record, rows)
            compiled = rows.aggregated[family]
            self._aggregated[family].merge(compiled.read(record), compiled, now)


def _family_of(record: Row, rows: _Rows) -> AddressFamily:
    """A Template with addresses of both families: the side that is all zero is absent; IPv4 if neither is."""
    if rows.ipv4_at is None or rows.ipv6_at is None:
        return rows.family
    has_ipv4 = any(any(record[at]) for at in rows.ipv4_at)
    has_ipv6 = any(any(record[at]) for at in rows.ipv6_at)
    return AddressFamily.IPV6 if has_ipv6 and not has_ipv4 else AddressFamily.IPV4
