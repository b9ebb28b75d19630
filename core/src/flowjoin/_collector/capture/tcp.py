"""TCP segments to byte streams (RFC 9293), one for each direction.

Strategy: a stream begins at its SYN or, when the capture began later, at the first segment that looks like the
beginning of a Message. Sequence numbers are unrolled to positions that only grow; what is behind the position is a
retransmission, what is before it waits, bounded. A gap that never fills ends the stream.
Invariant: the segments of a stream in any order, repeated or overlapping, give the same octets.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from flowjoin._collector.capture.message_start import begins_message
from flowjoin._collector.capture.span_buffer import SpanBuffer

__all__ = ["StreamData", "StreamEnded", "StreamEvent", "StreamName", "TcpStreams"]

_HEADER: Final = struct.Struct(">HHI4xBB")
_MIN_HEADER_OCTETS: Final = 20
_FIN: Final = 0x01
_SYN: Final = 0x02
_RST: Final = 0x04
_SEQUENCE_SPACE: Final = 1 << 32


class StreamName(NamedTuple):
    """One direction of one connection.

    Attributes:
        serial: tells connections with equal endpoints apart; from 1, in the order of the capture.
    """

    source: bytes
    source_port: int
    destination: bytes
    destination_port: int
    serial: int


class StreamData(NamedTuple):
    """The next octets of a stream."""

    name: StreamName
    octets: memoryview


class StreamEnded(NamedTuple):
    """Nothing more will come of a stream that has given octets.

    Attributes:
        has_gap: octets are missing that never came; those behind them were dropped.
    """

    name: StreamName
    has_gap: bool


StreamEvent: TypeAlias = StreamData | StreamEnded


@dataclass(slots=True)
class _Stream:
    name: StreamName
    position: int  # of the next octet to give; sequence number modulo 2**32
    first_position: int
    end_position: int | None = None  # where the FIN stands
    is_closed: bool = False  # ended, abandoned or not ours: what still comes is not looked at
    pending: SpanBuffer = field(default_factory=SpanBuffer)


class TcpStreams:
    """All streams of a capture.

    Attributes:
        other: streams that do not begin like a Message.
        gaps: streams that ended because of octets that never came.
        evicted: streams forgotten because there were too many.
    """

    def __init__(
        self,
        *,
        max_streams: int = 65_536,
        max_pending_octets: int = 1024 * 1024,
        max_pending_segments: int = 4096,
        max_pending_octets_in_all: int = 64 * 1024 * 1024,
    ) -> None:
        self.other = 0
        self.gaps = 0
        self.evicted = 0
        self._max_streams = max_streams
        self._max_pending_octets = max_pending_octets
        self._max_pending_segments = max_pending_segments
        self._max_pending_octets_in_all = max_pending_octets_in_all
        self._pending_octets = 0
        self._serial = 0
        self._streams: OrderedDict[tuple[bytes, int, bytes, int], _Stream] = OrderedDict()

    def receive(self, source: bytes, destination: bytes, segment: memoryview) -> list[StreamEvent]:
        """Take one segment; gives what it completes, in order."""
        if len(segment) < _MIN_HEADER_OCTETS:
            return []
        source_port, destination_port, sequence, offset, flags = _HEADER.unpack_from(segment)
        header_length = (offset >> 4) * 4
        if header_length < _MIN_HEADER_OCTETS or header_length > len(segment):
            return []
        octets = segment[header_length:]
        key = (source, source_port, destination, destination_port)
        events: list[StreamEvent] = []
        stream = self._streams.get(key)
        if flags & _SYN:
            sequence = (sequence + 1) % _SEQUENCE_SPACE
            if stream is None or (stream.first_position - sequence) % _SEQUENCE_SPACE:
                if stream is not None:
                    self._end(stream, events)
                stream = self._begin(key, sequence, events)
        elif stream is None:
            if not octets or not begins_message(octets):
                return []
            stream = self._begin(key, sequence, events)
        self._streams.move_to_end(key)
        if stream.is_closed:
            return events
        if flags & _RST:
            self._end(stream, events)
            return events
        at = stream.position + _distance(stream.position, sequence)
        if flags & _FIN:
            stream.end_position = at + len(octets)
        if octets:
            self._take(stream, at, octets, events)
        if stream.position == stream.end_position:
            self._end(stream, events)
        return events

    def abandon(self, name: StreamName) -> None:
        """Look at nothing more of a stream: what it gave was no Message."""
        stream = self._streams.get(name[:4])
        if stream is not None and stream.name == name:
            self._close(stream)

    def end_all(self) -> list[StreamEvent]:
        """The capture has ended."""
        events: list[StreamEvent] = []
        for stream in self._streams.values():
            self._end(stream, events)
        self._streams.clear()
        return events

    def _begin(self, key: tuple[bytes, int, bytes, int], sequence: int, events: list[StreamEvent]) -> _Stream:
        self._serial += 1
        stream = _Stream(StreamName(*key, self._serial), sequence, sequence)
        self._streams[key] = stream
        if len(self._streams) > self._max_streams:
            _, oldest = self._streams.popitem(last=False)
            if not oldest.is_closed:
                self.evicted += 1
            self._end(oldest, events)
        return stream

    def _take(self, stream: _Stream, at: int, octets: memoryview, events: list[StreamEvent]) -> None:
        if at > stream.position:
            self._hold(stream, at, octets, events)
            return
        self._give(stream, at, octets, events)
        while not stream.is_closed and (held := stream.pending.take(stream.position)) is not None:
            at, span = held
            self._pending_octets -= len(span)
            self._give(stream, at, memoryview(span), events)

    def _give(self, stream: _Stream, at: int, octets: memoryview, events: list[StreamEvent]) -> None:
        octets = octets[stream.position - at :]
        if not octets:
            return
        if stream.position == stream.first_position and not begins_message(octets):
            self.other += 1
            self._close(stream)
            return
        stream.position += len(octets)
        events.append(StreamData(stream.name, octets))

    def _hold(self, stream: _Stream, at: int, octets: memoryview, events: list[StreamEvent]) -> None:
        self._pending_octets -= stream.pending.octets
        stream.pending.add(at, octets)
        self._pending_octets += stream.pending.octets
        if (
            stream.pending.octets > self._max_pending_octets
            or len(stream.pending) > self._max_pending_segments
            or self._pending_octets > self._max_pending_octets_in_all
        ):
            self._end(stream, events)

    def _end(self, stream: _Stream, events: list[StreamEvent]) -> None:
        if stream.is_closed:
            return
        has_gap = bool(stream.pending)
        self.gaps += has_gap
        if stream.position != stream.first_position:
            events.append(StreamEnded(stream.name, has_gap))
        self._close(stream)

    def _close(self, stream: _Stream) -> None:
        self._pending_octets -= stream.pending.octets
        stream.pending.clear()
        stream.is_closed = True


def _distance(position: int, sequence: int) -> int:
    """How far a sequence number is before (positive) or behind a position, modulo 2**32 (RFC 9293 section 3.4)."""
    ahead = (sequence - position) % _SEQUENCE_SPACE
    return ahead - _SEQUENCE_SPACE if ahead >= _SEQUENCE_SPACE // 2 else ahead
