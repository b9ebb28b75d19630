from __future__ import annotations

import io

import pytest

from flowjoin._collector.capture.octet_source import OctetSource
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason


class Pipe:
    """Gives at most ``size`` octets at once."""

    def __init__(self, octets: bytes, size: int) -> None:
        self._file = io.BytesIO(octets)
        self._size = size

    def read(self, size: int, /) -> bytes:
        return self._file.read(min(size, self._size))


def test_a_pipe_that_gives_little_at_once_is_read_to_the_count() -> None:
    source = OctetSource(Pipe(b"abcdefgh", 3))
    assert (source.read(7), source.offset) == (b"abcdefg", 7)
    assert (source.read(7), source.offset) == (b"h", 8)


def test_the_end_within_an_exact_read_is_told_with_its_place() -> None:
    source = OctetSource(Pipe(b"abc", 2))
    with pytest.raises(DecodeError) as caught:
        source.read_exactly(4)
    assert (caught.value.reason, caught.value.offset) == (Reason.FILE_TRUNCATED, 3)


def test_skipping_passes_over_more_than_is_held_at_once() -> None:
    source = OctetSource(io.BytesIO(bytes(3_000_000) + b"x"))
    source.skip(3_000_000)
    assert source.read(2) == b"x"
