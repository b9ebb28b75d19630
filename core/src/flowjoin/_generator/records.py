"""Records as the agents of Antrea 2.7 send them: 43 elements, a Template for each family."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Sequence
from typing import Final

from flowjoin._generator.flow import Flow, Half
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_schema import AddressFamily
from flowjoin._model.information_element import Value
from flowjoin._model.template import FieldSpecifier, Template, TemplateId

__all__ = ["AGENT_ELEMENTS", "AgentRecords", "observation_domain_of"]

AGENT_ELEMENTS: Final = (
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
)
"""In wire order, for IPv4; the other family has ``IPv6`` where a name says ``IPv4``."""

_ADDRESSES: Final = tuple(name for name in AGENT_ELEMENTS if "IPv4" in name)

# The first Template an agent makes is 256; it makes the IPv4 one first.
_TEMPLATE_IDS: Final = {AddressFamily.IPV4: TemplateId(256), AddressFamily.IPV6: TemplateId(257)}


def observation_domain_of(node_name: str) -> int:
    """FNV-1 (not FNV-1a) of the node's name, 32 bits: what agents use as observation domain id."""
    value = 2166136261
    for octet in node_name.encode():
        value = value * 16777619 % 2**32 ^ octet
    return value


class AgentRecords:
    """Turns halves of flows into the records of an agent."""

    def __init__(self, registry: ElementRegistry) -> None:
        self.templates: Final = {family: _template(registry, family) for family in AddressFamily}
        self._defaults = {
            family: {name: field.element.default for name, field in zip(AGENT_ELEMENTS, template.fields, strict=True)}
            for family, template in self.templates.items()
        }

    def record(self, flow: Flow, half: Half, number: int) -> Sequence[Value]:
        """The values of a half's record of that number, in Template order."""
        update = half.updates[number]
        packets = octets = reverse_packets = reverse_octets = 0
        if number:
            before = half.updates[number - 1]
            packets, octets = before.packets, before.octets
            reverse_packets, reverse_octets = before.reverse_packets, before.reverse_octets
        values = {
            **self._defaults[flow.family],
            **half.elements,
            "flowStartSeconds": flow.flow_start,
            "flowEndSeconds": update.flow_end,
            "flowEndReason": update.flow_end_reason,
            "tcpState": update.tcp_state,
            "packetTotalCount": update.packets,
            "octetTotalCount": update.octets,
            "packetDeltaCount": update.packets - packets,
            "octetDeltaCount": update.octets - octets,
            "reversePacketTotalCount": update.reverse_packets,
            "reverseOctetTotalCount": update.reverse_octets,
            "reversePacketDeltaCount": update.reverse_packets - reverse_packets,
            "reverseOctetDeltaCount": update.reverse_octets - reverse_octets,
        }
        for name in _ADDRESSES:
            values[name] = _packed(str(values[name]))
        return list(map(values.__getitem__, AGENT_ELEMENTS))


@functools.lru_cache(maxsize=10_000)
def _packed(address: str) -> bytes:
    """A cluster has few addresses, and parsing them again and again was half of the work."""
    return ipaddress.ip_address(address).packed


def _template(registry: ElementRegistry, family: AddressFamily) -> Template:
    elements = [registry.by_name(name.replace("IPv4", f"IPv{family.value}")) for name in AGENT_ELEMENTS]
    return Template(
        version=10,
        template_id=_TEMPLATE_IDS[family],
        fields=tuple(FieldSpecifier(element, element.length) for element in elements),
    )
