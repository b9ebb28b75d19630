"""Where something listens: ``[::]:4739``, ``192.0.2.1:4739``, ``localhost:4739``, ``:4739``."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import ClassVar, Final, Self

__all__ = ["Endpoint", "is_host"]

_MAX_PORT: Final = 65535
_PORT_DIGITS: Final = 5
_MAX_HOST: Final = 253  # RFC 1035 section 2.3.4, without the closing dot


def is_host(text: str) -> bool:
    """Whether it is an IPv4 address or can be a name; what ends in a number can be no name (RFC 3696 section 2)."""
    if text.rpartition(".")[2].isdigit():
        try:
            ipaddress.IPv4Address(text)
        except ValueError:
            return False
    return 0 < len(text) <= _MAX_HOST and text.isprintable() and not any(each in text for each in " /[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address or name, and a port.

    Attributes:
        host: an IPv4 or IPv6 address without brackets, or a name. ``::`` takes both families.
        port: 0 lets the system choose.
    """

    EXAMPLE: ClassVar = '"[::]:4739" or "192.0.2.1:4739"'
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the host is, or names, this machine alone."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read ``host:port``; an IPv6 address stands in brackets, no host at all is every address.

        Raises:
            ValueError: with the sentence for the operator.
        """
        if "@" in text:  # what stands before it may be a password, which no error repeats
            raise ValueError(f"an address has no user and no password; write text such as {cls.EXAMPLE}")
        host, colon, port = text.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()):
            raise ValueError(f'"{text[:100]}" is not host:port; write text such as {cls.EXAMPLE}')
        if len(port) > _PORT_DIGITS or int(port) > _MAX_PORT:
            raise ValueError(f'"{text[:100]}" has the port {port[:20]}; a port is from 0 to {_MAX_PORT}')
        if not host:
            host = "::"
        elif host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
            try:
                ipaddress.IPv6Address(host)
            except ValueError:
                raise ValueError(f'"{host[:100]}" in brackets is not an IPv6 address') from None
        elif ":" in host or "[" in host or "]" in host:
            raise ValueError(f'"{text[:100]}" needs brackets around the IPv6 address, as in "[::]:4739"')
        elif not is_host(host):
            raise ValueError(f'"{host[:100]}" is neither an address nor a host name')
        return cls(host=host, port=int(port))
