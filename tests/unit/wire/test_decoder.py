from __future__ import annotations

from dataclasses import replace

import pytest
from wire_builders import TCP, UDP, kinds, message, raw_set, receive, records, template

from flowjoin._model.reasons import Reason
from flowjoin._model.template import Template, TemplateId
from flowjoin._model.transport_session import ObservationDomainId, TransportSession
from flowjoin.wire import (
    DataSetReceived,
    Decoder,
    DecoderLimits,
    Event,
    MalformedMessage,
    MalformedTemplate,
    MessageHeader,
    MessageReceived,
    RecordsDropped,
    RememberedTemplate,
    SequenceGap,
    TemplateReceived,
    TemplateWithdrawn,
    UndecodableSet,
    default_registry,
    encode_data_set,
    encode_template_set,
    encode_withdrawal_set,
)

PORTS = template("sourceTransportPort", "destinationTransportPort")
NAMES = template("interfaceName", "protocolIdentifier")
OPTIONS = template("observationDomainId", "exportedMessageTotalCount", scope=1)
OTHER_ID = template("protocolIdentifier", template_id=257)


@pytest.fixture
def decoder() -> Decoder:
    return Decoder(default_registry())


def defined(*templates: Template) -> bytes:
    return encode_template_set(templates)


def data(*rows: tuple[int, int]) -> bytes:
    return encode_data_set(PORTS, rows)


def error(event: Event) -> tuple[Reason, int, tuple[str, ...]]:
    assert isinstance(event, MalformedMessage | MalformedTemplate | RecordsDropped)
    return event.error.reason, event.error.offset, event.error.path


# Messages


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


# Data Records


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


# Templates


def test_a_template_sent_again_is_a_refresh_and_another_one_is_not(decoder: Decoder) -> None:
    def events() -> list[Event]:
        return receive(decoder, defined(PORTS))

    assert events() == [TemplateReceived(PORTS, is_refresh=False)]
    assert events() == [TemplateReceived(PORTS, is_refresh=True)]
    assert receive(decoder, defined(NAMES)) == [TemplateReceived(NAMES, is_refresh=False)]
    assert events() == [TemplateReceived(PORTS, is_refresh=False)]


def test_sessions_that_send_the_same_template_share_it(decoder: Decoder) -> None:
    first, second = (receive(decoder, defined(PORTS), session=session)[0] for session in (UDP, TCP))
    assert isinstance(first, TemplateReceived)
    assert isinstance(second, TemplateReceived)
    assert first.template is second.template
    assert not second.is_refresh


def test_the_templates_remembered_for_sharing_are_bounded_and_those_in_force_stay(decoder: Decoder) -> None:
    receive(decoder, defined(PORTS))
    for template_id in range(300, 300 + 1100):
        receive(decoder, defined(template("protocolIdentifier", template_id=template_id)))
    assert receive(decoder, defined(PORTS)) == [TemplateReceived(PORTS, is_refresh=True)]
    assert records(receive(decoder, data((1, 2)))) == [(1, 2)]


@pytest.mark.parametrize(
    ("session", "domain"),
    [
        (UDP, 2),
        (TCP, 1),
        (TransportSession(protocol="udp", peer="192.0.2.1", peer_port=50002), 1),
        (TransportSession(protocol="udp", peer="192.0.2.2", peer_port=50001), 1),
    ],
)
def test_a_template_belongs_to_its_session_and_domain(decoder: Decoder, session: TransportSession, domain: int) -> None:
    receive(decoder, defined(PORTS))
    receive(decoder, defined(template("octetDeltaCount")), session=session, domain=domain)
    assert records(receive(decoder, data((1, 2)))) == [(1, 2)]
    assert records(receive(decoder, raw_set(256, bytes(7) + b"\x05"), session=session, domain=domain)) == [(5,)]


def test_a_template_too_large_to_be_remembered_for_sharing_is_refreshed_all_the_same(decoder: Decoder) -> None:
    large = template(*["sourcePodName"] * 200)
    assert receive(decoder, defined(large)) == [TemplateReceived(large, is_refresh=False)]
    assert receive(decoder, defined(large)) == [TemplateReceived(large, is_refresh=True)]


def test_a_redefinition_holds_from_where_it_stands(decoder: Decoder) -> None:
    octets = raw_set(256, "00010002")
    events = receive(decoder, defined(PORTS), octets, defined(template("ingressInterface")), octets)
    assert records(events) == [(1, 2), (0x10002,)]


def test_data_and_options_templates_share_their_ids(decoder: Decoder) -> None:
    receive(decoder, defined(PORTS))
    receive(decoder, defined(OPTIONS))
    [event] = receive(decoder, encode_data_set(OPTIONS, [(1, 2)]))
    assert isinstance(event, DataSetReceived)
    assert event.template.is_options
    assert decoder.statistics().templates == 1


@pytest.mark.parametrize("zeros", range(1, 13))
@pytest.mark.parametrize("kind", [PORTS, OPTIONS])
def test_zeros_at_the_end_of_a_template_set_are_padding(decoder: Decoder, kind: Template, zeros: int) -> None:
    octets = defined(kind)
    padded = octets[:2] + (len(octets) + zeros).to_bytes(2, "big") + octets[4:] + bytes(zeros)
    assert receive(decoder, padded) == [TemplateReceived(kind, is_refresh=False)]


@pytest.mark.parametrize(
    ("set_id", "body", "reason", "offset", "template_id"),
    [
        (2, "00ff000100040001", Reason.TEMPLATE_ID_RESERVED, 0, 255),
        (2, "0000000100040001", Reason.TEMPLATE_ID_RESERVED, 0, 0),
        (2, "00030000", Reason.TEMPLATE_ID_RESERVED, 0, 3),
        (3, "00020000", Reason.TEMPLATE_ID_RESERVED, 0, 2),
        (2, "0100000100040000", Reason.TEMPLATE_EMPTY, 0, 256),
        (2, "01000002000400000052000000", Reason.TEMPLATE_EMPTY, 0, 256),
        (2, "01000002000400010052", Reason.TEMPLATE_TRUNCATED, 0, 256),
        (2, "0100000200040001", Reason.TEMPLATE_TRUNCATED, 0, 256),
        (2, "0100000180040001dcba", Reason.TEMPLATE_TRUNCATED, 0, 256),
        (3, "01000001", Reason.TEMPLATE_TRUNCATED, 0, 256),
        (3, "0100000100", Reason.TEMPLATE_TRUNCATED, 0, 256),
        (3, "01000001000000040001", Reason.TEMPLATE_SCOPE_INVALID, 4, 256),
        (3, "01000001000200040001", Reason.TEMPLATE_SCOPE_INVALID, 4, 256),
        (2, "0100ffff00040001", Reason.TEMPLATE_TRUNCATED, 0, 256),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_and_the_earlier_one_is_gone(
    decoder: Decoder, set_id: int, body: str, reason: Reason, offset: int, template_id: int
) -> None:
    receive(decoder, defined(PORTS), session=TCP)
    [event] = receive(decoder, raw_set(set_id, body), session=TCP)
    assert isinstance(event, MalformedTemplate)
    assert error(event) == (reason, 20 + offset, (f"set {set_id}", f"template {template_id}"))
    assert event.template_id == template_id
    still_there = template_id != 256
    assert records(receive(decoder, data((1, 2)), session=TCP)) == ([(1, 2)] if still_there else [])


@pytest.mark.parametrize("refused", ["0100000100040000", "01000002000400000052" + "0000"])
def test_a_refused_template_whose_end_is_known_does_not_take_the_next_one_along(decoder: Decoder, refused: str) -> None:
    following = defined(OTHER_ID)[4:]
    events = receive(decoder, raw_set(2, bytes.fromhex(refused) + following))
    assert kinds(events) == ["MalformedTemplate", "TemplateReceived"]


def test_a_template_over_the_limit_of_fields_is_refused_and_the_next_one_read() -> None:
    decoder = Decoder(default_registry(), limits=DecoderLimits(fields_per_template=2))
    large = template("sourceTransportPort", "destinationTransportPort", "protocolIdentifier")
    events = receive(decoder, defined(large, OTHER_ID))
    assert kinds(events) == ["MalformedTemplate", "TemplateReceived"]
    assert error(events[0])[0] is Reason.TEMPLATE_TOO_LARGE


def test_a_template_set_cut_by_the_messages_end_still_ends_the_template_it_redefines(decoder: Decoder) -> None:
    """The earlier definition must not read the data of the later one."""
    receive(decoder, defined(PORTS))
    events = receive(decoder, defined(NAMES)[:-1])
    assert kinds(events) == ["MalformedTemplate", "MalformedMessage"]
    assert kinds(receive(decoder, data((1, 2)))) == ["UndecodableSet"]


def test_a_template_cut_before_its_field_count_leaves_the_earlier_one(decoder: Decoder) -> None:
    receive(decoder, defined(PORTS))
    assert kinds(receive(decoder, defined(NAMES)[:7])) == ["MalformedMessage"]
    assert records(receive(decoder, data((1, 2)))) == [(1, 2)]


def test_unknown_elements_are_octets_under_their_numbers(decoder: Decoder) -> None:
    # octetDeltaCount, 56506/999 in 4 octets, 999 in variable length, sourceNodeName
    body = "01000004" + "00010008" + "83e700040000dcba" + "03e7ffff" + "8068ffff0000dcba"
    received, event = receive(
        decoder, raw_set(2, body), raw_set(256, "0000000000000100" + "00001234" + "02abcd" + "066e6f64652d31")
    )
    assert isinstance(received, TemplateReceived)
    assert [field.element.name for field in received.template.fields] == [
        "octetDeltaCount", "56506/999", "0/999", "sourceNodeName",
    ]  # fmt: skip
    assert [field.is_known for field in received.template.fields] == [True, False, False, True]
    assert records([event]) == [(256, b"\x00\x00\x12\x34", b"\xab\xcd", "node-1")]


def test_strict_mode_refuses_templates_with_unknown_elements_and_reads_the_others() -> None:
    decoder = Decoder(default_registry(), mode="strict")
    receive(decoder, defined(PORTS))
    events = receive(decoder, raw_set(2, bytes.fromhex("01000002" + "00010008" + "03e70004") + defined(OTHER_ID)[4:]))
    assert kinds(events) == ["MalformedTemplate", "TemplateReceived"]
    assert error(events[0]) == (Reason.ELEMENT_UNKNOWN, 28, ("set 2", "template 256", "field 1"))
    assert kinds(receive(decoder, data((1, 2)))) == ["UndecodableSet"]


# Withdrawals


def test_a_withdrawal_ends_one_template(decoder: Decoder) -> None:
    receive(decoder, defined(PORTS, OTHER_ID), session=TCP)
    events = receive(decoder, encode_withdrawal_set([256]), data((1, 2)), raw_set(257, "06"), session=TCP)
    assert events[0] == TemplateWithdrawn(TemplateId(256), is_options=False)
    assert events[1] == UndecodableSet(256, Reason.TEMPLATE_UNKNOWN)
    assert records(events) == [(6,)]


def test_a_withdrawal_of_all_ends_one_kind_in_one_domain(decoder: Decoder) -> None:
    options = template("observationDomainId", template_id=300, scope=1)
    for domain in (1, 2):
        receive(decoder, defined(PORTS, OTHER_ID), defined(options), session=TCP, domain=domain)
    assert decoder.statistics().templates == 6
    assert receive(decoder, encode_withdrawal_set(None), session=TCP) == [TemplateWithdrawn(None, is_options=False)]
    assert decoder.statistics().templates == 4
    assert kinds(receive(decoder, raw_set(300, "00000001"), session=TCP)) == ["DataSetReceived"]
    receive(decoder, encode_withdrawal_set(None, is_options=True), session=TCP)
    assert decoder.statistics().templates == 3
    assert kinds(receive(decoder, raw_set(256, "00000001"), session=TCP, domain=2)) == ["DataSetReceived"]


def test_an_options_withdrawal_has_four_octets(decoder: Decoder) -> None:
    receive(decoder, defined(OPTIONS), session=TCP)
    following = defined(OPTIONS)[4:]
    events = receive(decoder, raw_set(3, bytes.fromhex("01000000") + following), session=TCP)
    assert events == [TemplateWithdrawn(TemplateId(256), is_options=True), TemplateReceived(OPTIONS, is_refresh=False)]


def test_withdrawing_what_is_not_there_is_no_fault(decoder: Decoder) -> None:
    assert (
        kinds(receive(decoder, encode_withdrawal_set([256, 999]), encode_withdrawal_set(None), session=TCP))
        == ["TemplateWithdrawn"] * 3
    )


@pytest.mark.parametrize("ids", [None, [256]])
def test_withdrawals_are_ignored_over_udp(decoder: Decoder, ids: list[int] | None) -> None:
    receive(decoder, defined(PORTS))
    events = receive(decoder, encode_withdrawal_set(ids), data((1, 2)))
    assert kinds(events) == ["DataSetReceived"]


# Early data


def test_data_before_its_template_waits_for_it(decoder: Decoder) -> None:
    early = message(data((1, 2), (3, 4)), export_time=111)
    events = decoder.receive_message(early, UDP, 0.0)
    assert events[1:] == [UndecodableSet(256, Reason.TEMPLATE_UNKNOWN, is_held=True)]
    assert decoder.statistics().held_sets == 1
    received, released, now = receive(decoder, defined(PORTS), data((5, 6)))
    assert isinstance(received, TemplateReceived)
    assert isinstance(released, DataSetReceived)
    assert isinstance(now, DataSetReceived)
    assert (released.was_held, released.header.export_time, list(released.records)) == (True, 111, [(1, 2), (3, 4)])
    assert not now.was_held
    assert (decoder.statistics().held_sets, decoder.statistics().held_octets) == (0, 0)


def test_early_data_in_the_same_message_waits_too(decoder: Decoder) -> None:
    events = receive(decoder, data((1, 2)), data((3, 4)), defined(PORTS), data((5, 6)))
    assert kinds(events) == ["UndecodableSet"] * 2 + ["TemplateReceived"] + ["DataSetReceived"] * 3
    assert records(events) == [(1, 2), (3, 4), (5, 6)]


def test_early_data_waits_for_the_template_of_its_own_domain_and_id(decoder: Decoder) -> None:
    receive(decoder, data((1, 2)))
    assert kinds(receive(decoder, defined(PORTS), domain=2)) == ["TemplateReceived"]
    assert kinds(receive(decoder, defined(OTHER_ID))) == ["TemplateReceived"]
    assert records(receive(decoder, defined(PORTS))) == [(1, 2)]


def test_faults_in_early_data_are_told_at_their_place_in_their_own_message(decoder: Decoder) -> None:
    receive(decoder, raw_set(300, "00"), raw_set(256, b"\x01a\x06\x09a"))
    _, released, dropped = receive(decoder, defined(NAMES))
    assert records([released]) == [("a", 6)]
    assert error(dropped) == (Reason.RECORD_TRUNCATED, 16 + 5 + 4 + 3, ("set 256",))


def test_over_ordered_transports_a_missing_template_is_final(decoder: Decoder) -> None:
    assert receive(decoder, data((1, 2)), session=TCP) == [UndecodableSet(256, Reason.TEMPLATE_UNKNOWN)]
    assert kinds(receive(decoder, defined(PORTS), session=TCP)) == ["TemplateReceived"]


def test_early_data_is_bounded_and_what_came_first_stays() -> None:
    limits = DecoderLimits(held_octets_per_session=1100, held_octets=1700)
    decoder = Decoder(default_registry(), limits=limits)
    sessions = [TransportSession(protocol="udp", peer="192.0.2.9", peer_port=port) for port in (1, 2)]
    given = [
        receive(decoder, data((port, 1)), session=sessions[at])[0]
        for at, port in ((0, 1), (0, 2), (0, 3), (1, 4), (1, 5))
    ]
    assert [isinstance(event, UndecodableSet) and event.is_held for event in given] == [True, True, False, True, False]
    assert given[2] == given[4] == UndecodableSet(256, Reason.HELD_LIMIT)
    assert records(receive(decoder, defined(PORTS), session=sessions[0])) == [(1, 1), (2, 1)]
    assert records(receive(decoder, defined(PORTS), session=sessions[1])) == [(4, 1)]


def test_early_data_grown_too_old_is_not_given(decoder: Decoder) -> None:
    receive(decoder, data((1, 2)), now=0.0)
    receive(decoder, data((3, 4)), now=30.0)
    assert records(receive(decoder, defined(PORTS), now=60.0)) == [(3, 4)]
    assert decoder.statistics().held_sets_expired == 1


def test_early_data_grown_too_old_is_forgotten_at_a_tick(decoder: Decoder) -> None:
    receive(decoder, data((1, 2)), now=0.0)
    receive(decoder, data((3, 4)), now=30.0)
    assert decoder.expire(59.9) == []
    assert decoder.statistics().held_sets == 2
    decoder.expire(60.0)
    assert (decoder.statistics().held_sets, decoder.statistics().held_sets_expired) == (1, 1)
    decoder.expire(90.0)
    assert (decoder.statistics().held_octets, decoder.statistics().held_sets_expired) == (0, 2)


# Life of Templates and sessions


def test_over_udp_a_template_lives_for_its_lifetime() -> None:
    decoder = Decoder(default_registry(), limits=DecoderLimits(template_lifetime=1.0))
    receive(decoder, defined(PORTS), now=0.0)
    assert records(receive(decoder, data((1, 2)), now=0.9)) == [(1, 2)]
    assert kinds(receive(decoder, data((1, 2)), now=1.0)) == ["UndecodableSet"]  # before any tick
    decoder.expire(1.0)
    assert (decoder.statistics().templates, decoder.statistics().templates_expired) == (0, 1)


def test_a_template_sent_again_lives_anew() -> None:
    decoder = Decoder(default_registry(), limits=DecoderLimits(template_lifetime=1.0))
    receive(decoder, defined(PORTS, OTHER_ID), now=0.0)
    receive(decoder, defined(PORTS), now=0.9)
    decoder.expire(1.0)
    assert decoder.statistics().templates == 1
    assert records(receive(decoder, data((1, 2)), now=1.5)) == [(1, 2)]
    decoder.expire(1.9)
    assert decoder.statistics().templates == 0


def test_a_template_sent_after_its_end_is_no_refresh() -> None:
    decoder = Decoder(default_registry(), limits=DecoderLimits(template_lifetime=1.0))
    receive(decoder, defined(PORTS), now=0.0)
    assert receive(decoder, defined(PORTS), now=1.0) == [TemplateReceived(PORTS, is_refresh=False)]


def test_over_ordered_transports_templates_live_as_long_as_the_session(decoder: Decoder) -> None:
    receive(decoder, defined(PORTS), session=TCP)
    receive(decoder, defined(PORTS), session=UDP)
    assert decoder.expire(1e9) == [UDP]
    assert records(receive(decoder, data((1, 2)), session=TCP, now=1e9)) == [(1, 2)]


def test_a_silent_udp_session_is_forgotten_and_told() -> None:
    decoder = Decoder(default_registry(), limits=DecoderLimits(idle_timeout=1.0))
    receive(decoder, defined(PORTS), now=0.0)
    receive(decoder, defined(PORTS), raw_set(300, "00"), now=0.1)
    assert decoder.expire(1.0) == []
    decoder.receive_message(b"nonsense", UDP, 1.0)  # is no life sign
    assert decoder.expire(1.1) == [UDP]
    statistics = decoder.statistics()
    assert (statistics.sessions, statistics.templates, statistics.held_octets) == (0, 0, 0)
    assert statistics.held_sets_expired == 1
    assert decoder.expire(99.0) == []


def test_a_closed_session_is_forgotten_and_the_others_are_not(decoder: Decoder) -> None:
    for session in (UDP, TCP):
        receive(decoder, defined(PORTS), session=session)
        decoder.close_session(session)
        decoder.close_session(session)
        assert decoder.statistics().sessions == 0
    receive(decoder, defined(PORTS), session=TCP)
    receive(decoder, defined(PORTS), raw_set(300, "00"), session=UDP)
    decoder.close_session(UDP)
    assert records(receive(decoder, data((1, 2)), session=TCP)) == [(1, 2)]
    assert decoder.statistics().held_octets == 0


def test_sessions_are_bounded() -> None:
    decoder = Decoder(default_registry(), limits=DecoderLimits(sessions=1))
    receive(decoder, defined(PORTS))
    [refused] = decoder.receive_message(message(defined(PORTS)), TCP, 0.0)
    assert error(refused)[0] is Reason.SESSION_LIMIT
    assert records(receive(decoder, data((1, 2)))) == [(1, 2)]
    decoder.close_session(UDP)
    assert kinds(receive(decoder, defined(PORTS), session=TCP)) == ["TemplateReceived"]


def test_templates_of_a_session_are_bounded_and_those_in_force_can_be_sent_again() -> None:
    decoder = Decoder(default_registry(), limits=DecoderLimits(templates_per_session=1))
    events = receive(decoder, defined(PORTS, OTHER_ID, PORTS))
    assert kinds(events) == ["TemplateReceived", "MalformedTemplate", "TemplateReceived"]
    assert error(events[1])[0] is Reason.TEMPLATE_LIMIT


def test_fields_of_all_sessions_are_bounded_and_come_free_with_their_templates() -> None:
    decoder = Decoder(default_registry(), limits=DecoderLimits(fields=12))
    assert kinds(receive(decoder, defined(PORTS), session=TCP)) == ["TemplateReceived"]
    assert kinds(receive(decoder, defined(PORTS))) == ["MalformedTemplate"]
    receive(decoder, encode_withdrawal_set([256]), session=TCP)
    assert kinds(receive(decoder, defined(PORTS))) == ["TemplateReceived"]
    decoder.close_session(UDP)
    assert kinds(receive(decoder, defined(PORTS), session=TCP)) == ["TemplateReceived"]


# Sequence


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


# Templates of an earlier run


def test_a_remembered_template_reads_data_at_once_and_is_remembered_until_it_is_sent_again(decoder: Decoder) -> None:
    options = defined(replace(OPTIONS, template_id=TemplateId(300)))
    decoder.receive_message(message(defined(PORTS), options), UDP, 10.0)
    kept = decoder.remembered_templates(40.0)
    assert [(each.session, each.is_options, each.age) for each in kept] == [(UDP, False, 30.0), (UDP, True, 30.0)]

    fresh = Decoder(default_registry())
    assert fresh.remember_templates(kept, 1000.0) == 2
    assert fresh.statistics().templates_remembered == 2
    assert records(fresh.receive_message(message(data((1, 2))), UDP, 1001.0)) == [(1, 2)]
    fresh.receive_message(message(defined(PORTS)), UDP, 1002.0)
    assert fresh.statistics().templates_remembered == 1
    assert fresh.statistics().templates == 2


def test_a_remembered_template_grows_old_from_when_it_was_sent() -> None:
    limits = DecoderLimits(template_lifetime=100.0)
    decoder = Decoder(default_registry(), limits=limits)
    decoder.receive_message(message(defined(PORTS)), UDP, 0.0)
    kept = decoder.remembered_templates(60.0)
    fresh = Decoder(default_registry(), limits=limits)
    assert fresh.remember_templates(kept, 0.0) == 1
    fresh.expire(39.9)
    assert fresh.statistics().templates == 1
    fresh.expire(40.1)
    assert fresh.statistics().templates == 0
    late = Decoder(default_registry(), limits=limits)
    assert late.remember_templates([replace(kept[0], age=100.0)], 0.0) == 0


def test_templates_of_ordered_sessions_are_not_remembered(decoder: Decoder) -> None:
    decoder.receive_message(message(defined(PORTS)), TCP, 0.0)
    assert decoder.remembered_templates(1.0) == []


def test_what_a_session_said_is_not_replaced_by_what_was_remembered(decoder: Decoder) -> None:
    decoder.receive_message(message(defined(PORTS)), UDP, 0.0)
    kept = decoder.remembered_templates(0.0)
    fresh = Decoder(default_registry())
    fresh.receive_message(message(defined(replace(NAMES, template_id=PORTS.template_id))), UDP, 0.0)
    assert fresh.remember_templates(kept, 1.0) == 0


@pytest.mark.parametrize("record", [b"", b"\1", b"\1\0\0\1", b"\0\1\0\1\0\1\0\1", bytes(100), b"\xff" * 50])
@pytest.mark.parametrize("is_options", [True, False])
def test_a_damaged_memory_is_left_out(decoder: Decoder, record: bytes, is_options: bool) -> None:
    template = RememberedTemplate(
        session=UDP, observation_domain_id=0, version=10, is_options=is_options, record=record, age=0.0
    )
    assert decoder.remember_templates([template], 0.0) == 0
