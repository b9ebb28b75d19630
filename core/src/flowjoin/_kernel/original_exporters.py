"""Which device's Exporting Process a record is from, seen from us, a Mediator.

What a record says itself (elements 403, 404) wins over the session's peer: then the peer is another
Mediator. Invariant: an IPv4 address is one original exporter however the socket names it.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from flowjoin._model.transport_session import TransportSession

__all__ = ["NO_IPV4", "NO_IPV6", "OriginalExporters", "exporter_key", "packed_pair"]

NO_IPV4: Final = bytes(4)
NO_IPV6: Final = bytes(16)
_MAPPED: Final = bytes(10) + b"\xff\xff"
_MAXIMUM_REMEMBERED: Final = 65_536


class OriginalExporters:
    """The peers of sessions, packed."""

    def __init__(self) -> None:
        self._pairs: dict[str, tuple[bytes, bytes]] = {}

    def of_session(self, session: TransportSession) -> tuple[bytes, bytes]:
        """The values of elements 403 and 404 for a session's peer; of the other family it is all zero."""
        pair = self._pairs.get(session.peer)
        if pair is None:
            if len(self._pairs) >= _MAXIMUM_REMEMBERED:
                self._pairs.clear()
            pair = self._pairs[session.peer] = packed_pair(session.peer)
        return pair


def packed_pair(text: str) -> tuple[bytes, bytes]:
    """An address's text as IPv4 and IPv6 octets, one of them zero; empty text (a file's peer): both.

    Raises:
        ValueError: the text is no address.
    """
    if not text:
        return NO_IPV4, NO_IPV6
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address.packed, NO_IPV6
    if address.ipv4_mapped is not None:  # a socket of both families names IPv4 peers so
        return address.ipv4_mapped.packed, NO_IPV6
    return NO_IPV4, address.packed


def exporter_key(ipv4: bytes, ipv6: bytes) -> bytes:
    """Sixteen octets for either family; all zero for no address."""
    return _MAPPED + ipv4 if ipv4 != NO_IPV4 else ipv6
