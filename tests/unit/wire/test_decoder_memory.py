"""What the decoder keeps: data that comes before its Template, Templates and sessions for their lifetimes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from decoder_examples import NAMES, OPTIONS, OTHER_ID, PORTS, data, defined, error
from wire_builders import TCP, UDP, kinds, message, raw_set, receive, records

from flowjoin._model.reasons import Reason
from flowjoin._model.template import TemplateId
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire import (
    DataSetReceived,
    Decoder,
    DecoderLimits,
    RememberedTemplate,
    TemplateReceived,
    UndecodableSet,
    default_registry,
    encode_withdrawal_set,
)


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
