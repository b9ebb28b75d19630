"""Exports of the store as batches: the elements an Antrea agent sends, by address family.

Column by column: what is nobody's Pod, no Service's and no rule's in a whole batch costs nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final

from flowjoin.api import (
    AddressFamily,
    Egress,
    ElementRegistry,
    FlowBatch,
    FlowOrigin,
    FlowSchema,
    Pod,
    PolicyRule,
    Value,
)
from flowjoin_conntrack._entry import ROW, Connection, tcp_state_name
from flowjoin_conntrack._exports import Export
from flowjoin_conntrack._metadata import Metadata, address_text

__all__ = ["BatchMaker"]

_SECOND: Final = 1_000_000_000
_32_BITS: Final = 0xFFFFFFFF  # of dateTimeSeconds (RFC 7011 section 6.1.7)
_NO_UUID: Final = bytes(16)
_COUNTS: Final = {  # element to the connection's counter
    "packet": "packets",
    "octet": "octets",
    "reversePacket": "reverse_packets",
    "reverseOctet": "reverse_octets",
}
_RULE: Final[
    dict[str, tuple[str, Value]]
] = {  # end of an element's name to the rule's attribute, and what stands for no rule
    "Name": ("policy_name", ""),
    "Namespace": ("policy_namespace", ""),
    "Type": ("policy_type", 0),
    "RuleName": ("rule_name", ""),
    "RuleAction": ("rule_action", 0),
}

_Columns = dict[str, Sequence[Value]]


def _names(v: str) -> list[str]:
    """The elements in the order of an agent's Template."""
    rule = ("Name", "Namespace", "UUID", "Type", "RuleName", "RuleAction")
    return [
        *("flowStartSeconds", "flowEndSeconds", "flowEndReason"),
        *("sourceTransportPort", "destinationTransportPort", "protocolIdentifier"),
        *("packetTotalCount", "octetTotalCount", "packetDeltaCount", "octetDeltaCount"),
        *(f"source{v}Address", f"destination{v}Address"),
        *("reversePacketTotalCount", "reverseOctetTotalCount", "reversePacketDeltaCount", "reverseOctetDeltaCount"),
        *(f"{side}{what}" for side in ("source", "destination") for what in _POD),
        *("destinationServicePort", "destinationServicePortName", "destinationServiceUUID"),
        *(f"{side}NetworkPolicy{what}" for side in ("ingress", "egress") for what in rule),
        *("tcpState", "flowType", "egressName", "egressUUID", "egressIP", "egressNodeName"),
        *("proxySnatPort", f"proxySnat{v}", f"destinationCluster{v}", f"destinationService{v}"),
    ]


_POD: Final = ("PodName", "PodNamespace", "PodUUID", "NodeName")


def _uuid(text: str) -> bytes:
    """The octets of a UUID's text; none where there is none."""
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        return _NO_UUID


class BatchMaker:
    """Makes batches of exports."""

    def __init__(self, registry: ElementRegistry, *, node: str, has_counters: bool = True) -> None:
        """Prepare one schema per family.

        Args:
            node: name of this Node.
            has_counters: false for a dumper whose data path counts nothing: its batches lack those columns.
        """
        self._node = node
        self._has_counters = has_counters
        self._schemas = {
            family: FlowSchema(
                origin=FlowOrigin.SOURCE,
                family=family,
                elements=tuple(
                    registry.by_name(name)
                    for name in _names(f"IPv{int(family)}")
                    if has_counters or not name.endswith("Count")
                ),
                registry=registry,
            )
            for family in AddressFamily
        }

    def batches(self, exports: Iterable[Export[Metadata]]) -> list[FlowBatch]:
        """One batch per family that has rows."""
        by_family: dict[int, list[tuple[Export[Metadata], bytes]]] = {}
        for export in exports:
            row, external = export.row, export.meta.external
            if external is not None:
                row = external.applied(Connection.unpack(row)).pack()
            by_family.setdefault(row[0], []).append((export, row))
        return [self._batch(AddressFamily(family), rows) for family, rows in sorted(by_family.items())]

    def _batch(self, family: AddressFamily, rows: Sequence[tuple[Export[Metadata], bytes]]) -> FlowBatch:
        exports = [export for export, _ in rows]
        fields = zip(*ROW.iter_unpack(b"".join(row for _, row in rows)), strict=True)
        of: dict[str, Sequence[Any]] = dict(zip(Connection.__slots__, fields, strict=True))
        columns = _ends(exports, of, int(family)) | self._known(exports, of, int(family))
        if self._has_counters:
            columns |= _counts(exports, of)
        # What is not given has its default in every row.
        return FlowBatch.from_columns(self._schemas[family], columns)

    def _known(self, exports: Sequence[Export[Metadata]], of: dict[str, Sequence[Any]], family: int) -> _Columns:
        metas = [export.meta for export in exports]
        columns: _Columns = {"flowType": [int(meta.flow_type) for meta in metas]}
        columns |= self._pods("source", [meta.source_pod for meta in metas])
        columns |= self._pods("destination", [meta.destination_pod for meta in metas])
        columns |= _rules("ingress", [meta.ingress for meta in metas])
        columns |= _rules("egress", [meta.egress for meta in metas])
        columns |= _egresses([meta.out_through for meta in metas])
        return columns | _services(metas, of, family)

    def _pods(self, side: str, pods: Sequence[Pod | None]) -> _Columns:
        if not any(pods):
            return {}
        return {
            f"{side}PodName": ["" if pod is None else pod.name for pod in pods],
            f"{side}PodNamespace": ["" if pod is None else pod.namespace for pod in pods],
            f"{side}PodUUID": [_NO_UUID if pod is None else _uuid(pod.uid) for pod in pods],
            f"{side}NodeName": [self._node if pod is not None and pod.name else "" for pod in pods],
        }


def _ends(exports: Sequence[Export[Metadata]], of: dict[str, Sequence[Any]], family: int) -> _Columns:
    """Who, when, and how it stands."""
    v = f"IPv{family}"
    columns: _Columns = {
        "flowStartSeconds": [
            (start or export.first_seen) // _SECOND & _32_BITS
            for export, start in zip(exports, of["start"], strict=True)
        ],
        "flowEndSeconds": [export.end & _32_BITS for export in exports],
        "flowEndReason": [int(export.reason) for export in exports],
        "sourceTransportPort": of["source_port"],
        "destinationTransportPort": of["destination_port"],
        "protocolIdentifier": of["protocol"],
        f"source{v}Address": [address_text(packed, family) for packed in of["source"]],
        f"destination{v}Address": [address_text(packed, family) for packed in of["destination"]],
        "tcpState": list(map(tcp_state_name, of["tcp_state"])),
    }
    seen = list(zip(of["reply_destination"], of["reply_destination_port"], strict=True))
    if any(map(tuple.__ne__, seen, zip(of["source"], of["source_port"], strict=True))):
        own = zip(of["source"], of["source_port"], strict=True)
        nat = [there if there != here else None for there, here in zip(seen, own, strict=True)]
        none = _no_address(family)
        columns |= {
            "proxySnatPort": [0 if there is None else there[1] for there in nat],
            f"proxySnat{v}": [none if there is None else address_text(there[0], family) for there in nat],
        }
    return columns


def _counts(exports: Sequence[Export[Metadata]], of: dict[str, Sequence[int]]) -> _Columns:
    """Totals, and what was counted since the last export; a counter that was set back counts for nothing."""
    columns: _Columns = {}
    for position, (name, attribute) in enumerate(_COUNTS.items()):
        before = [export.before[position] for export in exports]
        columns[f"{name}TotalCount"] = of[attribute]
        columns[f"{name}DeltaCount"] = [max(now - then, 0) for now, then in zip(of[attribute], before, strict=True)]
    return columns


def _egresses(egresses: Sequence[Egress | None]) -> _Columns:
    if not any(egresses):
        return {}
    return {
        "egressName": ["" if one is None else one.name for one in egresses],
        "egressUUID": [_NO_UUID if one is None else _uuid(one.uid) for one in egresses],
        "egressIP": ["" if one is None else one.address for one in egresses],
        "egressNodeName": ["" if one is None else one.node_name for one in egresses],
    }


def _rules(side: str, rules: Sequence[PolicyRule | None]) -> _Columns:
    if not any(rules):
        return {}
    columns: _Columns = {
        f"{side}NetworkPolicy{what}": [none if rule is None else getattr(rule, name) for rule in rules]
        for what, (name, none) in _RULE.items()
    }
    columns[f"{side}NetworkPolicyUUID"] = [_NO_UUID if rule is None else _uuid(rule.policy_uid) for rule in rules]
    return columns


def _services(metas: Sequence[Metadata], of: dict[str, Sequence[Any]], family: int) -> _Columns:
    """The Service that was asked for, and where."""
    if not any(meta.service for meta in metas):
        return {}
    none = _no_address(family)
    asked = [
        address_text(packed, family) if meta.service else none
        for meta, packed in zip(metas, of["original_destination"], strict=True)
    ]
    ports = zip(metas, of["original_destination_port"], strict=True)
    return {
        "destinationServicePort": [port if meta.service else 0 for meta, port in ports],
        "destinationServicePortName": [meta.service_name for meta in metas],
        "destinationServiceUUID": [_uuid(meta.service[0].uid) if meta.service else _NO_UUID for meta in metas],
        f"destinationClusterIPv{family}": asked,
        f"destinationServiceIPv{family}": asked,
    }


def _no_address(family: int) -> str:
    return "0.0.0.0" if family == 4 else "::"  # noqa: S104  # no address is bound
