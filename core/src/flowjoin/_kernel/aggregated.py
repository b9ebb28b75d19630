"""Antrea's flows: two halves of one flow, from the Node of either end, joined and merged over time.

The rules are explained in docs/explanation/aggregation.md, with numbers. Invariants: a state changes only
under them; every counter is kept modulo 2**64; what would be negative is 0, and counted.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Final

from flowjoin._kernel.flow_keys import aggregated_key
from flowjoin._kernel.flow_table import FlowTable
from flowjoin._kernel.http_vals import merge_http_vals
from flowjoin._kernel.later_records import LaterRecords, Place, replace_text
from flowjoin._kernel.rows import Row, RowReader, positions_of
from flowjoin._kernel.strings import Strings
from flowjoin._kernel.tally import Tally
from flowjoin._model.flow_schema import AddressFamily, FlowSchema
from flowjoin._model.information_element import DataType, ElementId, InformationElement, MergeRule
from flowjoin._model.merge_rules import merge_rule
from flowjoin._model.plan import Plan
from flowjoin._model.schemas import of_family
from flowjoin._model.state_layout import StateLayout, Storage

__all__ = ["AggregatedFlows", "AggregatedRows"]

_INTER_NODE, _FROM_EXTERNAL = 2, 4  # flowType
_DROP, _REJECT = 2, 3  # ingress- and egressNetworkPolicyRuleAction
_END_OF_FLOW: Final = 3  # flowEndReason
_MASK: Final = 2**64 - 1
_NEGATIVE: Final = 2**63  # a delta with the top bit set is a negative one: old agents send such
_NEITHER, _SOURCE, _DESTINATION = 0, 1, 2  # whose record, by the Pods it names
_ZEROS: Final = (0,) * 8

_DELTAS: Final = ("octetDeltaCount", "packetDeltaCount", "reverseOctetDeltaCount", "reversePacketDeltaCount")
_TOTALS: Final = ("octetTotalCount", "packetTotalCount", "reverseOctetTotalCount", "reversePacketTotalCount")
_COUNTERS: Final = (*_DELTAS, *_TOTALS)
_SIDE: Final = InformationElement(name="reporting side", element_id=ElementId(0), data_type=DataType.UNSIGNED8)

# The state's leading slots, and the structs that read and write them.
_LEADING: Final = (
    *_COUNTERS,
    *(f"{counter}FromSourceNode" for counter in _COUNTERS),
    *(f"{counter}FromDestinationNode" for counter in _COUNTERS),
    "throughput",
    "reverseThroughput",
    "throughputFromSourceNode",
    "reverseThroughputFromSourceNode",
    "throughputFromDestinationNode",
    "reverseThroughputFromDestinationNode",
    "flowStartSeconds",
    "flowEndSeconds",
    "flowEndSecondsFromSourceNode",
    "flowEndSecondsFromDestinationNode",
    "flowEndReason",
)
_EIGHT: Final = struct.Struct("<8Q")
_TWO: Final = struct.Struct("<2Q")
_ONE: Final = struct.Struct("<Q")
_NUMBER_OF_TEXT: Final = struct.Struct("<I")
_FOUR_TOTALS: Final = struct.Struct("<4Q")
_TIMES: Final = struct.Struct("<3IBB")  # flow end, ends of either side, reason, reporting side
_COMMON_AT, _SOURCE_AT, _DESTINATION_AT, _THROUGHPUT_AT, _TIMES_AT, _SIDE_AT = 0, 64, 128, 192, 244, 257
_SIDES: Final = (
    (_SOURCE_AT, _THROUGHPUT_AT + 16),
    (_DESTINATION_AT, _THROUGHPUT_AT + 32),
)
_DELTA_OCTETS: Final = 32  # the four deltas at the beginning of each block of counters
_THROUGHPUT_OCTETS: Final = 48

# The first elements of a row; the others follow in the order of their slots.
_CORE: Final = (
    "flowStartSeconds",
    "flowEndSeconds",
    "flowEndReason",
    "flowType",
    "ingressNetworkPolicyRuleAction",
    "egressNetworkPolicyRuleAction",
    "sourceIPv4Address",
    "destinationIPv4Address",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "proxySnatIPv4",
    "proxySnatPort",
    "sourcePodName",
    "destinationPodName",
    "httpVals",
)
_COUNTERS_AT: Final = len(_CORE)
_REST_AT: Final = _COUNTERS_AT + len(_COUNTERS)
# What the external half of a from-external flow knows better, whichever half came first.
_COPIED: Final = ("sourceIPv4Address", "sourceTransportPort", "proxySnatIPv4", "proxySnatPort", "flowType")


@dataclass(frozen=True, slots=True)
class AggregatedRows:
    """What one Template's records need, compiled."""

    read: RowReader
    has_http_vals: bool
    later: LaterRecords


class AggregatedFlows:
    """The flows of one address family.

    Attributes:
        layout: of their states.
    """

    def __init__(
        self, schema: FlowSchema, table: FlowTable, strings: Strings, tally: Tally, *, cluster_id: str
    ) -> None:
        self._table = table
        self._strings = strings
        self._tally = tally
        self._cluster_id = cluster_id
        sums = [
            element
            for element in schema.elements
            if element.name not in _LEADING and merge_rule(element, schema.origin) is MergeRule.SUM
        ]
        self.layout = StateLayout(
            schema, leading=_LEADING, hidden=(_SIDE, *(half for element in sums for half in _halves(element)))
        )
        assert self.layout.offset("flowEndSeconds") == _TIMES_AT, "the leading slots and their structs agree"
        slots = self.layout.slots
        rest = [slot for name, slot in slots.items() if name not in _LEADING and slot.element in schema.elements]
        self._texts_at = _REST_AT + sum(slot.storage is not Storage.INTERNED for slot in rest)
        self._places = {slot.element.name: Place(_REST_AT + at, slot) for at, slot in enumerate(rest)}
        self._sums = [_Sum(self._places[element.name], *_halves_at(self.layout, element)) for element in sums]
        own = {name: of_family(name, schema.family) for name in (*_CORE, *_COPIED)}
        self._elements = [
            *(schema.elements[schema.position(own[name])] for name in _CORE),
            *(schema.elements[schema.position(name)] for name in _COUNTERS),
            *(slot.element for slot in rest),
        ]
        self._fills = [place for place in self._places.values() if place.slot.rule is MergeRule.FILL]
        self._copied = [self._places[own[name]] for name in _COPIED]
        self._http_vals_at = self.layout.offset("httpVals")
        self._cluster_at = self._places["clusterId"].at
        self._no_address = bytes(4 if schema.family is AddressFamily.IPV4 else 16)

    def compile(self, plan: Plan) -> AggregatedRows:
        """Prepare for the records of a Template."""
        positions = positions_of(plan)
        return AggregatedRows(
            read=RowReader(self._elements, positions, {"clusterId": self._cluster_id}),
            has_http_vals="httpVals" in positions,
            later=LaterRecords(
                [place.slot for place in self._places.values()],
                {name: place.at for name, place in self._places.items() if name in positions},
            ),
        )

    def merge(self, row: Row, rows: AggregatedRows, now: float) -> None:
        """Merge one record's row: create its flow, or change it."""
        flow_type, ingress_action, egress_action = row[3], row[4], row[5]
        snat_address, source_pod, destination_pod = row[11], row[13], row[14]
        # A Node that takes a connection from outside and forwards it, with source NAT, to a Pod elsewhere.
        is_external_half = flow_type == _FROM_EXTERNAL and not destination_pod and snat_address != self._no_address
        # The other Node sees the connection too, unless it was denied before; what its ingress drops, it saw.
        needs_join = (
            (flow_type == _INTER_NODE or is_external_half)
            and egress_action not in (_DROP, _REJECT)
            and ingress_action != _REJECT
        )
        if is_external_half or (source_pod and not destination_pod):
            side = _SOURCE
        else:
            side = _DESTINATION if destination_pod and not source_pod else _NEITHER
        if is_external_half:
            key = aggregated_key(snat_address, row[7], row[12], row[9], row[10])
        else:
            key = aggregated_key(*row[6:11])

        handle = self._table.find(key)
        if handle is None:
            if not self._table.has_room():
                self._tally.reject("table_full")
                return
            state = self._first(row, side, needs_join=needs_join)
            self._table.store(key, self.layout, state, is_ready=not needs_join, now=now)
            self._tally.records_created += 1
            return
        state = self._table.state(handle)
        joins = False
        if needs_join and not self._table.is_ready(handle):
            stored_side = state[_SIDE_AT]
            joins = side == _NEITHER or side != stored_side
            if joins:
                self._join(state, row, is_external_half=is_external_half)
        is_changed = self._aggregate(state, row, rows, side, is_one_sided=needs_join)
        self._table.touch(handle, now, joins=joins)
        if joins or is_changed:
            self._tally.records_merged += 1
        else:
            self._tally.records_older += 1

    def _first(self, row: Row, side: int, *, needs_join: bool) -> bytearray:
        """The state of a new flow."""
        start, end, reason = row[0], row[1], row[2]
        counters = (*self._clamped(row[_COUNTERS_AT : _COUNTERS_AT + 4]), *row[_COUNTERS_AT + 4 : _REST_AT])
        throughput = _rates(counters[4], counters[6], end - start) if end > start else (0, 0)
        of_source = not needs_join or side == _SOURCE
        of_destination = not needs_join or side != _SOURCE
        texts = list(row[self._texts_at :])
        texts[self._cluster_at - self._texts_at] = texts[self._cluster_at - self._texts_at] or self._cluster_id
        sums = [row[of_sum.place.at] for of_sum in self._sums]
        return bytearray(
            self.layout.struct.pack(
                *counters,
                *(counters if of_source else _ZEROS),
                *(counters if of_destination else _ZEROS),
                *throughput,
                *(throughput if of_source else (0, 0)),
                *(throughput if of_destination else (0, 0)),
                start,
                end,
                end if of_source else 0,
                end if of_destination else 0,
                reason,
                side,
                *(half for value in sums for half in (value * of_source, value * of_destination)),
                *row[_REST_AT : self._texts_at],
                *map(self._strings.acquire, texts),
            )
        )

    def _join(self, state: bytearray, row: Row, *, is_external_half: bool) -> None:
        """The other half came: what it knows fills, or replaces, what the stored half said."""
        for place in self._fills:
            if row[place.at] != place.zero:
                place.write(state, row[place.at], self._strings)
        if is_external_half:  # the stored half took the SNAT address for the source
            for place in self._copied:
                place.write(state, row[place.at], self._strings)

    def _aggregate(self, state: bytearray, row: Row, rows: AggregatedRows, side: int, *, is_one_sided: bool) -> bool:
        """Merge counters, times and what changes with them; False if the side knew as much already."""
        start, end, reason = row[0], row[1], row[2]
        flow_end, source_end, destination_end, stored_reason, stored_side = _TIMES.unpack_from(state, _TIMES_AT)
        is_latest = end >= flow_end
        if is_latest:
            flow_end = end
        of_source = not is_one_sided or side == _SOURCE
        of_destination = not is_one_sided or side != _SOURCE
        previous = 0
        if of_source:
            previous, source_end = source_end or start, end
        if of_destination:  # of a record that speaks for both, the destination's end counts
            previous, destination_end = destination_end or start, end
        is_newer = end > previous
        if is_newer and stored_reason != _END_OF_FLOW:
            stored_reason = reason
        _TIMES.pack_into(state, _TIMES_AT, flow_end, source_end, destination_end, stored_reason, stored_side)
        if not is_newer:
            return False
        if rows.has_http_vals:
            self._merge_http_vals(state, row[15])
        rows.later.apply(state, row, self._strings, is_latest=is_latest)
        self._count(state, row, end - previous, (of_source, of_destination), is_latest=is_latest)
        for of_sum in self._sums:
            of_sum.add(state, row, (of_source, of_destination), is_latest=is_latest)
        return True

    def _count(self, state: bytearray, row: Row, seconds: int, of_side: tuple[bool, bool], *, is_latest: bool) -> None:
        delta, packets, back, packets_back = self._clamped(row[_COUNTERS_AT : _COUNTERS_AT + 4])
        totals = row[_COUNTERS_AT + 4 : _REST_AT]
        octets = reverse_octets = 0
        sums = (0, 0, 0, 0)
        # Unrolled, and spelt out without helpers: this runs for every record of a known flow.
        for side, is_reported in enumerate(of_side):
            if not is_reported:
                continue
            counters_at = _SIDES[side][0]
            stored = _EIGHT.unpack_from(state, counters_at)
            octets, reverse_octets = totals[0] - stored[4], totals[2] - stored[6]
            sums = (
                stored[0] + delta & _MASK,
                stored[1] + packets & _MASK,
                stored[2] + back & _MASK,
                stored[3] + packets_back & _MASK,
            )
            _EIGHT.pack_into(state, counters_at, *sums, *totals)
        if octets < 0 or reverse_octets < 0:  # an agent began to count anew
            self._tally.counters_clamped += (octets < 0) + (reverse_octets < 0)
            octets, reverse_octets = max(octets, 0), max(reverse_octets, 0)
        rates = _rates(octets, reverse_octets, seconds)
        for side, is_reported in enumerate(of_side):
            if is_reported:
                _TWO.pack_into(state, _SIDES[side][1], *rates)
        if is_latest:  # the common counters are those of the side that reported last
            common_totals = _FOUR_TOTALS.unpack_from(state, _COMMON_AT + _DELTA_OCTETS)
            _EIGHT.pack_into(state, _COMMON_AT, *sums, *map(max, common_totals, totals))
            _TWO.pack_into(state, _THROUGHPUT_AT, *rates)

    def _merge_http_vals(self, state: bytearray, incoming: str) -> None:
        (number,) = _NUMBER_OF_TEXT.unpack_from(state, self._http_vals_at)
        merged, is_united = merge_http_vals(incoming, str(self._strings[number]))
        self._tally.http_vals_replaced += not is_united
        replace_text(state, self._http_vals_at, merged, self._strings)

    def _clamped(self, deltas: tuple[int, ...]) -> tuple[int, ...]:
        if max(deltas) < _NEGATIVE:
            return deltas
        self._tally.counters_clamped += sum(delta >= _NEGATIVE for delta in deltas)
        return tuple(0 if delta >= _NEGATIVE else delta for delta in deltas)

    def reset(self, state: bytearray) -> None:
        """After an export: deltas and throughputs begin anew, all else goes on."""
        for at in (_COMMON_AT, _SOURCE_AT, _DESTINATION_AT):
            state[at : at + _DELTA_OCTETS] = bytes(_DELTA_OCTETS)
        state[_THROUGHPUT_AT : _THROUGHPUT_AT + _THROUGHPUT_OCTETS] = bytes(_THROUGHPUT_OCTETS)
        for of_sum in self._sums:
            of_sum.reset(state)


class _Sum:
    """An extra element that adds up: per side, so that a flow's two halves are not counted twice."""

    __slots__ = ("_halves_at", "_maximum", "place")

    def __init__(self, place: Place, source_at: int, destination_at: int) -> None:
        self.place = place
        self._halves_at = (source_at, destination_at)
        self._maximum = 256 ** struct.calcsize(place.slot.format) - 1

    def add(self, state: bytearray, row: Row, of_side: tuple[bool, bool], *, is_latest: bool) -> None:
        total = 0
        for at, is_reported in zip(self._halves_at, of_side, strict=True):
            if is_reported:
                total = (_ONE.unpack_from(state, at)[0] + row[self.place.at]) & _MASK
                _ONE.pack_into(state, at, total)
        if is_latest:
            self.place.put(state, min(total, self._maximum))

    def reset(self, state: bytearray) -> None:
        for at in self._halves_at:
            _ONE.pack_into(state, at, 0)
        self.place.put(state, 0)


def _halves(element: InformationElement) -> list[InformationElement]:
    """The hidden counters of an extra element that adds up, one a side."""
    return [
        replace(element, name=f"{element.name} of {side}", data_type=DataType.UNSIGNED64, length=8)
        for side in ("source", "destination")
    ]


def _halves_at(layout: StateLayout, element: InformationElement) -> list[int]:
    return [layout.offset(half.name) for half in _halves(element)]


def _rates(octets: int, reverse_octets: int, seconds: int) -> tuple[int, int]:
    """Bits a second of either direction; the product is taken modulo 2**64."""
    return (octets * 8 & _MASK) // seconds, (reverse_octets * 8 & _MASK) // seconds
