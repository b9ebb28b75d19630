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

__all__ = ["KeyFilter", "aggregated_key", "key_of", "plain_key"]

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


class KeyFilter:
    """A FlowFilter, read once: its addresses as octets, as keys have them."""

    __slots__ = ("_destination", "_destination_port", "_protocol", "_source", "_source_port", "takes_all")

    def __init__(self, flow_filter: FlowFilter) -> None:
        self.takes_all = flow_filter == FlowFilter()
        self._source = _packed(flow_filter.source)
        self._destination = _packed(flow_filter.destination)
        self._source_port = flow_filter.source_port
        self._destination_port = flow_filter.destination_port
        self._protocol = flow_filter.protocol_identifier

    def matches(self, key: bytes) -> bool:
        """Whether a stored flow's key has every part that the filter names."""
        if self.takes_all:
            return True
        size = 4 if len(key) in _IPV4_LENGTHS else 16
        if self._source is not None and self._source != key[:size]:
            return False
        if self._destination is not None and self._destination != key[size : 2 * size]:
            return False
        source_port, destination_port, protocol = _FLOW.unpack_from(key, 2 * size)
        return (
            self._source_port in (None, source_port)
            and self._destination_port in (None, destination_port)
            and self._protocol in (None, protocol)
        )


def _packed(text: str | None) -> bytes | None:
    """None where any address will do; what is no address is no key's."""
    if text is None:
        return None
    try:
        return ipaddress.ip_address(text).packed
    except ValueError:
        return b""
