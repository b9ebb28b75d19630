"""A byte stream to whole Messages: TCP, TLS and IPFIX Files.

Strategy: one buffer; each Message is copied out once, so that it may be kept. What has been given is
cut off when more comes in.

Invariant: a stream cut anywhere gives the same Messages; the buffer never grows beyond one
Message and what was received since ``next_message`` said NEED_DATA.
"""

from __future__ import annotations

import enum
from typing import Final

from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason

__all__ = ["NEED_DATA", "MessageFramer", "NeedData"]


class NeedData(enum.Enum):
    """The type of NEED_DATA."""

    NEED_DATA = "need_data"


NEED_DATA: Final = NeedData.NEED_DATA
"""The stream has no whole Message yet: normal, not an error."""

_VERSION: Final = 10
_HEADER_LENGTH: Final = 16


class MessageFramer:
    """Finds the Messages of one stream."""

    __slots__ = ("_buffer", "_given", "_start")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0  # of the next Message in the buffer
        self._given = 0  # octets of the stream before the buffer

    @property
    def buffered_octets(self) -> int:
        """Octets received and not given: not zero at the stream's end means that it was cut short."""
        return len(self._buffer) - self._start

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Take the stream's next octets; then call ``next_message`` until it says NEED_DATA."""
        if self._start:
            del self._buffer[: self._start]
            self._given += self._start
            self._start = 0
        self._buffer += data

    def next_message(self) -> memoryview | NeedData:
        """The next whole Message, read-only and the caller's to keep.

        Raises:
            DecodeError: STREAM_DESYNCHRONISED: there is no Message where one must begin, and no way to
                find the next; each further call says so too. The session must be closed.
        """
        buffer, start = self._buffer, self._start
        available = len(buffer) - start
        if available >= 2 and int.from_bytes(buffer[start : start + 2], "big") != _VERSION:
            raise DecodeError(Reason.STREAM_DESYNCHRONISED, offset=self._given + start)
        if available < 4:
            return NEED_DATA
        length = int.from_bytes(buffer[start + 2 : start + 4], "big")
        if length < _HEADER_LENGTH:
            raise DecodeError(Reason.STREAM_DESYNCHRONISED, offset=self._given + start + 2)
        if available < length:
            return NEED_DATA
        self._start = start + length
        return memoryview(bytes(buffer[start : self._start]))
