"""What one Collecting Process is told: protocol, address, limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["CollectorAddress", "CollectorConfig", "CollectorLimits"]


@dataclass(frozen=True, slots=True)
class CollectorAddress:
    """Where to listen.

    Attributes:
        host: an address or a name, without brackets; ``::`` takes IPv4 too, and IPv4 alone where
            the machine has no IPv6.
        port: 0 takes any free port.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> CollectorAddress:
        """Read ``192.0.2.1:4739``, ``[2001:db8::1]:4739``, ``name:4739`` or ``:4739`` (every address).

        Raises:
            ValueError: one sentence that says what is wrong and what would be right.
        """
        host, colon, port_text = text.rpartition(":")
        if not colon:
            raise ValueError(f"{text!r} has no port: write HOST:PORT, for example [::]:4739")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"{text!r} is ambiguous: write an IPv6 address in brackets, [{host}]:{port_text}")
        # Digits of other scripts satisfy int(), and a sign or spaces too.
        if not (port_text.isascii() and port_text.isdecimal()) or int(port_text) > 65535:
            raise ValueError(f"port {port_text!r} of {text!r} is not a number from 0 to 65535")
        return cls(host or "::", int(port_text))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorLimits:
    """Bounds on what peers can make one Collecting Process do at once.

    Attributes:
        sessions: Transport Sessions: connections over TCP, remembered peers over UDP. What goes
            beyond is refused and counted as ``session_limit``.
        idle_timeout: seconds without a whole Message after which a connection is closed, or a UDP
            peer forgotten. Three times the usual Template refresh of 600 s.
        receive_buffer_octets: asked of the kernel for each UDP socket. 64 MiB hold some 100,000
            small datagrams: 3.5 s of pause at 30,000 datagrams a second.
        datagrams_per_wakeup: taken from a UDP socket before the others have their turn.
        slice_seconds: one wake-up aims to hold trio's thread no longer; UDP takes fewer datagrams
            at once until it does.
    """

    sessions: int = 10_000
    idle_timeout: float = 1800.0
    receive_buffer_octets: int = 64 * 1024 * 1024
    datagrams_per_wakeup: int = 256
    slice_seconds: float = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorConfig:
    """One Collecting Process."""

    protocol: Literal["udp", "tcp"]
    address: CollectorAddress
    limits: CollectorLimits = field(default_factory=CollectorLimits)
