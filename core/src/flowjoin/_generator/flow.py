"""A flow as the agents of a cluster report it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from flowjoin._model.flow_key import FlowKey
from flowjoin._model.flow_schema import AddressFamily
from flowjoin._model.information_element import Value

__all__ = ["Flow", "FlowKind", "Half", "Update"]


class FlowKind(enum.Enum):
    """Who reports a flow, and how."""

    INTRA_NODE = "intra_node"
    INTER_NODE = "inter_node"
    TO_EXTERNAL = "to_external"
    FROM_EXTERNAL = "from_external"  # the client entered at the Pod's own node: one record
    FROM_EXTERNAL_FORWARDED = "from_external_forwarded"  # it entered elsewhere: two halves, joined by the SNAT address
    EGRESS_DENIED = "egress_denied"  # the source node drops or rejects
    INGRESS_REJECTED = "ingress_rejected"  # the destination node answers
    INGRESS_DROPPED = "ingress_dropped"  # the destination node drops, the source node sees no answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What one record says that the next one says anew; counts are totals."""

    flow_end: int
    flow_end_reason: int
    tcp_state: str
    packets: int
    octets: int
    reverse_packets: int
    reverse_octets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One node's view of a flow.

    Attributes:
        node: whose agent reports it.
        elements: by name, what stays the same in all its records and is not the default; addresses of
            the flow's own family are named as IPv4 ones, whatever the family.
        updates: one for each record, in order.
    """

    node: int
    elements: dict[str, Value]
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A flow that a collector must deliver once, under its key."""

    kind: FlowKind
    family: AddressFamily
    key: FlowKey
    flow_start: int
    halves: tuple[Half, ...]

    @property
    def octets(self) -> int:
        """The largest octetTotalCount of either side."""
        return max(half.updates[-1].octets for half in self.halves)

    @property
    def packets(self) -> int:
        """The largest packetTotalCount of either side."""
        return max(half.updates[-1].packets for half in self.halves)
