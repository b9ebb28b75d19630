"""What the kernel does with each field of a Template's records: compiled once per Template."""

from __future__ import annotations

from dataclasses import dataclass

from flowjoin._model.flow_schema import FlowOrigin

__all__ = ["Move", "Plan"]


@dataclass(frozen=True, slots=True)
class Move:
    """One field goes to one element of the flow.

    Attributes:
        field_index: position in the Template (and so in each decoded record).
        element: name of the element it feeds, as the flow knows it.
    """

    field_index: int
    element: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the records of one Template enter the flow table; by element name, never by position.

    Attributes:
        origin: which kind of flow the records make; PLAIN and AGGREGATED are merged, PROXY passed on.
        has_ipv4: the Template carries both IPv4 addresses.
        has_ipv6: the Template carries both IPv6 addresses; with both families the record decides:
            the family whose addresses are not all zero, IPv4 if both are.
        moves: the fields that the flow takes, at most one per element (of a repeated element the first).
        dropped: names of the fields that the flow does not take, counted per record.
        extra: in Proxy mode, positions of fields that are kept beside the schema's columns.
    """

    origin: FlowOrigin
    has_ipv4: bool
    has_ipv6: bool
    moves: tuple[Move, ...]
    dropped: tuple[str, ...] = ()
    extra: tuple[int, ...] = ()
