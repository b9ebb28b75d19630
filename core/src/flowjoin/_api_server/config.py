"""What the HTTP server is made with."""

from __future__ import annotations

from dataclasses import dataclass

from flowjoin._config.endpoint import Endpoint

__all__ = ["ApiServerConfig", "ApiServerLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerLimits:
    """Bounds on what clients can make us hold.

    Attributes:
        connections: at once; more wait to be accepted.
        scans: replies of /flowrecords in progress at once; more are told to come again.
        request_octets: of a request's line and headers; less than twice as many may get through in one piece.
        idle_seconds: how long a connection may be without a whole request.
        send_seconds: how long a client may take to read one piece of a reply.
        connection_seconds: how long a connection may live, whatever it does.
    """

    connections: int = 64
    scans: int = 4
    request_octets: int = 16 * 1024
    idle_seconds: float = 10.0
    send_seconds: float = 20.0
    connection_seconds: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerConfig:
    """Where it listens, and within which bounds."""

    endpoint: Endpoint
    limits: ApiServerLimits = ApiServerLimits()
