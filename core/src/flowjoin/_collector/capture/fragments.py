"""IP fragments to packets (RFC 791 section 3.2, RFC 8200 section 4.5).

Strategy: pieces wait under (addresses, protocol, identification) until they cover the packet from its first octet
to the end that the last fragment gave; where two overlap, the first to come counts. What waits is bounded
in number, octets and capture time.
Invariant: the fragments of a packet in any order, repeated or not, give that packet once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from flowjoin._collector.capture.ip import IpPacket, without_extension_headers
from flowjoin._collector.capture.span_buffer import SpanBuffer

__all__ = ["FragmentTable"]

_MAX_PACKET_OCTETS: Final = 65_535
_MAX_PIECES: Final = 8192  # of one packet: 65,535 octets in pieces of 8
_IPV4_OCTETS: Final = 4


@dataclass(slots=True)
class _Incomplete:
    first_time: float
    protocol: int = -1
    length: int | None = None
    pieces: SpanBuffer = field(default_factory=SpanBuffer)


class FragmentTable:
    """Packets of which some fragments have come.

    Attributes:
        given_up: packets that stayed incomplete: too old, too many, or wrong in themselves.
    """

    def __init__(
        self, *, timeout_seconds: float = 30.0, max_packets: int = 1024, max_octets: int = 16 * 1024 * 1024
    ) -> None:
        self.given_up = 0
        self._timeout_seconds = timeout_seconds
        self._max_packets = max_packets
        self._max_octets = max_octets
        self._octets = 0
        # In order of first arrival, so that the oldest is in front.
        self._waiting: dict[tuple[bytes, bytes, int, int], _Incomplete] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def receive(self, now: float, packet: IpPacket) -> IpPacket | None:
        """Take a fragment; gives the whole packet when this was the last piece missing."""
        fragment = packet.fragment
        assert fragment is not None, "whole packets need no table"
        self._expire(now)
        # RFC 791: the protocol is part of an IPv4 packet's name; RFC 8200: it is not part of an IPv6 packet's.
        protocol = packet.protocol if len(packet.source) == _IPV4_OCTETS else -1
        key = (packet.source, packet.destination, protocol, fragment.identification)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = _Incomplete(first_time=now)
        end = fragment.offset + len(packet.payload)
        if end > _MAX_PACKET_OCTETS or len(waiting.pieces) >= _MAX_PIECES:
            self._give_up(key)
            return None
        if fragment.offset == 0:
            waiting.protocol = packet.protocol
        if fragment.is_last:
            waiting.length = end
        self._octets -= waiting.pieces.octets
        waiting.pieces.add(fragment.offset, packet.payload)
        self._octets += waiting.pieces.octets
        if waiting.length is None or waiting.pieces.octets < waiting.length:
            self._make_room()
            return None
        del self._waiting[key]
        self._octets -= waiting.pieces.octets
        payload = _joined(waiting.pieces)[: waiting.length]
        if len(payload) < waiting.length:  # a hole, and as many octets behind the end that the last fragment gave
            self.given_up += 1
            return None
        whole_protocol = waiting.protocol
        if len(packet.source) != _IPV4_OCTETS:
            whole_protocol, payload = without_extension_headers(whole_protocol, payload)
        return IpPacket(packet.source, packet.destination, whole_protocol, payload)

    def give_up_all(self) -> None:
        """The capture has ended: what is incomplete stays so."""
        self.given_up += len(self._waiting)
        self._waiting.clear()
        self._octets = 0

    def _expire(self, now: float) -> None:
        while self._waiting:
            key, oldest = next(iter(self._waiting.items()))
            if now - oldest.first_time <= self._timeout_seconds:
                return
            self._give_up(key)

    def _make_room(self) -> None:
        while len(self._waiting) > self._max_packets or self._octets > self._max_octets:
            self._give_up(next(iter(self._waiting)))

    def _give_up(self, key: tuple[bytes, bytes, int, int]) -> None:
        self._octets -= self._waiting.pop(key).pieces.octets
        self.given_up += 1


def _joined(pieces: SpanBuffer) -> memoryview:
    whole = bytearray()
    while (span := pieces.take(len(whole))) is not None:
        whole += span[1]
    return memoryview(bytes(whole))
