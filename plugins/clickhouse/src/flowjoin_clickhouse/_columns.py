"""Which columns are inserted, and what type ClickHouse has for an Information Element; pure."""

from __future__ import annotations

from typing import Final

from flowjoin.api import DataType, InformationElement

__all__ = ["ADDRESSES", "ANTREA_TYPES", "insert_columns", "table_columns", "type_of"]

# One column for both address families, and what it is to ``FlowBatch.address_text``.
ADDRESSES: Final = {
    "sourceIP": "source",
    "destinationIP": "destination",
    "destinationClusterIP": "destinationCluster",
}

_UP_TO_CLUSTER: Final = {
    "flowStartSeconds": "DateTime",
    "flowEndSeconds": "DateTime",
    "flowEndSecondsFromSourceNode": "DateTime",
    "flowEndSecondsFromDestinationNode": "DateTime",
    "flowEndReason": "UInt8",
    "sourceIP": "String",
    "destinationIP": "String",
    "sourceTransportPort": "UInt16",
    "destinationTransportPort": "UInt16",
    "protocolIdentifier": "UInt8",
    "packetTotalCount": "UInt64",
    "octetTotalCount": "UInt64",
    "packetDeltaCount": "UInt64",
    "octetDeltaCount": "UInt64",
    "reversePacketTotalCount": "UInt64",
    "reverseOctetTotalCount": "UInt64",
    "reversePacketDeltaCount": "UInt64",
    "reverseOctetDeltaCount": "UInt64",
    "sourcePodName": "String",
    "sourcePodNamespace": "String",
    "sourceNodeName": "String",
    "destinationPodName": "String",
    "destinationPodNamespace": "String",
    "destinationNodeName": "String",
    "destinationClusterIP": "String",
    "destinationServicePort": "UInt16",
    "destinationServicePortName": "String",
    "ingressNetworkPolicyName": "String",
    "ingressNetworkPolicyNamespace": "String",
    "ingressNetworkPolicyRuleName": "String",
    "ingressNetworkPolicyRuleAction": "UInt8",
    "ingressNetworkPolicyType": "UInt8",
    "egressNetworkPolicyName": "String",
    "egressNetworkPolicyNamespace": "String",
    "egressNetworkPolicyRuleName": "String",
    "egressNetworkPolicyRuleAction": "UInt8",
    "egressNetworkPolicyType": "UInt8",
    "tcpState": "String",
    "flowType": "UInt8",
    "sourcePodLabels": "String",
    "destinationPodLabels": "String",
    "throughput": "UInt64",
    "reverseThroughput": "UInt64",
    "throughputFromSourceNode": "UInt64",
    "throughputFromDestinationNode": "UInt64",
    "reverseThroughputFromSourceNode": "UInt64",
    "reverseThroughputFromDestinationNode": "UInt64",
    "clusterUUID": "String",
}
_EGRESS: Final = {"egressName": "String", "egressIP": "String"}
_LAYER_7: Final = {"appProtocolName": "String", "httpVals": "String"}
_LAST: Final = {"egressNodeName": "String"}

ANTREA_TYPES: Final = {**_UP_TO_CLUSTER, **_EGRESS, **_LAYER_7, **_LAST}
_INSERTED: Final = {
    "antrea-2.7": (*_UP_TO_CLUSTER, *_EGRESS, *_LAST),
    "antrea-2.3": (*_UP_TO_CLUSTER, *_EGRESS, *_LAYER_7, *_LAST),
}

_TYPES: Final = {
    DataType.UNSIGNED8: "UInt8",
    DataType.UNSIGNED16: "UInt16",
    DataType.UNSIGNED32: "UInt32",
    DataType.UNSIGNED64: "UInt64",
    DataType.SIGNED8: "Int8",
    DataType.SIGNED16: "Int16",
    DataType.SIGNED32: "Int32",
    DataType.SIGNED64: "Int64",
    DataType.FLOAT32: "Float32",
    DataType.FLOAT64: "Float64",
    DataType.BOOLEAN: "Bool",
    DataType.DATE_TIME_SECONDS: "DateTime",
    DataType.DATE_TIME_MILLISECONDS: "DateTime64(3)",
    DataType.DATE_TIME_MICROSECONDS: "DateTime64(6)",
    DataType.DATE_TIME_NANOSECONDS: "DateTime64(9)",
    DataType.IPV4_ADDRESS: "IPv4",
    DataType.IPV6_ADDRESS: "IPv6",
}


def insert_columns(compatibility: str) -> tuple[str, ...]:
    """Antrea's columns of that release, in the order of its INSERT."""
    return _INSERTED[compatibility]


def table_columns(compatibility: str) -> tuple[tuple[str, str], ...]:
    """Every column of Antrea's table with its definition, in the table's order."""
    inserted = _INSERTED[compatibility]
    after_cluster = [(name, ANTREA_TYPES[name]) for name in inserted if name not in _UP_TO_CLUSTER]
    return (
        ("timeInserted", "DateTime DEFAULT now()"),
        *_UP_TO_CLUSTER.items(),
        ("trusted", "UInt8 DEFAULT 0"),
        *after_cluster,
    )


def type_of(element: InformationElement) -> str:
    """ClickHouse's type for an element's values; MAC addresses are text, octets a String as they are."""
    return _TYPES.get(element.data_type, "String")
