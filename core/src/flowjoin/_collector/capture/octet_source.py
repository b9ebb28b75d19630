"""A file read from front to back, never held whole: files of any size and pipes alike."""

from __future__ import annotations

from typing import Final, Protocol

from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason

__all__ = ["BinaryReader", "OctetSource"]

_SKIP_OCTETS: Final = 1 << 20


class BinaryReader(Protocol):
    """What is needed of a file: ``read``, which may give less than asked for and gives nothing at the end."""

    def read(self, size: int, /) -> bytes: ...


class OctetSource:
    """Exact reads over a file that may be a pipe, and where in it we are.

    Attributes:
        offset: octets taken so far.
    """

    def __init__(self, file: BinaryReader) -> None:
        self._file = file
        self.offset = 0

    def read(self, count: int) -> bytes:
        """``count`` octets, fewer only where the file ends."""
        octets = self._file.read(count)
        if len(octets) < count:
            # A pipe gives what it has; only an empty read is the end.
            pieces = [octets]
            missing = count - len(octets)
            while pieces[-1] and missing:
                pieces.append(self._file.read(missing))
                missing -= len(pieces[-1])
            octets = b"".join(pieces)
        self.offset += len(octets)
        return octets

    def read_exactly(self, count: int) -> bytes:
        """``count`` octets.

        Raises:
            DecodeError: FILE_TRUNCATED, at the octet where the file ends.
        """
        octets = self.read(count)
        if len(octets) < count:
            raise DecodeError(Reason.FILE_TRUNCATED, offset=self.offset)
        return octets

    def skip(self, count: int) -> None:
        """Pass over ``count`` octets without holding them.

        Raises:
            DecodeError: FILE_TRUNCATED, at the octet where the file ends.
        """
        while count:
            count -= len(self.read_exactly(min(count, _SKIP_OCTETS)))
