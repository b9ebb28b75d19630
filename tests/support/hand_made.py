"""IPFIX Messages written octet by octet from tables in this file, sharing nothing with the core's encoder."""

from __future__ import annotations

import ipaddress
import struct

ANTREA, REVERSE = 56506, 29305

# name: (element id, enterprise number, octets; 0 is a string of variable length)
FIELDS: dict[str, tuple[int, int, int]] = {
    "octetDeltaCount": (1, 0, 8),
    "packetDeltaCount": (2, 0, 8),
    "protocolIdentifier": (4, 0, 1),
    "ipClassOfService": (5, 0, 1),
    "tcpControlBits": (6, 0, 2),
    "sourceTransportPort": (7, 0, 2),
    "sourceIPv4Address": (8, 0, 4),
    "ingressInterface": (10, 0, 4),
    "destinationTransportPort": (11, 0, 2),
    "destinationIPv4Address": (12, 0, 4),
    "egressInterface": (14, 0, 4),
    "bgpSourceAsNumber": (16, 0, 4),
    "flowEndSysUpTime": (21, 0, 4),
    "flowStartSysUpTime": (22, 0, 4),
    "sourceIPv6Address": (27, 0, 16),
    "destinationIPv6Address": (28, 0, 16),
    "icmpTypeCodeIPv4": (32, 0, 2),
    "sourceMacAddress": (56, 0, 6),
    "vlanId": (58, 0, 2),
    "flowDirection": (61, 0, 1),
    "octetTotalCount": (85, 0, 8),
    "packetTotalCount": (86, 0, 8),
    "flowEndReason": (136, 0, 1),
    "observationDomainId": (149, 0, 4),
    "flowStartSeconds": (150, 0, 4),
    "flowEndSeconds": (151, 0, 4),
    "flowStartMilliseconds": (152, 0, 8),
    "flowEndMilliseconds": (153, 0, 8),
    "flowStartDeltaMicroseconds": (158, 0, 4),
    "flowEndDeltaMicroseconds": (159, 0, 4),
    "systemInitTimeMilliseconds": (160, 0, 8),
    "icmpTypeIPv4": (176, 0, 1),
    "icmpCodeIPv4": (177, 0, 1),
    "icmpTypeIPv6": (178, 0, 1),
    "icmpCodeIPv6": (179, 0, 1),
    "initiatorOctets": (231, 0, 8),
    "responderOctets": (232, 0, 8),
    "initiatorPackets": (298, 0, 8),
    "responderPackets": (299, 0, 8),
    "originalExporterIPv4Address": (403, 0, 4),
    "originalExporterIPv6Address": (404, 0, 16),
    "originalObservationDomainId": (405, 0, 4),
    "paddingOctets": (210, 0, 2),
    "reverseOctetDeltaCount": (1, REVERSE, 8),
    "reversePacketDeltaCount": (2, REVERSE, 8),
    "reverseOctetTotalCount": (85, REVERSE, 8),
    "reversePacketTotalCount": (86, REVERSE, 8),
    "sourcePodNamespace": (100, ANTREA, 0),
    "sourcePodName": (101, ANTREA, 0),
    "destinationPodNamespace": (102, ANTREA, 0),
    "destinationPodName": (103, ANTREA, 0),
    "sourceNodeName": (104, ANTREA, 0),
    "destinationNodeName": (105, ANTREA, 0),
    "destinationClusterIPv4": (106, ANTREA, 4),
    "destinationClusterIPv6": (107, ANTREA, 16),
    "destinationServicePort": (108, ANTREA, 2),
    "destinationServicePortName": (109, ANTREA, 0),
    "ingressNetworkPolicyName": (110, ANTREA, 0),
    "ingressNetworkPolicyNamespace": (111, ANTREA, 0),
    "egressNetworkPolicyName": (112, ANTREA, 0),
    "egressNetworkPolicyNamespace": (113, ANTREA, 0),
    "ingressNetworkPolicyType": (115, ANTREA, 1),
    "ingressNetworkPolicyRulePriority": (116, ANTREA, 4),
    "egressNetworkPolicyType": (118, ANTREA, 1),
    "tcpState": (136, ANTREA, 0),
    "flowType": (137, ANTREA, 1),
    "ingressNetworkPolicyRuleAction": (139, ANTREA, 1),
    "egressNetworkPolicyRuleAction": (140, ANTREA, 1),
    "ingressNetworkPolicyRuleName": (141, ANTREA, 0),
    "egressNetworkPolicyRuleName": (142, ANTREA, 0),
    "throughput": (145, ANTREA, 8),
    "egressName": (153, ANTREA, 0),
    "egressIP": (154, ANTREA, 0),
    "appProtocolName": (155, ANTREA, 0),
    "httpVals": (156, ANTREA, 0),
    "egressNodeName": (157, ANTREA, 0),
    "clusterId": (158, ANTREA, 0),
    "sourcePodUUID": (159, ANTREA, 16),
    "destinationServiceIPv4": (168, ANTREA, 4),
    "destinationServiceIPv6": (169, ANTREA, 16),
    "proxySnatIPv4": (170, ANTREA, 4),
    "proxySnatIPv6": (171, ANTREA, 16),
    "proxySnatPort": (172, ANTREA, 2),
    "unknown": (999, 64_000, 4),
}
_SIGNED = {"ingressNetworkPolicyRulePriority"}

# The newest agent's Template, 43 elements, in its order.
AGENT = [
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
    "sourceNodeName",
    "destinationPodName",
    "destinationPodNamespace",
    "destinationNodeName",
    "destinationServicePort",
    "destinationServicePortName",
    "ingressNetworkPolicyName",
    "ingressNetworkPolicyNamespace",
    "ingressNetworkPolicyType",
    "ingressNetworkPolicyRuleName",
    "ingressNetworkPolicyRuleAction",
    "egressNetworkPolicyName",
    "egressNetworkPolicyNamespace",
    "egressNetworkPolicyType",
    "egressNetworkPolicyRuleName",
    "egressNetworkPolicyRuleAction",
    "tcpState",
    "flowType",
    "egressName",
    "egressIP",
    "egressNodeName",
    "proxySnatPort",
    "destinationClusterIPv4",
    "proxySnatIPv4",
    "destinationServiceIPv4",
]
AGENT_IPV6 = [name.replace("IPv4", "IPv6") for name in AGENT]

Record = dict[str, "int | str | bytes"]


def message(*sets: bytes, export_time: int = 1_700_000_000, sequence: int = 0, domain: int = 1) -> bytes:
    body = b"".join(sets)
    return struct.pack(">HHIII", 10, 16 + len(body), export_time, sequence, domain) + body


def template_set(names: list[str], template_id: int = 256) -> bytes:
    body = struct.pack(">HH", template_id, len(names)) + _field_specifiers(names)
    return struct.pack(">HH", 2, 4 + len(body)) + body


def options_template_set(names: list[str], template_id: int) -> bytes:
    """The first element is the scope."""
    body = struct.pack(">HHH", template_id, len(names), 1) + _field_specifiers(names)
    return struct.pack(">HH", 3, 4 + len(body)) + body


def _field_specifiers(names: list[str]) -> bytes:
    body = b""
    for name in names:
        element_id, enterprise, octets = FIELDS[name]
        if enterprise:
            body += struct.pack(">HHI", element_id | 0x8000, octets or 65535, enterprise)
        else:
            body += struct.pack(">HH", element_id, octets or 65535)
    return body


def data_set(names: list[str], *records: Record, template_id: int = 256) -> bytes:
    body = b"".join(_field(name, record.get(name, 0)) for record in records for name in names)
    return struct.pack(">HH", template_id, 4 + len(body)) + body


def file_of_halves(source: Record, destination: Record) -> bytes:
    """An IPFIX File (RFC 5655): each half in a Message of its own, both address families."""
    return b"".join(
        message(template_set(names, template_id), data_set(names, half, template_id=template_id), domain=domain)
        for names, template_id in ((AGENT, 256), (AGENT_IPV6, 257))
        for domain, half in ((1, source), (2, destination))
    )


def _field(name: str, value: int | str | bytes) -> bytes:
    octets = FIELDS[name][2]
    if octets == 0:
        text = value.encode() if isinstance(value, str) else b"" if value == 0 else bytes(value)
        return bytes([len(text)]) + text if len(text) < 255 else b"\xff" + struct.pack(">H", len(text)) + text
    if isinstance(value, str):
        value = ipaddress.ip_address(value).packed
    return value if isinstance(value, bytes) else value.to_bytes(octets, "big", signed=name in _SIGNED)


# The records of the worked example: 10.0.0.1:1234 -> 10.0.0.2:5678, TCP, between Nodes.
def worked_example(
    end: int, packets: int, packet_delta: int, octets: int, octet_delta: int, reason: int, state: str
) -> Record:
    return {
        "sourceIPv4Address": "10.0.0.1",
        "destinationIPv4Address": "10.0.0.2",
        "sourceIPv6Address": "2001:0:3238:dfe1:63::fefb",
        "destinationIPv6Address": "2001:0:3238:dfe1:63::fefc",
        "sourceTransportPort": 1234,
        "destinationTransportPort": 5678,
        "protocolIdentifier": 6,
        "flowType": 2,
        "flowStartSeconds": 0,
        "flowEndSeconds": end,
        "packetTotalCount": packets,
        "packetDeltaCount": packet_delta,
        "octetTotalCount": octets,
        "octetDeltaCount": octet_delta,
        "reversePacketTotalCount": packets,
        "reversePacketDeltaCount": packet_delta,
        "reverseOctetTotalCount": octets,
        "reverseOctetDeltaCount": octet_delta,
        "flowEndReason": reason,
        "tcpState": state,
    }


SOURCE: Record = {
    "sourcePodName": "pod1",
    "destinationClusterIPv4": "192.168.0.1",
    "destinationClusterIPv6": "2001:0:3238:bbbb:63::aaaa",
    "destinationServicePort": 4739,
}
DESTINATION: Record = {"destinationPodName": "pod2"}
S1 = worked_example(1, 500, 0, 1000, 0, 2, "ESTABLISHED") | SOURCE
D1 = worked_example(1, 502, 0, 1020, 0, 2, "ESTABLISHED") | DESTINATION
S2 = worked_example(10, 1000, 500, 2000, 1000, 3, "TIME_WAIT") | SOURCE
D2 = worked_example(10, 1005, 503, 2050, 1030, 3, "TIME_WAIT") | DESTINATION
