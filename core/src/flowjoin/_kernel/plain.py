"""Plain flows: one original exporter's records about one flow, merged over time.

Ready at once: there is no other half. Deltas add up and totals take the maximum; where a record has only
one of them, the other is derived from it. Invariants: no absent element is a reason to drop a record;
every counter is kept modulo 2**64; what would be negative is 0, and counted.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from flowjoin._kernel.flow_keys import aggregated_key, plain_key
from flowjoin._kernel.flow_table import FlowTable
from flowjoin._kernel.later_records import LaterRecords, Place
from flowjoin._kernel.original_exporters import NO_IPV4, NO_IPV6, exporter_key
from flowjoin._kernel.plain_times import PlainTimes
from flowjoin._kernel.rows import Row, RowReader, positions_of
from flowjoin._kernel.strings import Strings
from flowjoin._kernel.tally import Tally, add_bounded
from flowjoin._model.flow_schema import FlowSchema
from flowjoin._model.information_element import MergeRule
from flowjoin._model.plan import Plan
from flowjoin._model.schemas import UNKNOWN_DIRECTION, of_family
from flowjoin._model.state_layout import Derivation, StateLayout, Storage
from flowjoin.wire.events import MessageHeader

__all__ = ["PlainFlows", "PlainRows"]

_ICMP_PROTOCOLS: Final = (1, 58)
_MASK: Final = 2**64 - 1
_NEGATIVE: Final = 2**63  # a delta with the top bit set is a negative one
_LAST_SECOND: Final = 2**32 - 1

_DELTAS: Final = ("octetDeltaCount", "packetDeltaCount", "reverseOctetDeltaCount", "reversePacketDeltaCount")
_TOTALS: Final = ("octetTotalCount", "packetTotalCount", "reverseOctetTotalCount", "reversePacketTotalCount")
_FORWARD: Final = 2  # the first counters: a record that lacks its reverse ones lacks nothing

# The state's leading slots, in the order of the structs that read and write them.
_LEADING: Final = (
    *_DELTAS,
    *_TOTALS,
    "flowStartMilliseconds",
    "flowEndMilliseconds",
    "tcpControlBits",
    "sourceIPv4Address",
    "destinationIPv4Address",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "icmpTypeCodeIPv4",
    "ingressInterface",
    "originalExporterIPv4Address",
    "originalExporterIPv6Address",
    "originalObservationDomainId",
    "flowDirection",
)
_CHANGING: Final = struct.Struct("<10QH")  # the counters, both times, tcpControlBits
_DELTA_OCTETS: Final = 32

# The first elements of a row, before the counters; the others follow in the order of their slots.
_CORE: Final = (
    "sourceIPv4Address",
    "destinationIPv4Address",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "ingressInterface",
    "icmpTypeCodeIPv4",
    "icmpTypeIPv4",
    "icmpCodeIPv4",
    "tcpControlBits",
    "flowDirection",
    "originalExporterIPv4Address",
    "originalExporterIPv6Address",
    "originalObservationDomainId",
)
_DELTAS_AT: Final = len(_CORE)
_TOTALS_AT: Final = _DELTAS_AT + 4
_REST_AT: Final = _TOTALS_AT + 4


@dataclass(frozen=True, slots=True)
class PlainRows:
    """What one Template's records need, compiled.

    Attributes:
        has_icmp: the Template has ICMP type and code in one element.
        has_delta: for each of the four counters, whether the Template has its delta.
        has_total: likewise.
        absent: elements that the key or the books want and the Template lacks, times apart.
        lacking_ports: those of them that ICMP has not either.
    """

    read: RowReader
    times: PlainTimes
    later: LaterRecords
    has_icmp: bool
    has_domain: bool
    has_delta: tuple[bool, ...]
    has_total: tuple[bool, ...]
    absent: tuple[str, ...]
    lacking_ports: tuple[str, ...]


class PlainFlows:
    """The flows of one address family.

    Attributes:
        layout: of their states.
    """

    def __init__(self, schema: FlowSchema, table: FlowTable, strings: Strings, tally: Tally) -> None:
        self._table = table
        self._strings = strings
        self._tally = tally
        self._family = schema.family
        own = {name: of_family(name, schema.family) for name in (*_CORE, *_LEADING)}
        icmp = own["icmpTypeCodeIPv4"]
        self.layout = StateLayout(
            schema,
            leading=[own[name] for name in _LEADING],
            derived={
                "flowStartSeconds": Derivation("flowStartMilliseconds", _seconds),
                "flowEndSeconds": Derivation("flowEndMilliseconds", _seconds),
                own["icmpTypeIPv4"]: Derivation(icmp, _icmp_type),
                own["icmpCodeIPv4"]: Derivation(icmp, _icmp_code),
            },
        )
        leading = {own[name] for name in _LEADING}
        rest = [slot for name, slot in self.layout.slots.items() if name not in leading]
        self._texts_at = _REST_AT + sum(slot.storage is not Storage.INTERNED for slot in rest)
        self._places = {slot.element.name: Place(_REST_AT + at, slot) for at, slot in enumerate(rest)}
        direction = Place(_CORE.index("flowDirection"), self.layout.slots["flowDirection"])
        self._by_general_rules = {**self._places, "flowDirection": direction}
        self._sums = [place for place in self._places.values() if place.slot.rule is MergeRule.SUM]
        self._fills = [place for place in self._places.values() if place.slot.rule is MergeRule.FILL]
        self._elements = [
            *(schema.elements[schema.position(own[name])] for name in _CORE),
            *(schema.elements[schema.position(name)] for name in (*_DELTAS, *_TOTALS)),
            *(slot.element for slot in rest),
        ]
        self._own = own

    def compile(self, plan: Plan) -> PlainRows:
        """Prepare for the records of a Template."""
        moved = positions_of(plan)
        own, times = self._own, PlainTimes(moved)
        has_delta = tuple(name in moved for name in _DELTAS)
        has_total = tuple(name in moved for name in _TOTALS)
        wanted = (own["sourceIPv4Address"], own["destinationIPv4Address"], "protocolIdentifier")
        ports = ("sourceTransportPort", "destinationTransportPort")
        return PlainRows(
            read=RowReader(self._elements, moved, {"flowDirection": UNKNOWN_DIRECTION}),
            times=times,
            later=LaterRecords(
                [place.slot for place in self._by_general_rules.values()],
                {name: place.at for name, place in self._by_general_rules.items() if name in moved},
            ),
            has_icmp=own["icmpTypeCodeIPv4"] in moved,
            has_domain="originalObservationDomainId" in moved,
            has_delta=has_delta,
            has_total=has_total,
            absent=(
                *(name for name in wanted if name not in moved),
                *(_DELTAS[at] for at in range(_FORWARD) if not has_delta[at] and not has_total[at]),
            ),
            lacking_ports=tuple(name for name in ports if name not in moved),
        )

    def merge(
        self,
        record: Row,
        rows: PlainRows,
        header: MessageHeader,
        peer: tuple[bytes, bytes],
        now: float,
        *,
        init_time: int = 0,
    ) -> None:
        """Merge one record: create its flow, or change it."""
        row = rows.read(record)
        protocol = row[4]
        absent_times = rows.times.absent_with_init_time if init_time else rows.times.absent
        add_bounded(self._tally.elements_absent, (*rows.absent, *absent_times), 1)
        if rows.lacking_ports and protocol not in _ICMP_PROTOCOLS:
            add_bounded(self._tally.elements_absent, rows.lacking_ports, 1)
        icmp = row[6] if rows.has_icmp else row[7] << 8 | row[8]
        exporters = (row[11], row[12])
        if exporters == (NO_IPV4, NO_IPV6):
            exporters = peer
        domain = row[13] if rows.has_domain else header.observation_domain_id
        key = plain_key(aggregated_key(*row[:5]), exporter_key(*exporters), domain, row[5], icmp)
        start, end, is_clamped = rows.times.read(record, header, init_time)
        self._tally.times_clamped += is_clamped

        handle = self._table.find(key)
        if handle is not None:
            if self._table.is_anew(handle):
                self._know_totals(self._table.state(handle), row, rows)
                self._table.set_continued(handle)
            self._later(self._table.state(handle), row, rows, start, end)
            self._table.touch(handle, now, joins=False)
            self._tally.records_merged += 1
            return
        if not self._table.has_room():
            self._tally.reject("table_full")
            return
        state = bytearray(
            self.layout.struct.pack(
                *self._counted((0,) * 8, row, rows, is_latest=True),
                start,
                end,
                row[9],
                *row[0:5],
                icmp,
                row[5],
                *exporters,
                domain,
                row[10],
                *row[_REST_AT : self._texts_at],
                *map(self._strings.acquire, row[self._texts_at :]),
            )
        )
        self._table.store(key, self.layout, state, is_ready=True, now=now)
        self._tally.records_created += 1

    def _later(self, state: bytearray, row: Row, rows: PlainRows, start: int, end: int) -> None:
        *counters, stored_start, stored_end, bits = _CHANGING.unpack_from(state)
        is_latest = end >= stored_end
        _CHANGING.pack_into(
            state,
            0,
            *self._counted(tuple(counters), row, rows, is_latest=is_latest),
            min(start, stored_start),
            max(end, stored_end),
            bits | row[9],
        )
        rows.later.apply(state, row, self._strings, is_latest=is_latest)
        for place in self._fills:
            if row[place.at] != place.zero:
                place.write(state, row[place.at], self._strings)
        for place in self._sums:
            maximum = 256 ** struct.calcsize(place.slot.format) - 1
            place.put(state, min(int(place.get(state)) + row[place.at], maximum))

    def _know_totals(self, state: bytearray, row: Row, rows: PlainRows) -> None:
        """After a kill: what totals have grown by since the flow was kept may have been exported, and is no delta."""
        counters = list(_CHANGING.unpack_from(state))
        for at in range(4):
            if rows.has_total[at] and not rows.has_delta[at]:
                counters[4 + at] = max(counters[4 + at], row[_TOTALS_AT + at])
        _CHANGING.pack_into(state, 0, *counters)

    def _counted(self, stored: tuple[int, ...], row: Row, rows: PlainRows, *, is_latest: bool) -> list[int]:
        """The eight counters after a row."""
        deltas, totals = list(stored[:4]), list(stored[4:])
        for at in range(4):
            delta, total = row[_DELTAS_AT + at], row[_TOTALS_AT + at]
            if rows.has_delta[at]:
                if delta >= _NEGATIVE:
                    self._tally.counters_clamped += 1
                    delta = 0
            elif rows.has_total[at]:
                delta = total - totals[at]  # what the total grew by
                if delta < 0:
                    self._tally.counters_clamped += is_latest  # an earlier record's total is rightly lower
                    delta = 0
            else:
                continue
            deltas[at] = (deltas[at] + delta) & _MASK
            totals[at] = max(totals[at], total) if rows.has_total[at] else (totals[at] + delta) & _MASK
        return deltas + totals

    def reset(self, state: bytearray) -> None:
        """After an export: deltas begin anew, all else goes on."""
        state[:_DELTA_OCTETS] = bytes(_DELTA_OCTETS)
        for place in self._sums:
            place.put(state, 0)


def _seconds(milliseconds: int) -> int:
    return min(milliseconds // 1000, _LAST_SECOND)


def _icmp_type(type_and_code: int) -> int:
    return type_and_code >> 8


def _icmp_code(type_and_code: int) -> int:
    return type_and_code & 0xFF
