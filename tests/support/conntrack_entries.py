"""Connections as tests need them."""

from __future__ import annotations

import ipaddress
from typing import Any

from flowjoin_conntrack._entry import Connection

ESTABLISHED, TIME_WAIT, CLOSE = 3, 7, 8


def packed(text: str) -> bytes:
    return ipaddress.ip_address(text).packed.rjust(16, b"\0")


def connection(
    source: str = "10.10.0.2", destination: str = "10.10.0.3", original: str | None = None, **changed: Any
) -> Connection:
    """A TCP connection; without destination NAT unless the original destination differs."""
    facts: dict[str, Any] = {
        "family": ipaddress.ip_address(source).version,
        "protocol": 6,
        "source": packed(source),
        "destination": packed(destination),
        "source_port": 60001,
        "destination_port": 80,
        "original_destination": packed(original or destination),
        "original_destination_port": 80,
        "reply_destination": packed(source),
        "reply_destination_port": 60001,
        "start": 1_000_000_000_000_000_000,
        "tcp_state": ESTABLISHED,
        "connection_id": 7,
    }
    return Connection(**{**facts, **changed})
