"""How many flows of each kind a configuration asks for."""

from __future__ import annotations

from typing import Final

from flowjoin._generator.config import TrafficConfig
from flowjoin._generator.flow import FlowKind

__all__ = ["flows_of_kinds", "records_planned"]

_TWO_SIDED: Final = frozenset({FlowKind.INTER_NODE, FlowKind.FROM_EXTERNAL_FORWARDED, FlowKind.INGRESS_DROPPED})


def flows_of_kinds(config: TrafficConfig) -> dict[FlowKind, int]:
    """How many flows of each kind; together exactly as many as configured."""
    shares = {
        FlowKind.INTER_NODE: config.inter_node_share,
        FlowKind.TO_EXTERNAL: config.external_share / 2,
        FlowKind.FROM_EXTERNAL_FORWARDED: config.external_share / 4,
        FlowKind.FROM_EXTERNAL: config.external_share / 4,
        FlowKind.EGRESS_DENIED: config.denied_share / 3,
        FlowKind.INGRESS_DROPPED: config.denied_share / 3,
        FlowKind.INGRESS_REJECTED: config.denied_share / 3,
        FlowKind.INTRA_NODE: 1.0,  # the rest
    }
    counts: dict[FlowKind, int] = {}
    reached, dealt = 0.0, 0
    for kind, share in shares.items():
        # Rounding the running sum leaves nobody out for good and never exceeds the whole.
        reached = min(1.0, reached + share)
        counts[kind] = round(reached * config.flows) - dealt
        dealt += counts[kind]
    return counts


def records_planned(config: TrafficConfig) -> int:
    """How many Data Records the traffic has."""
    halves = sum(count * (2 if kind in _TWO_SIDED else 1) for kind, count in flows_of_kinds(config).items())
    return halves * (1 + config.updates)
