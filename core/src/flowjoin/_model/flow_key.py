"""Names of flows, and questions about them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FlowFilter", "FlowKey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowKey:
    """Identifies one flow in the table.

    The first five name an aggregated flow; ``original_exporter`` set makes it a plain flow's key.
    For a from-external flow the source is its SNAT address and port, where both halves meet.

    Attributes:
        source: canonical address text.
        destination: canonical address text.
        icmp_type_code: type * 256 + code; 0 for other protocols.
        original_exporter: address text of the original exporter.
    """

    source: str
    destination: str
    protocol_identifier: int
    source_port: int = 0
    destination_port: int = 0
    original_exporter: str | None = None
    observation_domain_id: int = 0
    ingress_interface: int = 0
    icmp_type_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFilter:
    """Which flows a scan gives: every part that is not None must equal the flow key's."""

    source: str | None = None
    destination: str | None = None
    protocol_identifier: int | None = None
    source_port: int | None = None
    destination_port: int | None = None
