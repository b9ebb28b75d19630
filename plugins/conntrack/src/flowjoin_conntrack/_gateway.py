"""The addresses of an interface of this host, such as Antrea's gateway, which every Node has for itself."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["addresses_of"]

_SIOCGIFADDR: Final = 0x8915
_NAME_OCTETS: Final = 16  # IFNAMSIZ
_ADDRESS_AT: Final = 20  # in struct ifreq: behind the name, the family and the port of a struct sockaddr_in
_INET6: Final = Path("/proc/self/net/if_inet6")


def addresses_of(interface: str) -> frozenset[str]:
    """Canonical texts: the first IPv4 address and every IPv6 one but link-local; none where it is not there."""
    found: set[str] = set()
    request = struct.pack("16s240x", interface.encode()[: _NAME_OCTETS - 1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking, suppress(OSError):
        answer = fcntl.ioctl(asking, _SIOCGIFADDR, request)
        found.add(str(ipaddress.IPv4Address(answer[_ADDRESS_AT : _ADDRESS_AT + 4])))
    lines = []
    with suppress(OSError):  # a kernel without IPv6
        lines = _INET6.read_text(encoding="ascii").splitlines()
    for line in lines:
        digits, *_, name = line.split()
        address = ipaddress.IPv6Address(bytes.fromhex(digits))
        if name == interface and not address.is_link_local:
            found.add(str(address))
    return frozenset(found)
