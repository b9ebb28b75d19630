"""Antrea's address syntax, ``host[:port][:protocol]``: its sentences, and after each what would be right."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flowjoin._config.endpoint import is_host
from flowjoin._model.nearest import nearest

__all__ = ["FlowCollectorAddress", "parse_flow_collector_address"]

_PROTOCOLS: Final = ("tls", "tcp", "udp", "grpc")
_INVALID: Final = "flow collector address is given in invalid format"
_SHOWN: Final = 100


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


def parse_flow_collector_address(
    text: str, default_port: int, default_protocol: str, *, protocols: Sequence[str] = _PROTOCOLS
) -> FlowCollectorAddress:
    """Read the three parts.

    Args:
        text: as the operator wrote it.
        default_port: where none is written.
        default_protocol: where none is written.
        protocols: those that an error proposes; the caller refuses what else is read.

    Raises:
        ValueError: in Antrea's words, and with what would be right.
    """
    example = f"host:{default_port}:{default_protocol}"
    if "@" in text:  # what stands before it may be a password, which no error repeats
        raise ValueError(f"{_INVALID}: an address has no user and no password; write {example}")
    if "://" in text:
        raise ValueError(f'{_INVALID}: "{text[:_SHOWN]}" is a URL; write {example}')
    host, parts = _split(text, example)
    if len(parts) > 2:
        raise ValueError(f'{_INVALID}: "{text[:_SHOWN]}" has too many colons; write {example}')
    protocol = parts[1] if len(parts) == 2 else default_protocol
    if protocol not in _PROTOCOLS:
        near = nearest(protocol, protocols)
        words = f"{', '.join(protocols[:-1])} or {protocols[-1]}"
        remedy = f"write {words}, as in {example}" if near is None else f'did you mean "{near}"?'
        raise ValueError(f"connection over {protocol[:_SHOWN]} transport proto is not supported; {remedy}")
    _check_host(host, example)
    port_text = parts[0] if parts else ""
    if not port_text and len(parts) != 1:  # host alone, or host::protocol
        return FlowCollectorAddress(host=host, port=default_port, protocol=protocol)
    return FlowCollectorAddress(host=host, port=_port(port_text, example), protocol=protocol)


def _split(text: str, example: str) -> tuple[str, list[str]]:
    """The host, and what follows it at each colon."""
    if _is_ipv6(text):
        raise ValueError(f'{_INVALID}: "{text}" needs brackets around the IPv6 address; write [{text}]{example[4:]}')
    bracket = text.find("]:")
    if "[" in text and bracket > text.index("["):
        if not text.startswith("["):
            raise ValueError(f'{_INVALID}: "{text[:_SHOWN]}" has something before the bracket; write {example}')
        return text[1:bracket], text[bracket + 2 :].split(":")
    if text.startswith("[") and text.endswith("]"):  # more than Antrea reads: brackets, no port
        return text[1:-1], []
    host, *parts = text.split(":")
    return host, parts


def _check_host(host: str, example: str) -> None:
    if not host:
        raise ValueError(f"{_INVALID}: the host is missing; write {example}")
    if ":" in host and not _is_ipv6(host):
        raise ValueError(f'{_INVALID}: "{host[:_SHOWN]}" in brackets is no IPv6 address')
    # An agent's may be a Service: namespace/name.
    if ":" not in host and not all(is_host(part) for part in host.split("/", 1)):
        raise ValueError(f'{_INVALID}: "{host[:_SHOWN]}" is neither an address nor a host name; write {example}')


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _port(text: str, example: str) -> int:
    digits = text.removeprefix("+").removeprefix("-") if text[:2] != "+-" else ""
    if not (digits.isascii() and digits.isdigit()):
        shown = text[:_SHOWN]
        raise ValueError(f'invalid port {shown}: strconv.Atoi: parsing "{shown}": invalid syntax; write {example}')
    port = int(text) if len(text) <= 20 else 0
    if not 1 <= port <= 65535:
        raise ValueError(f"port {text[:_SHOWN]} is out of range, valid range is 1-65535")
    return port
