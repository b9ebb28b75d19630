"""Exports of the store as batches: the elements an Antrea agent sends, by address family."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from flowjoin.api import AddressFamily, ElementRegistry, FlowBatch, FlowOrigin, FlowSchema, PolicyRule, Value
from flowjoin_conntrack._entry import Connection, tcp_state_name
from flowjoin_conntrack._metadata import Metadata, address_text
from flowjoin_conntrack._store import Export

__all__ = ["BatchMaker"]

_SECOND: Final = 1_000_000_000

_Reader = Callable[[Export[Metadata], Connection], Value]


def _delta(after: int, before: int) -> int:
    """What was counted between two exports; a counter that was set back counts for nothing."""
    return max(after - before, 0)


def _uuid(text: str) -> bytes:
    """The octets of a UUID's text; none where there is none."""
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        return bytes(16)


def _rule(rule: PolicyRule | None, name: str) -> Value:
    if rule is None:
        return bytes(16) if name == "policy_uid" else 0 if name in ("policy_type", "rule_action") else ""
    if name == "policy_uid":
        return _uuid(rule.policy_uid)
    value: Value = getattr(rule, name)
    return value


def _pod(export: Export[Metadata], side: str, name: str) -> str:
    pod = export.meta.source_pod if side == "source" else export.meta.destination_pod
    return "" if pod is None else getattr(pod, name)


class BatchMaker:
    """Makes batches of exports."""

    def __init__(self, registry: ElementRegistry, *, node: str, has_counters: bool = True) -> None:
        """Prepare one schema per family.

        Args:
            node: name of this Node.
            has_counters: false for a dumper whose data path counts nothing: its batches lack those columns.
        """
        self._node = node
        self._schemas: dict[AddressFamily, FlowSchema] = {}
        self._readers: dict[AddressFamily, list[_Reader]] = {}
        for family in AddressFamily:
            readers = self._table(family)
            if not has_counters:
                readers = {name: reader for name, reader in readers.items() if not name.endswith("Count")}
            self._schemas[family] = FlowSchema(
                origin=FlowOrigin.SOURCE,
                family=family,
                elements=tuple(map(registry.by_name, readers)),
                registry=registry,
            )
            self._readers[family] = list(readers.values())

    def batches(self, exports: Iterable[Export[Metadata]]) -> list[FlowBatch]:
        """One batch per family that has rows."""
        by_family: dict[int, list[tuple[Export[Metadata], Connection]]] = {}
        for export in exports:
            connection = Connection.unpack(export.row)
            if export.meta.external is not None:
                connection = export.meta.external.applied(connection)
            by_family.setdefault(connection.family, []).append((export, connection))
        return [self._batch(AddressFamily(family), rows) for family, rows in sorted(by_family.items())]

    def _batch(self, family: AddressFamily, rows: Sequence[tuple[Export[Metadata], Connection]]) -> FlowBatch:
        schema = self._schemas[family]
        columns = {
            name: [read(export, connection) for export, connection in rows]
            for name, read in zip(schema.names, self._readers[family], strict=True)
        }
        return FlowBatch.from_columns(schema, columns)

    def _table(self, family: AddressFamily) -> dict[str, _Reader]:
        """Element to what gives its value, in the order of an agent's Template."""
        v = f"IPv{int(family)}"
        none = "0.0.0.0" if family is AddressFamily.IPV4 else "::"  # noqa: S104  # no address is bound

        def text(packed: bytes) -> str:
            return address_text(packed, int(family))

        def has_snat(c: Connection) -> bool:
            return (c.reply_destination, c.reply_destination_port) != (c.source, c.source_port)

        def service_address(e: Export[Metadata], c: Connection) -> str:
            return text(c.original_destination) if e.meta.service else none

        def node(side: str) -> _Reader:
            return lambda e, c: self._node if _pod(e, side, "name") else ""

        def pod(side: str, name: str) -> _Reader:
            return lambda e, c: _pod(e, side, name)

        table: dict[str, _Reader] = {
            "flowStartSeconds": lambda e, c: (c.start or e.first_seen) // _SECOND,
            "flowEndSeconds": lambda e, c: (c.stop or e.last_seen) // _SECOND,
            "flowEndReason": lambda e, c: int(e.reason),
            "sourceTransportPort": lambda e, c: c.source_port,
            "destinationTransportPort": lambda e, c: c.destination_port,
            "protocolIdentifier": lambda e, c: c.protocol,
            "packetTotalCount": lambda e, c: c.packets,
            "octetTotalCount": lambda e, c: c.octets,
            "packetDeltaCount": lambda e, c: _delta(c.packets, e.before.packets),
            "octetDeltaCount": lambda e, c: _delta(c.octets, e.before.octets),
            f"source{v}Address": lambda e, c: text(c.source),
            f"destination{v}Address": lambda e, c: text(c.destination),
            "reversePacketTotalCount": lambda e, c: c.reverse_packets,
            "reverseOctetTotalCount": lambda e, c: c.reverse_octets,
            "reversePacketDeltaCount": lambda e, c: _delta(c.reverse_packets, e.before.reverse_packets),
            "reverseOctetDeltaCount": lambda e, c: _delta(c.reverse_octets, e.before.reverse_octets),
        }
        for side in ("source", "destination"):
            table |= {
                f"{side}PodName": pod(side, "name"),
                f"{side}PodNamespace": pod(side, "namespace"),
                f"{side}PodUUID": lambda e, c, side=side: _uuid(_pod(e, side, "uid")),  # type: ignore[misc]
                f"{side}NodeName": node(side),
            }
        table |= {
            "destinationServicePort": lambda e, c: c.original_destination_port if e.meta.service else 0,
            "destinationServicePortName": lambda e, c: e.meta.service_name,
            "destinationServiceUUID": lambda e, c: _uuid(e.meta.service[0].uid) if e.meta.service else bytes(16),
        }
        for side in ("ingress", "egress"):
            for suffix, name in (
                ("Name", "policy_name"),
                ("Namespace", "policy_namespace"),
                ("UUID", "policy_uid"),
                ("Type", "policy_type"),
                ("RuleName", "rule_name"),
                ("RuleAction", "rule_action"),
            ):
                table[f"{side}NetworkPolicy{suffix}"] = lambda e, c, side=side, name=name: _rule(  # type: ignore[misc]
                    getattr(e.meta, side), name
                )
        table |= {
            "tcpState": lambda e, c: tcp_state_name(c.tcp_state),
            "flowType": lambda e, c: int(e.meta.flow_type),
            "proxySnatPort": lambda e, c: c.reply_destination_port if has_snat(c) else 0,
            f"proxySnat{v}": lambda e, c: text(c.reply_destination) if has_snat(c) else none,
            f"destinationCluster{v}": service_address,
            f"destinationService{v}": service_address,
        }
        return table
