"""Uptimes count from the time that an original exporter told in an options record (element 160)."""

from __future__ import annotations

from typing import Any

import pytest
from hand_made import Record, data_set, message, options_template_set, template_set
from kernel_harness import Harness, session

from flowjoin._kernel import init_times

STARTED = 1_700_000_000_000
OPTIONS = ["observationDomainId", "systemInitTimeMilliseconds"]
UPTIMES = [
    "sourceIPv4Address",
    "destinationIPv4Address",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "octetDeltaCount",
    "packetDeltaCount",
    "flowStartSysUpTime",
    "flowEndSysUpTime",
]
EXPORTED = 1_700_000_100


def told(time: int = STARTED, *, names: list[str] = OPTIONS) -> bytes:
    record: Record = {"systemInitTimeMilliseconds": time}
    return options_template_set(names, 300) + data_set(names, record, template_id=300)


def flow(
    port: int = 1,
    start: int = 1_000,
    end: int = 2_000,
    **others: int,
) -> bytes:
    record: Record = {
        "sourceIPv4Address": "10.0.0.1",
        "destinationIPv4Address": "10.0.0.2",
        "sourceTransportPort": port,
        "octetDeltaCount": 1,
        "flowStartSysUpTime": start,
        "flowEndSysUpTime": end,
        **others,
    }
    names = [*UPTIMES, *others]
    return template_set(names) + data_set(names, record)


def times(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["flowStartMilliseconds"], row["flowEndMilliseconds"]) for row in rows]


def send(harness: Harness, *sets: bytes, domain: int = 1, peer: str = "192.0.2.1") -> None:
    harness.send_message(message(*sets, export_time=EXPORTED, domain=domain), peer=peer)


def test_a_later_message_counts_from_what_an_options_record_told() -> None:
    harness = Harness()
    send(harness, told())
    send(harness, flow())
    assert times(harness.rows()) == [(STARTED + 1_000, STARTED + 2_000)]
    assert not {name for name in harness.statistics.elements_absent if name.startswith("flow")}
    assert harness.statistics.option_records == 1


def test_an_options_record_counts_from_its_place_in_the_message_on() -> None:
    harness = Harness()
    send(harness, flow(1), told(), flow(2))
    assert times(harness.rows()) == [(EXPORTED * 1000,) * 2, (STARTED + 1_000, STARTED + 2_000)]
    assert harness.statistics.elements_absent == {"flowStartMilliseconds": 1, "flowEndMilliseconds": 1}


def test_the_time_told_last_counts_and_0_tells_nothing() -> None:
    harness = Harness()
    send(harness, told(), told(STARTED + 500), told(0), flow())
    assert times(harness.rows()) == [(STARTED + 1_500, STARTED + 2_500)]


def test_a_data_records_own_time_wins() -> None:
    harness = Harness()
    send(harness, told(), flow(systemInitTimeMilliseconds=STARTED + 7))
    assert times(harness.rows()) == [(STARTED + 1_007, STARTED + 2_007)]


@pytest.mark.parametrize("other", [{"domain": 2}, {"peer": "192.0.2.2"}])
def test_another_domain_or_session_has_been_told_nothing(other: dict[str, Any]) -> None:
    harness = Harness()
    send(harness, told())
    send(harness, flow(), **other)
    assert times(harness.rows()) == [(EXPORTED * 1000,) * 2]


def test_what_was_told_is_forgotten_with_the_session() -> None:
    harness = Harness()
    send(harness, told())
    harness.kernel.close_session(session())
    send(harness, flow())
    assert times(harness.rows()) == [(EXPORTED * 1000,) * 2]

    harness = Harness()
    send(harness, told())
    assert list(harness.kernel.tick(1_800.0)) == [session()]  # it fell silent
    harness.now = 1_800.0
    send(harness, flow())
    assert times(harness.rows()) == [(EXPORTED * 1000,) * 2]


def test_proxy_mode_counts_from_it_too() -> None:
    harness = Harness(is_proxy=True)
    send(harness, flow())
    assert harness.statistics.records_rejected == {"time_absent": 1}
    send(harness, told(), flow())
    ((row,),) = [batch.to_dicts() for batch in harness.expire()]
    assert (row["flowStartSeconds"], row["flowEndSeconds"]) == (STARTED // 1000 + 1, STARTED // 1000 + 2)


def test_of_a_field_that_is_no_time_nothing_is_taken() -> None:
    octets = options_template_set(OPTIONS, 300).replace(b"\x00\xa0\x00\x08", b"\x00\xa0\x00\x04")
    harness = Harness()
    send(harness, octets, data_set(["observationDomainId"] * 2, {}, template_id=300), flow())
    assert harness.statistics.option_records == 1
    assert times(harness.rows()) == [(EXPORTED * 1000,) * 2]


def test_options_about_something_else_tell_nothing() -> None:
    harness = Harness()
    send(harness, told(names=["observationDomainId"]), flow())
    assert times(harness.rows()) == [(EXPORTED * 1000,) * 2]


def test_domains_are_bounded_in_a_session_and_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init_times, "_DOMAINS_PER_SESSION", 2)
    monkeypatch.setattr(init_times, "_DOMAINS", 3)
    harness = Harness()
    for domain in (1, 2, 3):
        send(harness, told(), domain=domain)
    for peer in ("192.0.2.2", "192.0.2.3"):
        send(harness, told(), peer=peer)
    known = []
    for domain, peer in ((1, "192.0.2.1"), (2, "192.0.2.1"), (3, "192.0.2.1"), (1, "192.0.2.2"), (1, "192.0.2.3")):
        send(harness, flow(), domain=domain, peer=peer)
        known += [start != EXPORTED * 1000 for start, _ in times(harness.rows())]
        harness.now += 1
    assert known == [False, True, True, True, False]
    harness.kernel.close_session(session("192.0.2.2"))  # makes room
    send(harness, told(), flow(9), peer="192.0.2.3")
    assert times(harness.rows())[0][0] == STARTED + 1_000
