"""Who really began a connection that came from outside the cluster.

What comes from outside to a Service is translated in the default zone: the destination to an endpoint's, and often the
source to this Node's. The Pods' zone sees the connection after that, and knows neither who asked nor for what. Both
entries have the translated ends in common.

Pure: told of entries of the default zone, asked about others. Each entry answers once, and for a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from flowjoin_conntrack._entry import Connection

__all__ = ["External", "ExternalCorrelator"]

_KEPT_SECONDS: Final = 60.0
_FORGET_EVERY: Final = 5.0
_MOST: Final = 65536

_Key: TypeAlias = tuple[int, int, bytes, int, bytes, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """What the default zone knows of a connection.

    Attributes:
        source: who asked, outside the cluster; 16 octets.
        asked: the Service's, Node's or external address that was asked for.
        seen_source: as whom the endpoint sees the one who asked; the same where the source was not translated.
    """

    source: bytes
    source_port: int
    asked: bytes
    asked_port: int
    seen_source: bytes
    seen_source_port: int

    def applied(self, connection: Connection) -> Connection:
        """The connection of the Pods' zone, with the ends that it had from the beginning."""
        return replace(
            connection,
            source=self.source,
            source_port=self.source_port,
            original_destination=self.asked,
            original_destination_port=self.asked_port,
            reply_destination=self.seen_source,
            reply_destination_port=self.seen_source_port,
        )


class ExternalCorrelator:
    """Entries of the default zone that wait for those of the Pods' zone."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, tuple[float, External]] = {}  # oldest first
        self._now = 0.0
        self._forget_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def tick(self, now: float) -> None:
        """What follows happens then, in monotonic seconds."""
        self._now = now
        if now < self._forget_at:
            return
        self._forget_at = now + _FORGET_EVERY
        while self._waiting:
            key = next(iter(self._waiting))
            if now - self._waiting[key][0] <= _KEPT_SECONDS:
                break
            del self._waiting[key]

    def remember(self, connection: Connection) -> None:
        """An entry of the default zone; of too many the oldest is forgotten."""
        key = _key(connection, connection.reply_destination, connection.reply_destination_port)
        self._waiting.pop(key, None)
        if len(self._waiting) >= _MOST:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[key] = (
            self._now,
            External(
                source=connection.source,
                source_port=connection.source_port,
                asked=connection.original_destination,
                asked_port=connection.original_destination_port,
                seen_source=connection.reply_destination,
                seen_source_port=connection.reply_destination_port,
            ),
        )

    def match(self, connection: Connection) -> External | None:
        """What the default zone knows of an entry of the Pods' zone; it is told once."""
        # Where the Pods' zone translates the source too, it is the translated address that both have.
        key = _key(connection, connection.reply_destination, connection.source_port)
        found = self._waiting.pop(key, None)
        return None if found is None else found[1]


def _key(connection: Connection, source: bytes, source_port: int) -> _Key:
    return (
        connection.family,
        connection.protocol,
        source,
        source_port,
        connection.destination,
        connection.destination_port,
    )
