"""The Transport Session over which Messages arrive (RFC 7011 section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NewType, TypeAlias

__all__ = ["ObservationDomainId", "TransportProtocol", "TransportSession"]

ObservationDomainId = NewType("ObservationDomainId", int)
TransportProtocol: TypeAlias = Literal["udp", "tcp", "tls", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSession:
    """Protocol and both endpoints; hashable, so that it is a key.

    Attributes:
        protocol: ``file`` for an IPFIX File, which has no endpoints.
        peer: address text of the original exporter's socket; empty for a file.
        peer_port: its port.
        local: our address text.
        local_port: our port.
        identity: what the peer proved by its certificate; None without one.
        serial: tells two connections with equal endpoints apart; 0 over UDP and in files.
    """

    protocol: TransportProtocol
    peer: str = ""
    peer_port: int = 0
    local: str = ""
    local_port: int = 0
    identity: str | None = None
    serial: int = 0

    def __str__(self) -> str:
        """``192.0.2.1:50001``, ``[2001:db8::1]:4739`` or ``file``."""
        if self.protocol == "file":
            return "file"
        return f"[{self.peer}]:{self.peer_port}" if ":" in self.peer else f"{self.peer}:{self.peer_port}"

    @property
    def is_ordered(self) -> bool:
        """Whether a Template always arrives before its data (everywhere but over UDP)."""
        return self.protocol != "udp"
