"""What traffic to make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MAX_FLOWS_PER_NODE", "TrafficConfig"]

# Each flow from outside takes one of the 64,512 source ports that a gateway has in each family, and
# at most every fourth flow does.
MAX_FLOWS_PER_NODE: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficConfig:
    """Describes traffic; equal descriptions give equal traffic.

    What the shares leave is intra-node. Denied flows are inter-node ones that a policy stops.

    Attributes:
        flows: distinct flow keys.
        seed: any whole number.
        nodes: each runs one Exporting Process.
        updates: records that each reporting node sends for a flow after its first one.
        inter_node_share: of the flows, between Pods of two nodes: two halves each.
        external_share: of the flows, half of them to outside of the cluster and half from there.
        denied_share: of the flows.
        ipv6_share: of the flows of each kind.
    """

    flows: int
    seed: int = 1
    nodes: int = 4
    updates: int = 2
    inter_node_share: float = 0.5
    external_share: float = 0.2
    denied_share: float = 0.05
    ipv6_share: float = 0.25

    def __post_init__(self) -> None:
        for name in ("inter_node_share", "external_share", "denied_share", "ipv6_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name.replace('_', '-')} must be from 0 to 1, not {getattr(self, name):g}")
        if self.inter_node_share + self.external_share + self.denied_share > 1 + 1e-9:
            raise ValueError("inter-node-share, external-share and denied-share must not add up to more than 1")
        if self.flows < 0:
            raise ValueError(f"flows must not be negative, as {self.flows} is")
        if not 2 <= self.nodes <= 250:
            raise ValueError(f"nodes must be from 2 to 250, not {self.nodes}")
        if self.flows > self.nodes * MAX_FLOWS_PER_NODE:
            raise ValueError(f"{self.flows} flows need at least {-(-self.flows // MAX_FLOWS_PER_NODE)} nodes")
        if not 0 <= self.updates <= 1000:
            raise ValueError(f"updates must be from 0 to 1000, not {self.updates}")
