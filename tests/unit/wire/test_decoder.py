"""Messages, Data Records and sequence numbers."""

from __future__ import annotations

import pytest
from decoder_examples import NAMES, OPTIONS, OTHER_ID, PORTS, data, defined, error
from wire_builders import TCP, UDP, kinds, message, raw_set, receive, records

from flowjoin._model.reasons import Reason
from flowjoin._model.transport_session import ObservationDomainId
from flowjoin.wire import (
    DataSetReceived,
    Decoder,
    DecoderLimits,
    Event,
    MalformedMessage,
    MessageHeader,
    MessageReceived,
    RecordsDropped,
    SequenceGap,
    UndecodableSet,
    default_registry,
    encode_data_set,
    encode_template_set,
)


def test_the_first_event_says_that_a_message_came(decoder: Decoder) -> None:
    [event] = decoder.receive_message(message(sequence=7, domain=3, export_time=5), UDP, 0.0)
    header = MessageHeader(
        version=10, length=16, export_time=5, sequence_number=7, observation_domain_id=ObservationDomainId(3)
    )
    assert event == MessageReceived(UDP, header)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_buffer_may_be_reused(decoder: Decoder, kind: type) -> None:
    buffer = bytearray(message(defined(NAMES), encode_data_set(NAMES, [("eth0", 6)])))
    events = decoder.receive_message(kind(buffer), UDP, 0.0)
    buffer[:] = bytes(len(buffer))
    assert records(events) == [("eth0", 6)]


@pytest.mark.parametrize(
    ("octets", "reason", "offset"),
    [
        ("", Reason.MESSAGE_TOO_SHORT, 0),
        ("00", Reason.MESSAGE_TOO_SHORT, 1),
        ("000a0010", Reason.MESSAGE_TOO_SHORT, 4),
        ("000a0010" + "00" * 11, Reason.MESSAGE_TOO_SHORT, 15),
        ("0009001c", Reason.VERSION_UNSUPPORTED, 0),
        ("000a000f" + "00" * 12, Reason.MESSAGE_LENGTH_INVALID, 2),
        ("000a0000" + "00" * 12, Reason.MESSAGE_LENGTH_INVALID, 2),
    ],
)
def test_octets_without_a_header_are_one_malformed_message_and_no_session(
    decoder: Decoder, octets: str, reason: Reason, offset: int
) -> None:
    [event] = decoder.receive_message(bytes.fromhex(octets), UDP, 0.0)
    assert isinstance(event, MalformedMessage)
    assert error(event) == (reason, offset, ())
    assert decoder.statistics().sessions == 0


def test_octets_after_the_headers_length_are_ignored(decoder: Decoder) -> None:
    events = decoder.receive_message(message(defined(PORTS)) + b"\x01\x00\x00\x08trailing", UDP, 0.0)
    assert kinds(events) == ["MessageReceived", "TemplateReceived"]


@pytest.mark.parametrize(
    ("tail", "reason", "offset"),
    [
        ("00", Reason.SET_TOO_SHORT, 0),
        ("000000", Reason.SET_TOO_SHORT, 0),
        ("01000000", Reason.SET_TOO_SHORT, 2),
        ("01000003", Reason.SET_TOO_SHORT, 2),
        ("01000005", Reason.SET_TOO_LONG, 2),
        ("0100ffff0102", Reason.SET_TOO_LONG, 2),
    ],
)
def test_a_set_of_impossible_length_ends_the_message_and_what_came_before_counts(
    decoder: Decoder, tail: str, reason: Reason, offset: int
) -> None:
    events = receive(decoder, defined(PORTS), data((1, 2)), bytes.fromhex(tail))
    assert kinds(events) == ["TemplateReceived", "DataSetReceived", "MalformedMessage"]
    assert error(events[-1])[:2] == (reason, 16 + 16 + 8 + offset)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_message_cut_short_is_malformed_once_and_its_whole_sets_count(decoder: Decoder, cut: int) -> None:
    whole = message(defined(PORTS), data((1, 2)), data((3, 4), (5, 6)), encode_template_set([OTHER_ID]))
    events = decoder.receive_message(whole[:-cut], UDP, 0.0)
    assert kinds(events).count("MalformedMessage") == 1
    assert error(events[-1])[0] is Reason.MESSAGE_TOO_SHORT
    given = records(events)
    assert given == [(1, 2), (3, 4), (5, 6)][: len(given)]
    assert len(given) == (3 if cut <= 12 else 1 if cut <= 24 else 0)


def test_all_sets_of_a_message_are_read(decoder: Decoder) -> None:
    events = receive(decoder, defined(PORTS), raw_set(300, "0102"), data((1, 2)), raw_set(4, "00"), data((3, 4)))
    assert kinds(events) == [
        "TemplateReceived", "UndecodableSet", "DataSetReceived", "UndecodableSet", "DataSetReceived",
    ]  # fmt: skip
    assert records(events) == [(1, 2), (3, 4)]


@pytest.mark.parametrize("set_id", [0, 1, 4, 255])
def test_sets_with_a_reserved_id_are_skipped_by_their_length(decoder: Decoder, set_id: int) -> None:
    [undecodable, *rest] = receive(decoder, raw_set(set_id, "010203"), defined(PORTS), data((1, 2)))
    assert undecodable == UndecodableSet(set_id, Reason.SET_ID_RESERVED)
    assert records(rest) == [(1, 2)]


def test_empty_sets_are_no_fault(decoder: Decoder) -> None:
    events = receive(decoder, raw_set(2, ""), raw_set(3, ""), defined(PORTS), raw_set(256, ""), data((1, 2)))
    assert kinds(events) == ["TemplateReceived", "DataSetReceived", "DataSetReceived"]
    assert records(events) == [(1, 2)]


def test_a_data_set_is_given_with_its_header_and_template(decoder: Decoder) -> None:
    _, event = receive(decoder, defined(PORTS), data((1, 2), (3, 4)), sequence=9)
    assert isinstance(event, DataSetReceived)
    assert (event.header.sequence_number, event.template, list(event.records)) == (9, PORTS, [(1, 2), (3, 4)])
    assert not event.was_held


def test_options_records_are_told_by_their_template(decoder: Decoder) -> None:
    _, event = receive(decoder, defined(OPTIONS), encode_data_set(OPTIONS, [(1, 99)]))
    assert isinstance(event, DataSetReceived)
    assert event.template == OPTIONS
    assert event.template.scope_field_count == 1
    assert records([event]) == [(1, 99)]


def test_a_record_that_runs_past_its_set_drops_the_rest_of_that_set_only(decoder: Decoder) -> None:
    broken = raw_set(256, b"\x04eth0\x06" + b"\x09eth1\x06")
    events = receive(decoder, defined(NAMES), broken, encode_data_set(NAMES, [("eth2", 6)]))
    assert kinds(events) == ["TemplateReceived", "DataSetReceived", "RecordsDropped", "DataSetReceived"]
    assert records(events) == [("eth0", 6), ("eth2", 6)]
    dropped = events[2]
    assert isinstance(dropped, RecordsDropped)
    assert error(dropped) == (Reason.RECORD_TRUNCATED, 16 + 16 + 4 + 6, ("set 256",))
    assert dropped.template_id == 256


def lost(events: list[Event]) -> list[int]:
    return [event.lost for event in events if isinstance(event, SequenceGap)]


def test_the_sequence_is_followed_for_each_session_and_domain(decoder: Decoder) -> None:
    receive(decoder, defined(PORTS), data((1, 2), (3, 4)), sequence=0)
    receive(decoder, defined(PORTS), data((1, 2)), sequence=500, domain=2)
    receive(decoder, defined(PORTS), data((1, 2)), sequence=900, session=TCP)
    assert lost(receive(decoder, data((1, 2)), sequence=2)) == []
    assert lost(receive(decoder, data((1, 2)), sequence=502, domain=2)) == [1]
    gap = receive(decoder, data((1, 2)), sequence=911, session=TCP)[-1]
    assert gap == SequenceGap(ObservationDomainId(1), 10)


def test_options_records_count_in_the_sequence(decoder: Decoder) -> None:
    receive(decoder, defined(OPTIONS), encode_data_set(OPTIONS, [(1, 1), (1, 2)]), sequence=0)
    assert lost(receive(decoder, sequence=2)) == []
    assert lost(receive(decoder, sequence=3)) == [1]


@pytest.mark.parametrize("octets", [raw_set(300, "0102"), bytes.fromhex("0100ffff"), raw_set(256, "0961")])
def test_records_that_cannot_be_counted_are_not_taken_for_a_loss(decoder: Decoder, octets: bytes) -> None:
    receive(decoder, defined(NAMES), octets, sequence=0)
    assert lost(receive(decoder, sequence=7)) == []
    assert lost(receive(decoder, sequence=8)) == [1]


def test_a_gap_before_a_malformed_message_is_counted(decoder: Decoder) -> None:
    receive(decoder, sequence=0)
    assert kinds(receive(decoder, b"\x00", sequence=4)) == ["MalformedMessage", "SequenceGap"]


def test_domains_are_bounded_and_the_quietest_is_forgotten() -> None:
    decoder = Decoder(default_registry(), limits=DecoderLimits(domains_per_session=2, domains=3))
    for domain in (1, 2, 1, 3):  # 2 is forgotten
        receive(decoder, domain=domain, sequence=0)
    assert lost(receive(decoder, domain=1, sequence=5)) == [5]
    assert lost(receive(decoder, domain=2, sequence=5)) == []
    receive(decoder, domain=1, session=TCP, sequence=0)
    receive(decoder, domain=2, session=TCP, sequence=0)  # over the bound of all: not followed
    assert lost(receive(decoder, domain=2, session=TCP, sequence=5)) == []
    assert lost(receive(decoder, domain=1, session=TCP, sequence=5)) == [5]
    decoder.close_session(UDP)
    receive(decoder, domain=2, session=TCP, sequence=0)
    assert lost(receive(decoder, domain=2, session=TCP, sequence=5)) == [5]
