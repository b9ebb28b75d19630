"""What one Collecting Process is told: protocol, address, limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from flowjoin._config.endpoint import Endpoint

__all__ = ["CollectorConfig", "CollectorLimits"]


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
        handshakes: TLS handshakes in progress at once; more wait to be accepted.
        handshake_seconds: how long one may take.
        slice_seconds: one wake-up aims to hold trio's thread no longer; UDP takes fewer datagrams
            at once until it does.
    """

    sessions: int = 10_000
    idle_timeout: float = 1800.0
    receive_buffer_octets: int = 64 * 1024 * 1024
    datagrams_per_wakeup: int = 256
    handshakes: int = 256
    handshake_seconds: float = 10.0
    slice_seconds: float = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorConfig:
    """One Collecting Process.

    Attributes:
        reuse_port: others may listen at the address, too.
    """

    protocol: Literal["udp", "tcp", "tls"]
    address: Endpoint
    reuse_port: bool = False
    limits: CollectorLimits = field(default_factory=CollectorLimits)
