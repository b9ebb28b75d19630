"""The columns of a log line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["columns_of"]

_FLOW: Final = (
    "flowStartSeconds",
    "flowEndSeconds",
    "sourceIP",
    "destinationIP",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "sourcePodName",
    "sourcePodNamespace",
    "sourceNodeName",
    "destinationPodName",
    "destinationPodNamespace",
    "destinationNodeName",
    "destinationClusterIP",
)
_POLICIES: Final = (
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
    "egressName",
    "egressIP",
)
_COLUMNS: Final = {
    "antrea-2.7": (*_FLOW, "destinationServiceIP", *_POLICIES, "egressNodeName"),
    "antrea-2.3": (*_FLOW, *_POLICIES, "appProtocolName", "httpVals", "egressNodeName"),
}


def columns_of(compatibility: str, extra: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of the columns: Antrea's of that release, then the extra elements that are not among them."""
    usual = _COLUMNS[compatibility]
    return (*usual, *(name for name in dict.fromkeys(extra) if name not in usual))
