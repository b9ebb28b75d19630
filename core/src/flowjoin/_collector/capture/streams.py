"""TCP segments to the Messages of each stream.

Invariant: however a stream was cut into segments, the same Messages come of it.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from flowjoin._collector.capture.tcp import StreamData, StreamEvent, StreamName, TcpStreams
from flowjoin._model.errors import DecodeError
from flowjoin.wire.framer import NEED_DATA, MessageFramer

__all__ = ["MessageEvent", "MessageStreams", "StreamMessage", "StreamOver"]


class StreamMessage(NamedTuple):
    """A whole Message of a stream."""

    name: StreamName
    message: memoryview


class StreamOver(NamedTuple):
    """A stream that began like a Message gives none any more.

    Attributes:
        error: why it could not be read further; None when it was closed, or octets were not captured.
    """

    name: StreamName
    error: DecodeError | None


MessageEvent: TypeAlias = StreamMessage | StreamOver


class MessageStreams:
    """All TCP streams of a capture.

    Attributes:
        cut: streams whose last Message stayed incomplete.
    """

    def __init__(self) -> None:
        self.cut = 0
        self._streams = TcpStreams()
        self._framers: dict[StreamName, MessageFramer] = {}

    @property
    def other(self) -> int:
        """Streams that do not begin like a Message."""
        return self._streams.other

    @property
    def gaps(self) -> int:
        """Streams that ended because of octets that never came."""
        return self._streams.gaps

    def receive(self, source: bytes, destination: bytes, segment: memoryview) -> list[MessageEvent]:
        """Take one segment; gives what it completes, in order."""
        return self._events_of(self._streams.receive(source, destination, segment))

    def end_all(self) -> list[MessageEvent]:
        """The capture has ended."""
        return self._events_of(self._streams.end_all())

    def _events_of(self, stream_events: list[StreamEvent]) -> list[MessageEvent]:
        events: list[MessageEvent] = []
        for event in stream_events:
            if isinstance(event, StreamData):
                framer = self._framers.setdefault(event.name, MessageFramer())
                framer.receive_data(event.octets)
                self._read_messages(event.name, framer, events)
            elif (closed := self._framers.pop(event.name, None)) is not None:
                self.cut += closed.buffered_octets > 0
                events.append(StreamOver(event.name, None))
        return events

    def _read_messages(self, name: StreamName, framer: MessageFramer, events: list[MessageEvent]) -> None:
        try:
            while (message := framer.next_message()) is not NEED_DATA:
                events.append(StreamMessage(name, message))
        except DecodeError as error:
            self._streams.abandon(name)
            del self._framers[name]
            events.append(StreamOver(name, error))
