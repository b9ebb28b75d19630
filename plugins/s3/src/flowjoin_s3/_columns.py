"""The columns of a CSV line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["CLUSTER_UUID", "LABELS", "TIME_INSERTED", "columns_of"]

CLUSTER_UUID: Final = "clusterUUID"  # the two columns that are no Information Element
TIME_INSERTED: Final = "timeInserted"

_BEFORE_SERVICE: Final = (
    "flowStartSeconds",
    "flowEndSeconds",
    "flowEndSecondsFromSourceNode",
    "flowEndSecondsFromDestinationNode",
    "flowEndReason",
    "sourceIP",
    "destinationIP",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "packetTotalCount",
    "octetTotalCount",
    "packetDeltaCount",
    "octetDeltaCount",
    "reversePacketTotalCount",
    "reverseOctetTotalCount",
    "reversePacketDeltaCount",
    "reverseOctetDeltaCount",
    "sourcePodName",
    "sourcePodNamespace",
    "sourceNodeName",
    "destinationPodName",
    "destinationPodNamespace",
    "destinationNodeName",
    "destinationClusterIP",
)
_AFTER_SERVICE: Final = (
    "destinationServicePort",
    "destinationServicePortName",
    "ingressNetworkPolicyName",
    "ingressNetworkPolicyNamespace",
    "ingressNetworkPolicyRuleName",
    "ingressNetworkPolicyRuleAction",
    "ingressNetworkPolicyType",
    "egressNetworkPolicyName",
    "egressNetworkPolicyNamespace",
    "egressNetworkPolicyRuleName",
    "egressNetworkPolicyRuleAction",
    "egressNetworkPolicyType",
    "tcpState",
    "flowType",
    "sourcePodLabels",
    "destinationPodLabels",
    "throughput",
    "reverseThroughput",
    "throughputFromSourceNode",
    "throughputFromDestinationNode",
    "reverseThroughputFromSourceNode",
    "reverseThroughputFromDestinationNode",
    CLUSTER_UUID,
    TIME_INSERTED,
    "egressName",
    "egressIP",
)
_COLUMNS: Final = {
    "antrea-2.7": (*_BEFORE_SERVICE, "destinationServiceIP", *_AFTER_SERVICE, "egressNodeName"),
    "antrea-2.3": (*_BEFORE_SERVICE, *_AFTER_SERVICE, "appProtocolName", "httpVals", "egressNodeName"),
}

LABELS: Final = frozenset({"sourcePodLabels", "destinationPodLabels"})


def columns_of(compatibility: str, extra: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of the columns: Antrea's of that release, then the extra elements that are not among them."""
    usual = _COLUMNS[compatibility]
    return (*usual, *(name for name in dict.fromkeys(extra) if name not in usual))
