"""How a later record's value meets the stored one: element by element, in one table per kind of flow.

What the tables do not name is an extra element (of a plugin, or of ``recordContents.elements``). Its rule
is its own ``merge_rule``, else what its semantics say: a deltaCounter sums, a totalCounter takes the
maximum, everything else takes the latest value.

In the tables, an IPv6 element follows its IPv4 twin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flowjoin._model.errors import ConfigError
from flowjoin._model.flow_schema import FlowOrigin
from flowjoin._model.information_element import VARIABLE_LENGTH, DataType, InformationElement, MergeRule

__all__ = ["AGGREGATED_RULES", "PLAIN_RULES", "merge_rule"]

KEY, FIRST, LATEST, MAX = MergeRule.KEY, MergeRule.FIRST, MergeRule.LATEST, MergeRule.MAX
SUM, PER_SIDE, FILL, COMPUTED = MergeRule.SUM, MergeRule.PER_SIDE, MergeRule.FILL, MergeRule.COMPUTED

AGGREGATED_RULES: Final[Mapping[str, MergeRule]] = {
    "sourceIPv4Address": KEY,  # but a from-external flow's key is its SNAT address and port
    "destinationIPv4Address": KEY,
    "sourceTransportPort": KEY,
    "destinationTransportPort": KEY,
    "protocolIdentifier": KEY,
    "proxySnatIPv4": FIRST,
    "proxySnatPort": FIRST,
    "flowStartSeconds": FIRST,
    "flowEndSeconds": MAX,
    "flowEndReason": COMPUTED,  # the newest of either side; 3 (end of flow) stays
    "flowType": FIRST,
    "tcpState": LATEST,
    "httpVals": COMPUTED,  # JSON objects, united
    "appProtocolName": FIRST,
    # common counters: of the side that reported last
    "octetDeltaCount": COMPUTED,
    "packetDeltaCount": COMPUTED,
    "reverseOctetDeltaCount": COMPUTED,
    "reversePacketDeltaCount": COMPUTED,
    "octetTotalCount": MAX,
    "packetTotalCount": MAX,
    "reverseOctetTotalCount": MAX,
    "reversePacketTotalCount": MAX,
    "octetDeltaCountFromSourceNode": PER_SIDE,
    "octetDeltaCountFromDestinationNode": PER_SIDE,
    "octetTotalCountFromSourceNode": PER_SIDE,
    "octetTotalCountFromDestinationNode": PER_SIDE,
    "packetDeltaCountFromSourceNode": PER_SIDE,
    "packetDeltaCountFromDestinationNode": PER_SIDE,
    "packetTotalCountFromSourceNode": PER_SIDE,
    "packetTotalCountFromDestinationNode": PER_SIDE,
    "reverseOctetDeltaCountFromSourceNode": PER_SIDE,
    "reverseOctetDeltaCountFromDestinationNode": PER_SIDE,
    "reverseOctetTotalCountFromSourceNode": PER_SIDE,
    "reverseOctetTotalCountFromDestinationNode": PER_SIDE,
    "reversePacketDeltaCountFromSourceNode": PER_SIDE,
    "reversePacketDeltaCountFromDestinationNode": PER_SIDE,
    "reversePacketTotalCountFromSourceNode": PER_SIDE,
    "reversePacketTotalCountFromDestinationNode": PER_SIDE,
    "flowEndSecondsFromSourceNode": PER_SIDE,
    "flowEndSecondsFromDestinationNode": PER_SIDE,
    "throughput": COMPUTED,
    "throughputFromSourceNode": COMPUTED,
    "throughputFromDestinationNode": COMPUTED,
    "reverseThroughput": COMPUTED,
    "reverseThroughputFromSourceNode": COMPUTED,
    "reverseThroughputFromDestinationNode": COMPUTED,
    # what only one half knows: filled from the other when the two are joined
    "sourcePodName": FILL,
    "sourcePodNamespace": FILL,
    "sourcePodUUID": FILL,
    "sourceNodeName": FILL,
    "sourceNodeUUID": FILL,
    "destinationPodName": FILL,
    "destinationPodNamespace": FILL,
    "destinationPodUUID": FILL,
    "destinationNodeName": FILL,
    "destinationNodeUUID": FILL,
    "destinationClusterIPv4": FILL,
    "destinationServiceIPv4": FILL,
    "destinationServicePort": FILL,
    "destinationServicePortName": FILL,
    "ingressNetworkPolicyName": FILL,
    "ingressNetworkPolicyNamespace": FILL,
    "ingressNetworkPolicyUUID": FILL,
    "ingressNetworkPolicyType": FILL,
    "ingressNetworkPolicyRuleName": FILL,
    "ingressNetworkPolicyRuleAction": FILL,
    "egressNetworkPolicyName": FILL,
    "egressNetworkPolicyNamespace": FILL,
    "egressNetworkPolicyUUID": FILL,
    "egressNetworkPolicyType": FILL,
    "egressNetworkPolicyRuleName": FILL,
    "egressNetworkPolicyRuleAction": FILL,
    "sourcePodLabels": FILL,
    "destinationPodLabels": FILL,
    # and what is not
    "destinationServiceUUID": FIRST,
    "egressName": FIRST,
    "egressUUID": FIRST,
    "egressIP": FIRST,
    "egressNodeName": FIRST,
    "egressNodeUUID": FIRST,
    "clusterId": FIRST,
}

PLAIN_RULES: Final[Mapping[str, MergeRule]] = {
    "sourceIPv4Address": KEY,
    "destinationIPv4Address": KEY,
    "sourceTransportPort": KEY,
    "destinationTransportPort": KEY,
    "protocolIdentifier": KEY,
    "icmpTypeCodeIPv4": KEY,
    "icmpTypeIPv4": KEY,
    "icmpCodeIPv4": KEY,
    "ingressInterface": KEY,
    "originalExporterIPv4Address": KEY,
    "originalExporterIPv6Address": KEY,
    "originalObservationDomainId": KEY,
    "flowStartMilliseconds": COMPUTED,  # the earliest
    "flowEndMilliseconds": MAX,
    "flowStartSeconds": COMPUTED,  # the same instants
    "flowEndSeconds": COMPUTED,
    # a counter's delta and total are derived from one another where a record has only one
    "octetDeltaCount": SUM,
    "packetDeltaCount": SUM,
    "reverseOctetDeltaCount": SUM,
    "reversePacketDeltaCount": SUM,
    "octetTotalCount": MAX,
    "packetTotalCount": MAX,
    "reverseOctetTotalCount": MAX,
    "reversePacketTotalCount": MAX,
    "tcpControlBits": COMPUTED,  # every bit seen
    "flowEndReason": LATEST,
    "egressInterface": LATEST,
    "ipClassOfService": LATEST,
    "vlanId": LATEST,
    "bgpSourceAsNumber": LATEST,
    "bgpDestinationAsNumber": LATEST,
    "sourceMacAddress": LATEST,
    "destinationMacAddress": LATEST,
    "flowDirection": LATEST,
}

_TABLES: Final = {FlowOrigin.AGGREGATED: AGGREGATED_RULES, FlowOrigin.PLAIN: PLAIN_RULES}
_BY_SEMANTICS: Final = {"deltaCounter": SUM, "totalCounter": MAX}
_OF_EXTRA_ELEMENTS: Final = {FIRST, LATEST, MAX, SUM, FILL}
_COUNTING: Final = {DataType.UNSIGNED8, DataType.UNSIGNED16, DataType.UNSIGNED32, DataType.UNSIGNED64}
_WITHOUT_ORDER: Final = {
    DataType.OCTET_ARRAY,
    DataType.BASIC_LIST,
    DataType.SUB_TEMPLATE_LIST,
    DataType.SUB_TEMPLATE_MULTI_LIST,
    DataType.STRING,
    DataType.MAC_ADDRESS,
    DataType.IPV4_ADDRESS,
    DataType.IPV6_ADDRESS,
    DataType.BOOLEAN,
}


def merge_rule(element: InformationElement, origin: FlowOrigin) -> MergeRule:
    """The rule of an element in flows that are merged.

    Raises:
        ConfigError: an extra element asks for a rule that is the core's own, or that its type cannot follow.
    """
    table = _TABLES[origin]
    known = table.get(element.name) or table.get(element.name.replace("IPv6", "IPv4"))
    if known is not None:
        return known
    rule = element.merge_rule or _BY_SEMANTICS.get(element.semantics, LATEST)
    if rule not in _OF_EXTRA_ELEMENTS:
        raise ConfigError(f"element {element.name} cannot have the merge rule {rule.value}: the core alone follows it")
    if rule is SUM and (element.data_type not in _COUNTING or element.length == VARIABLE_LENGTH):
        if element.merge_rule is None:
            return LATEST
        raise ConfigError(f"element {element.name} cannot be summed: {element.data_type.value} does not count")
    if rule is MAX and element.data_type in _WITHOUT_ORDER:
        if element.merge_rule is None:
            return LATEST
        raise ConfigError(f"element {element.name} has no maximum: {element.data_type.value} has no order")
    return rule
