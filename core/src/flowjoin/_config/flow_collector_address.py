"""Antrea's address syntax, ``host[:port][:protocol]``, with its sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["FlowCollectorAddress", "parse_flow_collector_address"]

_PROTOCOLS: Final = ("tls", "tcp", "udp", "grpc")
_INVALID: Final = "flow collector address is given in invalid format"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCollectorAddress:
    """A destination.

    Attributes:
        host: a name or an address without brackets; an agent's may be ``namespace/service``.
        port: 1 to 65535.
        protocol: ``tls``, ``tcp``, ``udp`` or ``grpc``.
    """

    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        """Host and port, brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_flow_collector_address(text: str, default_port: int, default_protocol: str) -> FlowCollectorAddress:
    """Read the three parts.

    Raises:
        ValueError: in Antrea's words.
    """
    host, parts = _split(text)
    if len(parts) > 2:
        raise ValueError(_INVALID)
    protocol = parts[1] if len(parts) == 2 else default_protocol
    if protocol not in _PROTOCOLS:
        raise ValueError(f"connection over {protocol} transport proto is not supported")
    if not host:
        raise ValueError(f"{_INVALID}: the host is missing")
    port_text = parts[0] if parts else ""
    if not port_text and len(parts) != 1:  # host alone, or host::protocol
        return FlowCollectorAddress(host=host, port=default_port, protocol=protocol)
    return FlowCollectorAddress(host=host, port=_port(port_text), protocol=protocol)


def _split(text: str) -> tuple[str, list[str]]:
    """The host, and what follows it at each colon."""
    bracket = text.find("]:")
    if "[" in text and bracket > text.index("["):
        if not text.startswith("["):
            raise ValueError(_INVALID)
        return text[1:bracket], text[bracket + 2 :].split(":")
    if text.startswith("[") and text.endswith("]"):  # more than Antrea reads: brackets, no port
        return text[1:-1], []
    host, *parts = text.split(":")
    return host, parts


def _port(text: str) -> int:
    digits = text.removeprefix("+").removeprefix("-") if text[:2] != "+-" else ""
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f'invalid port {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    port = int(text) if len(text) <= 20 else 0
    if not 1 <= port <= 65535:
        raise ValueError(f"port {text} is out of range, valid range is 1-65535")
    return port
