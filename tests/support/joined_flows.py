"""What tests of joined flows look for."""

from __future__ import annotations

from typing import Any

from kernel_harness import Harness

from flowjoin._kernel import KernelLimits
from flowjoin._model.flow_key import FlowKey

__all__ = ["DROP", "KEY", "REJECT", "SHORT", "SIDES", "one", "statistics_of"]

SHORT = KernelLimits(active_timeout=0.1, idle_timeout=0.15)
KEY = FlowKey(source="10.0.0.1", destination="10.0.0.2", protocol_identifier=6, source_port=1234, destination_port=5678)
DROP, REJECT = 2, 3
SIDES = ("", "FromSourceNode", "FromDestinationNode")


def one(harness: Harness) -> dict[str, Any]:
    (row,) = harness.stored()
    return row


def statistics_of(row: dict[str, Any], side: str) -> dict[str, int]:
    names = ("packetTotalCount", "packetDeltaCount", "octetTotalCount", "octetDeltaCount")
    return {name: row[name + side] for name in names}
