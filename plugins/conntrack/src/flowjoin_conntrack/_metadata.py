"""What is known of a connection's ends: Pods, Service, policies, the kind of flow."""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from flowjoin.api import Egress, Pod, PolicyRule, Service, ServicePort
from flowjoin_conntrack._external import External
from flowjoin_conntrack._verdict import Direction

__all__ = ["FlowType", "Metadata", "MissingRule", "address_text", "flow_type", "rule_ids"]


class FlowType(IntEnum):
    """Values of flowType; UNSUPPORTED is never exported."""

    UNSPECIFIED = 0
    INTRA_NODE = 1
    INTER_NODE = 2
    TO_EXTERNAL = 3
    FROM_EXTERNAL = 4
    UNSUPPORTED = 255


class MissingRule(NamedTuple):
    """A rule that is not known: for which field, by which number, and what it did."""

    direction: Direction
    rule_id: int
    action: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Of one connection, found when it was first seen.

    Attributes:
        external: who began it outside the cluster, where the default zone knew.
        out_through: the Egress of a flow to outside.
        missing: rules that the look-up did not know then; it may know them later.
    """

    source_pod: Pod | None = None
    destination_pod: Pod | None = None
    service: tuple[Service, ServicePort] | None = None
    ingress: PolicyRule | None = None
    egress: PolicyRule | None = None
    flow_type: FlowType = FlowType.UNSPECIFIED
    external: External | None = None
    out_through: Egress | None = None
    missing: tuple[MissingRule, ...] = ()

    @property
    def service_name(self) -> str:
        """destinationServicePortName: ``namespace/name:port``, without the port where it has no name."""
        if self.service is None:
            return ""
        service, port = self.service
        name = f"{service.namespace}/{service.name}"
        return f"{name}:{port.name}" if port.name else name


@functools.lru_cache(maxsize=16384)  # a Node's connections have few addresses
def address_text(packed: bytes, family: int) -> str:
    """Canonical text of 16 octets."""
    return str(ipaddress.IPv4Address(packed[12:]) if family == 4 else ipaddress.IPv6Address(packed))


def rule_ids(labels: bytes) -> tuple[int, int]:
    """The ingress and egress rule of Antrea's connection label; 0 is none."""
    return int.from_bytes(labels[12:16], "big"), int.from_bytes(labels[8:12], "big")


def flow_type(
    *,
    source_is_pod: bool,
    source_is_gateway: bool,
    destination_is_pod: bool,
    destination_is_gateway: bool,
    has_source_pod: bool,
    has_destination_pod: bool,
) -> FlowType:
    """The kind of flow, by what its ends are and which Pods of this Node are known."""
    if destination_is_gateway:
        return FlowType.UNSUPPORTED
    if source_is_gateway:
        return FlowType.INTER_NODE if has_destination_pod else FlowType.UNSUPPORTED
    if not source_is_pod:
        return FlowType.FROM_EXTERNAL if destination_is_pod else FlowType.UNSUPPORTED
    if not destination_is_pod:
        return FlowType.TO_EXTERNAL
    return FlowType.INTRA_NODE if has_source_pod and has_destination_pod else FlowType.INTER_NODE
