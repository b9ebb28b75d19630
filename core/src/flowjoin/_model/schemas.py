"""The columns of every batch: one list of element names per origin, in column order.

The lists follow the order of Antrea's newest flow aggregator (names and UIDs), so that its templates
and rows are subsets in order. IPv6 schemas have the IPv6 twin of every ``…IPv4…`` element of a list,
but for the original exporter, which has both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import ConfigError
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin, FlowSchema
from flowjoin._model.information_element import InformationElement, Value

__all__ = [
    "AGGREGATED_NAMES",
    "COUNTERS",
    "PLAIN_NAMES",
    "PROXY_NAMES",
    "UNKNOWN_DIRECTION",
    "FlowSchemas",
    "build_schemas",
    "of_family",
    "unset_value",
]

FlowSchemas = Mapping[tuple[FlowOrigin, AddressFamily], FlowSchema]

UNKNOWN_DIRECTION: Final = 255  # flowDirection of a flow whose record does not say; 0 would say ingress

# The order in which statistics are kept and in which the per-side elements follow one another.
COUNTERS: Final = (
    "octetDeltaCount",
    "octetTotalCount",
    "packetDeltaCount",
    "packetTotalCount",
    "reverseOctetDeltaCount",
    "reverseOctetTotalCount",
    "reversePacketDeltaCount",
    "reversePacketTotalCount",
)

_AGENT: Final = (
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
    "egressNodeName",
    "appProtocolName",
    "httpVals",
    "egressNodeUUID",
    "proxySnatPort",
    "proxySnatIPv4",
    "destinationClusterIPv4",
    "destinationServiceIPv4",
)
_LABELS_AND_CLUSTER: Final = ("sourcePodLabels", "destinationPodLabels", "clusterId")
_ORIGINAL: Final = ("originalObservationDomainId", "originalExporterIPv4Address", "originalExporterIPv6Address")

AGGREGATED_NAMES: Final = (
    *_AGENT,
    *(f"{counter}From{side}Node" for counter in COUNTERS for side in ("Source", "Destination")),
    "flowEndSecondsFromSourceNode",
    "flowEndSecondsFromDestinationNode",
    "throughput",
    "throughputFromSourceNode",
    "throughputFromDestinationNode",
    "reverseThroughput",
    "reverseThroughputFromSourceNode",
    "reverseThroughputFromDestinationNode",
    *_LABELS_AND_CLUSTER,
)
PROXY_NAMES: Final = (*_AGENT, *_LABELS_AND_CLUSTER, *_ORIGINAL, "flowDirection")
PLAIN_NAMES: Final = (
    "flowStartSeconds",
    "flowEndSeconds",
    "flowStartMilliseconds",
    "flowEndMilliseconds",
    "flowEndReason",
    "sourceIPv4Address",
    "destinationIPv4Address",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "icmpTypeCodeIPv4",
    "icmpTypeIPv4",
    "icmpCodeIPv4",
    "ingressInterface",
    "egressInterface",
    "packetTotalCount",
    "octetTotalCount",
    "packetDeltaCount",
    "octetDeltaCount",
    "reversePacketTotalCount",
    "reverseOctetTotalCount",
    "reversePacketDeltaCount",
    "reverseOctetDeltaCount",
    "tcpControlBits",
    "ipClassOfService",
    "vlanId",
    "bgpSourceAsNumber",
    "bgpDestinationAsNumber",
    "sourceMacAddress",
    "destinationMacAddress",
    *_ORIGINAL,
    "flowDirection",
)

_NAMES: Final = {
    FlowOrigin.AGGREGATED: AGGREGATED_NAMES,
    FlowOrigin.PLAIN: PLAIN_NAMES,
    FlowOrigin.PROXY: PROXY_NAMES,
    FlowOrigin.SOURCE: PROXY_NAMES,
}


def of_family(name: str, family: AddressFamily) -> str:
    """The twin of an IPv4 element's name in a schema of that family; any other name as it is."""
    if family is AddressFamily.IPV4 or name in _ORIGINAL:
        return name
    return name.replace("IPv4", "IPv6")


def unset_value(element: InformationElement) -> Value:
    """What a column holds where nothing is known and an enricher may fill: the default, but for flowDirection."""
    return UNKNOWN_DIRECTION if element.name == "flowDirection" else element.default


def build_schemas(registry: ElementRegistry, *, extra: Iterable[str] = ()) -> FlowSchemas:
    """Every origin's schema for both families.

    Args:
        registry: knows every element named, also the extra ones.
        extra: names of further columns: ``recordContents.elements``, then what enrichers add. A name that
            a schema has already, in either family, is no second column.

    Raises:
        ConfigError: the registry does not know an extra name.
    """
    wanted = tuple(dict.fromkeys(extra))
    for name in wanted:
        try:
            registry.by_name(name)
        except KeyError:
            raise ConfigError(f"no element is named {name!r}") from None
    schemas = {}
    for origin, core_names in _NAMES.items():
        other = {of_family(name, AddressFamily.IPV6) for name in core_names} ^ set(core_names)
        for family in AddressFamily:
            names = [of_family(name, family) for name in core_names]
            names += [name for name in wanted if name not in names and name not in other]
            elements = tuple(registry.by_name(name) for name in names)
            schemas[origin, family] = FlowSchema(origin=origin, family=family, elements=elements, registry=registry)
    return schemas
