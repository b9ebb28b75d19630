"""A byte stream to whole Messages: TCP, TLS and IPFIX Files.

Strategy: a Message that came in one piece is given as a view of that piece, without a copy; one that came in
several is put together once.

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
_LENGTH_END: Final = 4  # of version and length, which come first


class MessageFramer:
    """Finds the Messages of one stream."""

    __slots__ = ("_begun", "_data", "_offset", "_start")

    def __init__(self) -> None:
        self._begun = bytearray()  # the first octets of a Message that goes on in what comes next
        self._data = memoryview(b"")
        self._start = 0  # of what was not looked at yet in it
        self._offset = 0  # of the next Message in the stream

    @property
    def buffered_octets(self) -> int:
        """Octets received and not given: not zero at the stream's end means that it was cut short."""
        return len(self._begun) + len(self._data) - self._start

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Take the stream's next octets; then call ``next_message`` until it says NEED_DATA."""
        octets = bytes(data)  # which copies nothing of ``bytes``
        if self._start < len(self._data):
            octets = bytes(self._data[self._start :]) + octets
        self._data = memoryview(octets)
        self._start = 0

    def next_message(self) -> memoryview | NeedData:
        """The next whole Message, read-only and the caller's to keep.

        Raises:
            DecodeError: STREAM_DESYNCHRONISED: there is no Message where one must begin, and no way to
                find the next; each further call says so too. The session must be closed.
        """
        if self._begun:
            return self._rest_of_message()
        data, start = self._data, self._start
        length = self._length(data[start : start + _LENGTH_END])
        if length is None or len(data) - start < length:
            self._begun += data[start:]
            self._start = len(data)
            return NEED_DATA
        self._start = start + length
        self._offset += length
        return data[start : self._start]

    def _rest_of_message(self) -> memoryview | NeedData:
        begun = self._begun
        self._take_up_to(_LENGTH_END)
        length = self._length(begun[:_LENGTH_END])
        if length is None:
            return NEED_DATA
        self._take_up_to(length)
        if len(begun) < length:
            return NEED_DATA
        self._begun = bytearray()
        self._offset += length
        return memoryview(begun).toreadonly()

    def _take_up_to(self, octets: int) -> None:
        """Let the Message that was begun have so many octets, if they are there."""
        wanted = octets - len(self._begun)
        if wanted > 0:
            piece = self._data[self._start : self._start + wanted]
            self._begun += piece
            self._start += len(piece)

    def _length(self, header: memoryview | bytearray) -> int | None:
        """The length in a header's first octets; None if they are not there yet."""
        if len(header) >= 2 and int.from_bytes(header[:2], "big") != _VERSION:
            raise DecodeError(Reason.STREAM_DESYNCHRONISED, offset=self._offset)
        if len(header) < _LENGTH_END:
            return None
        length = int.from_bytes(header[2:], "big")
        if length < _HEADER_LENGTH:
            raise DecodeError(Reason.STREAM_DESYNCHRONISED, offset=self._offset + 2)
        return length
