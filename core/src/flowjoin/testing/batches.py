"""Sample batches: what exporters meet, and what they should be able to meet."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Final

from flowjoin.api import (
    AddressFamily,
    DataType,
    ElementId,
    EnterpriseNumber,
    FlowBatch,
    FlowOrigin,
    FlowSchema,
    InformationElement,
    Value,
)
from flowjoin.api.schemas import FlowSchemas, build_schemas
from flowjoin.wire.registry import default_registry

__all__ = [
    "HOSTILE_TEXTS",
    "aggregated_schema",
    "every_data_type",
    "hostile_flows",
    "numbered_flows",
    "plain_flows",
    "plain_schema",
    "standard_flow",
]

HOSTILE_TEXTS: Final = (
    "a,b",
    'say "hello"',
    "two\nlines",
    "carriage\rreturn",
    "nul\0inside",
    "\x1b[31mred\x1b[0m",
    "'; DROP TABLE flows; --",
    '{"app":"x","note":"a,\\"b\\""}',
    "=1+1",
    "\N{LINE SEPARATOR}\N{BYTE ORDER MARK}",
    "\N{REPLACEMENT CHARACTER}\N{GRINNING FACE}\N{RIGHT-TO-LEFT OVERRIDE}",
    " leading and trailing ",
    "\t",
    "x" * 65_000,
    "",
)

_STANDARD: Final[Mapping[str, Value]] = {
    "flowStartSeconds": 1637706961,
    "flowEndSeconds": 1637706973,
    "flowEndSecondsFromSourceNode": 1637706974,
    "flowEndSecondsFromDestinationNode": 1637706975,
    "flowEndReason": 3,
    "sourceTransportPort": 44752,
    "destinationTransportPort": 5201,
    "protocolIdentifier": 6,
    "packetTotalCount": 823188,
    "octetTotalCount": 30472817041,
    "packetDeltaCount": 241333,
    "octetDeltaCount": 8982624938,
    "reversePacketTotalCount": 471111,
    "reverseOctetTotalCount": 24500996,
    "reversePacketDeltaCount": 136211,
    "reverseOctetDeltaCount": 7083284,
    "sourcePodName": "perftest-a",
    "sourcePodNamespace": "antrea-test",
    "sourceNodeName": "k8s-node-control-plane",
    "destinationPodName": "perftest-b",
    "destinationPodNamespace": "antrea-test-b",
    "destinationNodeName": "k8s-node-control-plane-b",
    "destinationServicePort": 5202,
    "destinationServicePortName": "perftest",
    "ingressNetworkPolicyName": "test-flow-aggregator-networkpolicy-ingress-allow",
    "ingressNetworkPolicyNamespace": "antrea-test-ns",
    "ingressNetworkPolicyRuleName": "test-flow-aggregator-networkpolicy-rule",
    "ingressNetworkPolicyRuleAction": 2,
    "ingressNetworkPolicyType": 1,
    "egressNetworkPolicyName": "test-flow-aggregator-networkpolicy-egress-allow",
    "egressNetworkPolicyNamespace": "antrea-test-ns-e",
    "egressNetworkPolicyRuleName": "test-flow-aggregator-networkpolicy-rule-e",
    "egressNetworkPolicyRuleAction": 1,
    "egressNetworkPolicyType": 3,
    "tcpState": "TIME_WAIT",
    "flowType": 2,
    "sourcePodLabels": '{"antrea-e2e":"perftest-a","app":"iperf"}',
    "destinationPodLabels": '{"antrea-e2e":"perftest-b","app":"iperf"}',
    "throughput": 15902813472,
    "reverseThroughput": 12381344,
    "throughputFromSourceNode": 15902813473,
    "throughputFromDestinationNode": 15902813474,
    "reverseThroughputFromSourceNode": 12381345,
    "reverseThroughputFromDestinationNode": 12381346,
    "egressName": "test-egress",
    "egressNodeName": "test-egress-node",
    "proxySnatPort": 34000,
    **{
        f"{prefix}{unit}{kind}CountFrom{side}Node": base + number
        for prefix, side, base in (
            ("", "Source", 100),
            ("reverse", "Source", 200),
            ("", "Destination", 300),
            ("reverse", "Destination", 400),
        )
        for number, (unit, kind) in enumerate(
            (
                ("Packet" if prefix else "packet", "Total"),
                ("Octet" if prefix else "octet", "Total"),
                ("Packet" if prefix else "packet", "Delta"),
                ("Octet" if prefix else "octet", "Delta"),
            ),
            start=1,
        )
    },
}
_STANDARD_ADDRESSES: Final[Mapping[AddressFamily, Mapping[str, Value]]] = {
    AddressFamily.IPV4: {
        "sourceIPv4Address": "10.10.0.79",
        "destinationIPv4Address": "10.10.0.80",
        "destinationClusterIPv4": "10.10.1.10",
        "destinationServiceIPv4": "10.10.2.10",
        "proxySnatIPv4": "10.10.3.10",
        "egressIP": "172.18.0.1",
    },
    AddressFamily.IPV6: {
        "sourceIPv6Address": "2001:0:3238:dfe1:63::fefb",
        "destinationIPv6Address": "2001:0:3238:dfe1:63::fefc",
        "destinationClusterIPv6": "2001:0:3238:dfe1:64::a",
        "destinationServiceIPv6": "2001:0:3238:dfe1:65::a",
        "proxySnatIPv6": "2001:0:3238:dfe1:66::a",
        "egressIP": "2001:0:3238:dfe1::ac12:1",
    },
}


def aggregated_schema(family: AddressFamily) -> FlowSchema:
    """Columns of joined flows."""
    return _schemas()[FlowOrigin.AGGREGATED, family]


def plain_schema(family: AddressFamily) -> FlowSchema:
    """Columns of flows of any other exporter: nothing of Kubernetes."""
    return _schemas()[FlowOrigin.PLAIN, family]


def standard_flow(family: AddressFamily = AddressFamily.IPV4, /, **changes: Value) -> FlowBatch:
    """One joined flow with a value in nearly every element, UUIDs apart; ``changes`` replace values by name."""
    values = {**_STANDARD, **_STANDARD_ADDRESSES[family], **changes}
    schema = aggregated_schema(family)
    return FlowBatch.from_columns(
        schema, {element.name: [values.get(element.name, element.default)] for element in schema.elements}
    )


def numbered_flows(count: int, family: AddressFamily = AddressFamily.IPV4, *, first: int = 0) -> FlowBatch:
    """Joined flows that differ in address, port, Pod and counters."""
    schema = aggregated_schema(family)
    numbers = range(first, first + count)
    source = f"sourceIPv{family.value}Address"
    columns: dict[str, list[Value]] = {
        element.name: [_STANDARD.get(element.name, element.default)] * count for element in schema.elements
    }
    columns |= {name: [value] * count for name, value in _STANDARD_ADDRESSES[family].items()}
    if family is AddressFamily.IPV4:
        columns[source] = [f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}" for number in numbers]
    else:
        columns[source] = [f"2001:db8::1:{number:x}" if number else "2001:db8::1:0" for number in numbers]
    columns["sourceTransportPort"] = [1024 + number % 60_000 for number in numbers]
    columns["sourcePodName"] = [f"client-{number % 500}" for number in numbers]
    columns["octetTotalCount"] = [number * 1000 for number in numbers]
    return FlowBatch.from_columns(schema, columns)


def plain_flows(count: int = 3, family: AddressFamily = AddressFamily.IPV4) -> FlowBatch:
    """Flows as a router or probe reports them."""
    schema = plain_schema(family)
    addresses = ("192.0.2.1", "198.51.100.7") if family is AddressFamily.IPV4 else ("2001:db8::1", "2001:db8::2")
    columns: dict[str, list[Value]] = {
        "flowStartSeconds": [1700000000] * count,
        "flowEndSeconds": [1700000010 + number for number in range(count)],
        "flowEndReason": [1] * count,
        f"sourceIPv{family.value}Address": [addresses[0]] * count,
        f"destinationIPv{family.value}Address": [addresses[1]] * count,
        "sourceTransportPort": [40000 + number for number in range(count)],
        "destinationTransportPort": [443] * count,
        "protocolIdentifier": [17] * count,
        "packetTotalCount": [number + 1 for number in range(count)],
        "octetTotalCount": [1500 * (number + 1) for number in range(count)],
        "packetDeltaCount": [number + 1 for number in range(count)],
        "octetDeltaCount": [1500 * (number + 1) for number in range(count)],
        "ingressInterface": [2] * count,
        "egressInterface": [3] * count,
        "tcpControlBits": [0] * count,
        "ipClassOfService": [0] * count,
    }
    return FlowBatch.from_columns(schema, columns)


def hostile_flows() -> FlowBatch:
    """Joined flows whose strings hold what breaks formats, one kind a row; numbers at their limits."""
    schema = aggregated_schema(AddressFamily.IPV4)
    count = len(HOSTILE_TEXTS)
    columns: dict[str, list[Value]] = {
        element.name: list(HOSTILE_TEXTS) if element.data_type is DataType.STRING else [_greatest(element)] * count
        for element in schema.elements
    }
    return FlowBatch.from_columns(schema, columns)


def every_data_type() -> FlowBatch:
    """Three rows with a column of every abstract data type: default, least or odd, greatest."""
    elements = [
        InformationElement(
            name=f"example{data_type.value[0].upper()}{data_type.value[1:]}",
            element_id=ElementId(number),
            enterprise_number=EnterpriseNumber(32473),  # RFC 5612: for documentation
            data_type=data_type,
        )
        for number, data_type in enumerate(DataType, start=1)
    ]
    schema = FlowSchema(
        origin=FlowOrigin.PLAIN,
        family=AddressFamily.IPV4,
        elements=(*plain_schema(AddressFamily.IPV4).elements, *elements),
        registry=default_registry().extended(elements),
    )
    plain = plain_flows(3)
    columns = {name: list(plain.column(name)) for name in plain.schema.names}
    columns |= {element.name: [element.default, _odd(element), _greatest(element)] for element in elements}
    return FlowBatch.from_columns(schema, columns)


@functools.cache
def _schemas() -> FlowSchemas:
    return build_schemas(default_registry())


def _greatest(element: InformationElement) -> Value:
    data_type, default = element.data_type, element.default
    if data_type in _EXTREMES:
        return _EXTREMES[data_type][1]
    if isinstance(default, bytes):
        return bytes([255]) * (len(default) or 300)
    bits = 8 * data_type.natural_length
    if data_type.value.startswith("signed"):
        return (1 << (bits - 1)) - 1
    return (1 << bits) - 1


def _odd(element: InformationElement) -> Value:
    data_type, default = element.data_type, element.default
    if data_type in _EXTREMES:
        return _EXTREMES[data_type][0]
    if isinstance(default, bytes):
        return b"\0" * (len(default) or 1)
    if data_type.value.startswith("signed"):
        return -(1 << (8 * data_type.natural_length - 1))
    return 1


_EXTREMES: Final[Mapping[DataType, tuple[Value, Value]]] = {
    DataType.FLOAT32: (math.nan, math.inf),
    DataType.FLOAT64: (-math.inf, 1.7976931348623157e308),
    DataType.BOOLEAN: (True, True),
    DataType.MAC_ADDRESS: ("02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff"),
    DataType.STRING: (HOSTILE_TEXTS[0], "\N{GRINNING FACE}" * 300),
    DataType.IPV4_ADDRESS: ("192.0.2.1", "255.255.255.255"),
    DataType.IPV6_ADDRESS: ("::ffff:192.0.2.1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
}
