from __future__ import annotations

import pytest

from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason
from flowjoin.wire import NEED_DATA, MessageFramer

ONE = bytes.fromhex("000a0014") + bytes(16)
TWO = bytes.fromhex("000a0010") + bytes(12)


def test_whole_messages_come_in_order() -> None:
    framer = MessageFramer()
    framer.receive_data(ONE + TWO)
    assert [framer.next_message(), framer.next_message(), framer.next_message()] == [ONE, TWO, NEED_DATA]


@pytest.mark.parametrize("cut", range(1, len(ONE + TWO)))
def test_a_stream_cut_anywhere_gives_the_same_messages(cut: int) -> None:
    framer, stream, messages = MessageFramer(), ONE + TWO, []
    for part in (stream[:cut], stream[cut:]):
        framer.receive_data(part)
        while (message := framer.next_message()) is not NEED_DATA:
            messages.append(bytes(message))
    assert messages == [ONE, TWO]
    assert framer.buffered_octets == 0


def test_a_message_is_the_callers_to_keep() -> None:
    framer = MessageFramer()
    framer.receive_data(ONE + TWO)
    first = framer.next_message()
    framer.receive_data(b"\x00" * 100)
    assert first == ONE
    assert isinstance(first, memoryview)
    assert first.readonly


def test_what_is_left_at_the_end_of_a_stream_can_be_seen() -> None:
    framer = MessageFramer()
    framer.receive_data(ONE + TWO[:7])
    assert framer.next_message() == ONE
    assert framer.next_message() is NEED_DATA
    assert framer.buffered_octets == 7


@pytest.mark.parametrize(
    ("octets", "offset"),
    [
        (b"GET / HTTP", 0),
        (b"\x00\x09\x00\x10", 0),
        (b"GE", 0),
        (bytes.fromhex("000a0000"), 2),
        (bytes.fromhex("000a000f"), 2),
    ],
)
def test_a_stream_without_a_message_where_one_must_begin_is_refused_for_good(octets: bytes, offset: int) -> None:
    framer = MessageFramer()
    framer.receive_data(ONE)
    assert framer.next_message() == ONE
    framer.receive_data(octets)
    for _ in range(2):
        with pytest.raises(DecodeError) as refused:
            framer.next_message()
        assert refused.value.reason is Reason.STREAM_DESYNCHRONISED
        assert refused.value.offset == len(ONE) + offset
        framer.receive_data(ONE)


def test_a_large_message_in_single_octets_is_not_copied_again_and_again() -> None:
    message = bytes.fromhex("000affff") + bytes(65_531)
    framer = MessageFramer()
    for at in range(len(message) - 1):
        framer.receive_data(message[at : at + 1])
        assert framer.next_message() is NEED_DATA
    framer.receive_data(message[-1:])
    assert framer.next_message() == message
