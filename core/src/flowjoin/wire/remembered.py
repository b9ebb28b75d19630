"""Templates that outlive the process: what a UDP exporter said of its data, until it says so again.

Over UDP an exporter sends its Templates every few minutes. A collector that starts anew would have to hold or drop all
data until then (RFC 7011 section 8.4).
"""

from __future__ import annotations

from dataclasses import dataclass

from flowjoin._model.transport_session import TransportSession

__all__ = ["RememberedTemplate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedTemplate:
    """A Template of a UDP session.

    Attributes:
        version: of the protocol.
        is_options: it is an Options Template.
        record: the Template Record, as it stands in a Message.
        age: seconds since the exporter sent it last.
    """

    session: TransportSession
    observation_domain_id: int
    version: int
    is_options: bool
    record: bytes
    age: float
