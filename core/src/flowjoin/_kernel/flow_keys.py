"""Flow keys as octets, and back: which layout a key has follows from its length.

========  =============================================================================
octets    key
========  =============================================================================
13, 37    aggregated: addresses, ports, protocol (IPv4, IPv6)
39, 63    plain: the same, original exporter, domain, ingress interface, ICMP type and code
========  =============================================================================
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final

from flowjoin._kernel.original_exporters import exporter_key, packed_pair
from flowjoin._model.flow_key import FlowFilter, FlowKey

__all__ = ["aggregated_key", "key_of", "matches", "plain_key"]

_FLOW: Final = struct.Struct(">HHB")  # ports, protocol
_SEEN_AT: Final = struct.Struct(">16sIIH")  # exporter, domain, ingress interface, ICMP type and code
_IPV4_LENGTHS: Final = (8 + _FLOW.size, 8 + _FLOW.size + _SEEN_AT.size)


def aggregated_key(source: bytes, destination: bytes, source_port: int, destination_port: int, protocol: int) -> bytes:
    """The 5-tuple."""
    return source + destination + _FLOW.pack(source_port, destination_port, protocol)


def plain_key(five_tuple: bytes, exporter: bytes, domain: int, interface: int, icmp: int) -> bytes:
    """The 5-tuple, and where it was seen."""
    return five_tuple + _SEEN_AT.pack(exporter, domain, interface, icmp)


def key_of(key: FlowKey) -> bytes | None:
    """A key's octets; None if no stored flow can have it."""
    try:
        five_tuple = aggregated_key(
            ipaddress.ip_address(key.source).packed,
            ipaddress.ip_address(key.destination).packed,
            key.source_port,
            key.destination_port,
            key.protocol_identifier,
        )
        if key.original_exporter is None:
            return five_tuple
        exporter = exporter_key(*packed_pair(key.original_exporter))
        return plain_key(five_tuple, exporter, key.observation_domain_id, key.ingress_interface, key.icmp_type_code)
    except (ValueError, struct.error):  # a question about an address or number that does not exist
        return None


def matches(flow_filter: FlowFilter, key: bytes) -> bool:
    """Whether a stored flow's key has every part that the filter names."""
    size = 4 if len(key) in _IPV4_LENGTHS else 16
    source_port, destination_port, protocol = _FLOW.unpack_from(key, 2 * size)
    return (
        (flow_filter.source_port is None or flow_filter.source_port == source_port)
        and (flow_filter.destination_port is None or flow_filter.destination_port == destination_port)
        and (flow_filter.protocol_identifier is None or flow_filter.protocol_identifier == protocol)
        and (flow_filter.source is None or _packed(flow_filter.source) == key[:size])
        and (flow_filter.destination is None or _packed(flow_filter.destination) == key[size : 2 * size])
    )


def _packed(text: str) -> bytes | None:
    try:
        return ipaddress.ip_address(text).packed
    except ValueError:
        return None
