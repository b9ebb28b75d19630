"""Templates: read, refused, defined anew, withdrawn."""

from __future__ import annotations

import pytest
from decoder_examples import NAMES, OPTIONS, OTHER_ID, PORTS, data, defined, error
from wire_builders import TCP, UDP, kinds, raw_set, receive, records, template

from flowjoin._model.reasons import Reason
from flowjoin._model.template import Template, TemplateId
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire import (
    DataSetReceived,
    Decoder,
    DecoderLimits,
    Event,
    MalformedTemplate,
    TemplateReceived,
    TemplateWithdrawn,
    UndecodableSet,
    default_registry,
    encode_data_set,
    encode_withdrawal_set,
)


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
