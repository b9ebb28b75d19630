"""What the HTTP server is made with."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowjoin._api_server.access import AccessConfig
from flowjoin._certificates.files import TlsSource
from flowjoin._config.endpoint import Endpoint

__all__ = ["ApiServerConfig", "ApiServerLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerLimits:
    """Bounds on what clients can make us hold.

    Attributes:
        connections: at once; more wait to be accepted.
        scans: replies of /flowrecords in progress at once; more are told to come again.
        streams: replies of /flowstream in progress at once; more are told to come again.
        stream_seconds: how long one goes on; its client asks again.
        heartbeat_seconds: a stream without flows says so often that it lives.
        request_octets: of a request's line and headers; less than twice as many may get through in one piece.
        idle_seconds: how long a connection may be without a whole request.
        send_seconds: how long a client may take to read one piece of a reply.
        connection_seconds: how long a connection may live, whatever it does.
    """

    connections: int = 64
    scans: int = 4
    streams: int = 8
    stream_seconds: float = 840.0
    heartbeat_seconds: float = 15.0
    request_octets: int = 16 * 1024
    idle_seconds: float = 10.0
    send_seconds: float = 20.0
    connection_seconds: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerConfig:
    """Where it listens, who may read, and within which bounds.

    Attributes:
        tls: of its connections; None without.
    """

    endpoint: Endpoint
    access: AccessConfig = field(default_factory=AccessConfig)
    tls: TlsSource | None = None
    limits: ApiServerLimits = ApiServerLimits()
