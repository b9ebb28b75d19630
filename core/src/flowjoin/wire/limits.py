"""What peers may make the decoder hold."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DecoderLimits", "DecoderStatistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLimits:
    """Bounds, each with the reason for its size.

    Attributes:
        sessions: with state; any UDP source address makes one, so forged ones are bounded here.
        domains_per_session: whose sequence is followed; beyond it the one quiet longest is forgotten.
        domains: the same over all sessions; beyond it no new one is followed.
        templates_per_session: over all observation domains; a chassis has a few per line card.
        fields_per_template: the largest Templates in use have about 100.
        fields: of all Templates of all sessions (a Template counts as 8 more).
        held_octets_per_session: early data waiting for its Template: a second or more of full-rate traffic.
        held_octets: the same over all sessions.
        held_seconds: exporters send Templates again every minute to half an hour; older data is stale.
        template_lifetime: seconds a Template lives over UDP unless sent again (RFC 7011 section 8.4 wants
            three times the exporter's refresh at least).
        idle_timeout: seconds without a Message after which a UDP session is forgotten.
    """

    sessions: int = 16_384
    domains_per_session: int = 1_024
    domains: int = 65_536
    templates_per_session: int = 4_096
    fields_per_template: int = 1_024
    fields: int = 1_048_576
    held_octets_per_session: int = 256 * 1024
    held_octets: int = 16 * 1024 * 1024
    held_seconds: float = 60.0
    template_lifetime: float = 1_800.0
    idle_timeout: float = 1_800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderStatistics:
    """What the decoder holds now, and what no event tells.

    Attributes:
        templates_remembered: of the Templates, those of an earlier run that were not sent again yet.
        held_sets: Data Sets waiting for their Template.
        held_octets: their size.
        held_sets_expired: held until too old, or until their session ended; never decoded.
        templates_expired: over UDP, not sent again in time.
    """

    sessions: int = 0
    templates: int = 0
    templates_remembered: int = 0
    held_sets: int = 0
    held_octets: int = 0
    held_sets_expired: int = 0
    templates_expired: int = 0
