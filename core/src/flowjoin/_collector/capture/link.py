"""Link-layer headers: from a captured frame to the IP packet in it.

Strategy: each link type gives an EtherType and where it ends; VLAN tags are stepped over; the rest is the packet.
Invariant: any octets give a packet or None.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ip_packet_of"]

# https://www.tcpdump.org/linktypes.html; 12 and 14 are DLT_RAW of two families of systems, found in old files.
_NULL: Final = 0
_ETHERNET: Final = 1
_RAW: Final = frozenset({12, 14, 101, 228, 229})
_LOOP: Final = 108
_LINUX_SLL: Final = 113
_LINUX_SLL2: Final = 276

_IP: Final = frozenset({b"\x08\x00", b"\x86\xdd"})
_VLAN: Final = frozenset({b"\x81\x00", b"\x88\xa8", b"\x91\x00"})  # IEEE 802.1Q, 802.1ad, and QinQ before that
_VLAN_TAG_OCTETS: Final = 4

# AF_INET is 2 everywhere; AF_INET6 is the number of the system that captured. LINKTYPE_NULL has it in that
# machine's byte order, LINKTYPE_LOOP in network order.
_FAMILIES: Final = frozenset(family.to_bytes(4, order) for family in (2, 10, 24, 28, 30) for order in ("big", "little"))


def ip_packet_of(link_type: int, frame: memoryview) -> memoryview | None:
    """The IPv4 or IPv6 packet in a frame; None when it has none, or the link type is not known."""
    if link_type == _ETHERNET:
        return _behind_ether_type(frame, 12)
    if link_type in _RAW:
        return frame
    if link_type == _LINUX_SLL:
        return _behind_ether_type(frame, 14)
    if link_type == _LINUX_SLL2:  # the protocol comes first in this header of 20 octets
        return _behind_tags(bytes(frame[:2]), frame, 20)
    if link_type in (_NULL, _LOOP):
        return frame[4:] if bytes(frame[:4]) in _FAMILIES else None
    return None


def _behind_ether_type(frame: memoryview, at: int) -> memoryview | None:
    return _behind_tags(bytes(frame[at : at + 2]), frame, at + 2)


def _behind_tags(ether_type: bytes, frame: memoryview, at: int) -> memoryview | None:
    while ether_type in _VLAN:
        ether_type = bytes(frame[at + 2 : at + 4])
        at += _VLAN_TAG_OCTETS
    return frame[at:] if ether_type in _IP else None
