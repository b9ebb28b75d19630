"""The elements of each kind of record, in the order that Antrea's collectors know.

One ordered list drives both the Template and the values, so that they cannot part. IPv6 lists have the IPv6 twin
of every ``…IPv4…`` element but of the original exporter's, of which both are there.
"""

from __future__ import annotations

import functools
from typing import Final, Literal, TypeAlias

from flowjoin.api import AddressFamily

__all__ = ["SWITCHED_BY_NAMES", "SWITCHED_BY_UIDS", "TemplateKind", "element_names", "known_names"]

TemplateKind: TypeAlias = Literal["aggregator", "proxy", "agent"]

_FLOW: Final = (
    "flowStartSeconds",
    "flowEndSeconds",
    "flowEndReason",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "packetTotalCount",
    "octetTotalCount",
    "packetDeltaCount",
    "octetDeltaCount",
    "sourceIPv4Address",
    "destinationIPv4Address",
    "reversePacketTotalCount",
    "reverseOctetTotalCount",
    "reversePacketDeltaCount",
    "reverseOctetDeltaCount",
)
_KUBERNETES: Final = (
    "sourcePodName",
    "sourcePodNamespace",
    "sourcePodUUID",
    "sourceNodeName",
    "sourceNodeUUID",
    "destinationPodName",
    "destinationPodNamespace",
    "destinationPodUUID",
    "destinationNodeName",
    "destinationNodeUUID",
    "destinationServicePort",
    "destinationServicePortName",
    "destinationServiceUUID",
    "ingressNetworkPolicyName",
    "ingressNetworkPolicyNamespace",
    "ingressNetworkPolicyUUID",
    "ingressNetworkPolicyType",
    "ingressNetworkPolicyRuleName",
    "ingressNetworkPolicyRuleAction",
    "egressNetworkPolicyName",
    "egressNetworkPolicyNamespace",
    "egressNetworkPolicyUUID",
    "egressNetworkPolicyType",
    "egressNetworkPolicyRuleName",
    "egressNetworkPolicyRuleAction",
    "tcpState",
    "flowType",
    "egressName",
    "egressUUID",
    "egressIP",
)
_EGRESS_NODE: Final = ("egressNodeName", "egressNodeUUID")
_PROXY_SNAT: Final = ("proxySnatPort", "proxySnatIPv4")
_LAYER_7: Final = ("appProtocolName", "httpVals")  # gone in Antrea 2.6
_LABELS: Final = ("sourcePodLabels", "destinationPodLabels", "clusterId")
_ORIGINAL: Final = (
    "originalObservationDomainId",
    "originalExporterIPv4Address",
    "originalExporterIPv6Address",
    "flowDirection",
)
_STATISTICS: Final = tuple(
    f"{counter}From{side}Node"
    for counter in (
        "octetDeltaCount",
        "octetTotalCount",
        "packetDeltaCount",
        "packetTotalCount",
        "reverseOctetDeltaCount",
        "reverseOctetTotalCount",
        "reversePacketDeltaCount",
        "reversePacketTotalCount",
    )
    for side in ("Source", "Destination")
)
_JOINED: Final = (
    *_STATISTICS,
    "flowEndSecondsFromSourceNode",
    "flowEndSecondsFromDestinationNode",
    "throughput",
    "throughputFromSourceNode",
    "throughputFromDestinationNode",
    "reverseThroughput",
    "reverseThroughputFromSourceNode",
    "reverseThroughputFromDestinationNode",
)

_OLD: Final = (*_FLOW, *_KUBERNETES, *_LAYER_7, *_EGRESS_NODE, "destinationClusterIPv4")
_NEW: Final = (
    *_FLOW,
    *_KUBERNETES,
    *_EGRESS_NODE,
    *_PROXY_SNAT,
    "destinationClusterIPv4",
    "destinationServiceIPv4",
)
# The agent's own order differs from the aggregator's in its last elements.
_NEW_AGENT: Final = (
    *_FLOW,
    *_KUBERNETES,
    *_EGRESS_NODE,
    "proxySnatPort",
    "destinationClusterIPv4",
    "proxySnatIPv4",
    "destinationServiceIPv4",
)
_LISTS: Final[dict[tuple[str, TemplateKind], tuple[str, ...]]] = {
    ("antrea-2.3", "agent"): _OLD,
    ("antrea-2.3", "aggregator"): (*_OLD, *_JOINED, *_LABELS),
    ("antrea-2.3", "proxy"): (*_OLD, *_LABELS, *_ORIGINAL),
    ("antrea-2.7", "agent"): _NEW_AGENT,
    ("antrea-2.7", "aggregator"): (*_NEW, *_JOINED, *_LABELS),
    ("antrea-2.7", "proxy"): (*_NEW, *_LABELS, *_ORIGINAL),
}

SWITCHED_BY_UIDS: Final = frozenset(name for name in (*_KUBERNETES, *_EGRESS_NODE) if name.endswith("UUID"))
SWITCHED_BY_NAMES: Final = frozenset(
    {
        "sourcePodName",
        "sourcePodNamespace",
        "sourceNodeName",
        "destinationPodName",
        "destinationPodNamespace",
        "destinationNodeName",
        "destinationServicePortName",
        "ingressNetworkPolicyName",
        "ingressNetworkPolicyNamespace",
        "egressNetworkPolicyName",
        "egressNetworkPolicyNamespace",
        "egressName",
        "egressNodeName",
    }
)
_RULE_NAMES: Final = frozenset({"ingressNetworkPolicyRuleName", "egressNetworkPolicyRuleName"})


def element_names(
    kind: TemplateKind, family: AddressFamily, *, compatibility: str, names: bool = True, uids: bool = False
) -> tuple[str, ...]:
    """The elements of a Template, in order.

    Args:
        compatibility: ``antrea-2.7`` or ``antrea-2.3``; the switches came after the second.
        names: whether names of Kubernetes objects are there; an agent's Template always has them.
        uids: whether their UUIDs are there; an agent's Template never has them. A rule's name belongs to both.
    """
    if compatibility == "antrea-2.3" or kind == "agent":
        names, uids = True, False
    left_out: frozenset[str] = frozenset()
    if not names:
        left_out |= SWITCHED_BY_NAMES
    if not uids:
        left_out |= SWITCHED_BY_UIDS
    if not names and not uids:
        left_out |= _RULE_NAMES
    return tuple(_of_family(name, family) for name in _LISTS[compatibility, kind] if name not in left_out)


@functools.cache
def known_names(family: AddressFamily) -> frozenset[str]:
    """Every element of any of the lists."""
    return frozenset(_of_family(name, family) for names in _LISTS.values() for name in names)


def _of_family(name: str, family: AddressFamily) -> str:
    if family is AddressFamily.IPV4 or name in _ORIGINAL:
        return name
    return name.replace("IPv4", "IPv6")
