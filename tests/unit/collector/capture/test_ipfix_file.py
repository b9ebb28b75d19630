from __future__ import annotations

import io

import pytest
from capture_writer import message

from flowjoin._collector.capture.ipfix_file import read_ipfix_file
from flowjoin._collector.capture.octet_source import OctetSource
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason

FIRST, SECOND = message(b"1234", export_time=100), message(b"", export_time=200)


def read(file: bytes) -> list[tuple[int, bytes]]:
    source = OctetSource(io.BytesIO(file))
    return [(time, bytes(octets)) for time, octets in read_ipfix_file(source.read(4), source)]


def test_a_file_is_messages_one_behind_the_other() -> None:
    assert read(FIRST + SECOND) == [(100, FIRST), (200, SECOND)]


def test_a_file_cut_anywhere_gives_the_whole_messages_before_the_cut() -> None:
    file = FIRST + SECOND
    for cut in range(1, len(file)):
        if cut == len(FIRST):
            continue
        source = OctetSource(io.BytesIO(file[:cut]))
        found: list[tuple[int, memoryview]] = []
        with pytest.raises(DecodeError) as caught:
            found.extend(read_ipfix_file(source.read(4), source))
        assert (caught.value.reason, caught.value.offset) == (Reason.FILE_TRUNCATED, cut)
        assert len(found) == (cut > len(FIRST))


def test_what_is_no_message_ends_the_reading() -> None:
    with pytest.raises(DecodeError) as caught:
        read(FIRST + b"\x00\x09\x00\x10" + bytes(12))
    assert (caught.value.reason, caught.value.offset) == (Reason.STREAM_DESYNCHRONISED, len(FIRST))


def test_a_length_below_that_of_a_header_ends_the_reading() -> None:
    with pytest.raises(DecodeError) as caught:
        read(FIRST + b"\x00\x0a\x00\x0f" + bytes(12))
    assert (caught.value.reason, caught.value.offset) == (Reason.MESSAGE_LENGTH_INVALID, len(FIRST))
