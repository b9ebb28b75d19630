"""What the table does whatever the kind of flow: limits, slices, enrichment, books."""

from __future__ import annotations

from typing import Any

import pytest
from hand_made import AGENT, D1, S1, S2, Record, data_set, message, template_set
from kernel_harness import Harness, session

from flowjoin._kernel import KernelLimits, flow_table, intake, tally
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin
from flowjoin._model.information_element import DataType, ElementId, EnterpriseNumber, InformationElement, MergeRule
from flowjoin._model.reasons import Reason
from flowjoin._model.schemas import build_schemas
from flowjoin.wire import default_registry

pytestmark = pytest.mark.usefixtures("kernel_form")

EXTERNAL: Record = S1 | {"flowType": 3}  # ready at once


def external(port: int, **others: int | str) -> Record:
    return EXTERNAL | {"sourceTransportPort": port} | others


def ports(batches: list[FlowBatch]) -> list[int]:
    return [row["sourceTransportPort"] for batch in batches for row in batch.to_dicts()]  # type: ignore[misc]


def held(harness: Harness) -> list[Any]:
    return sorted(row["sourceTransportPort"] for row in harness.stored())


def test_at_the_limit_the_ready_flow_longest_without_a_record_leaves_and_is_exported_as_it_is() -> None:
    harness = Harness(limits=KernelLimits(flows=3))
    harness.send(external(1), external(2), S1)
    harness.now = 1
    harness.send(external(1, flowEndSeconds=2))
    harness.send(external(3))
    assert held(harness) == [1, 3, 1234]
    assert harness.statistics.flows_evicted == 1
    assert harness.kernel.next_expiry() == 1.0  # its row waits
    assert ports(harness.expire(limit=1)) == [2]
    assert ports(harness.expire()) == [1, 3]
    assert harness.statistics.rows == 3


def test_of_flows_without_a_record_equally_long_the_first_stored_leaves() -> None:
    harness = Harness(limits=KernelLimits(flows=3))
    harness.send(external(1), external(2), external(3))
    harness.send(external(1, flowEndSeconds=2))  # at the same time: no difference
    harness.send(external(4))
    assert held(harness) == [2, 3, 4]


def test_without_ready_flows_the_oldest_half_leaves() -> None:
    harness = Harness(limits=KernelLimits(flows=2))
    harness.send(S1 | {"sourceTransportPort": 1}, S1 | {"sourceTransportPort": 2}, S1 | {"sourceTransportPort": 3})
    assert held(harness) == [2, 3]
    assert ports(harness.expire()) == [1]
    assert harness.statistics.flows_evicted == 1
    assert harness.statistics.flows_waiting == 2


def test_an_evicted_flow_without_new_data_makes_no_row() -> None:
    harness = Harness(limits=KernelLimits(flows=1))
    harness.send(external(1))
    harness.expire()
    harness.send(external(2))
    assert harness.statistics.flows_evicted == 1
    assert ports(harness.expire()) == [2]


def test_rows_of_evicted_flows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_table, "MAXIMUM_DEPARTED", 2)
    harness = Harness(limits=KernelLimits(flows=1))
    harness.send(*(external(port) for port in range(1, 6)))
    assert harness.statistics.records_rejected == {"table_full": 2}
    harness.send({"sourceIPv4Address": "10.0.0.1"}, names=["sourceIPv4Address"])  # a plain flow
    assert harness.statistics.records_rejected == {"table_full": 3}
    assert ports(harness.expire()) == [1, 2, 3]
    harness.send(external(9))
    assert ports(harness.expire()) == [9]


def test_many_evicted_rows_are_due_before_the_next_tick() -> None:
    harness = Harness(limits=KernelLimits(flows=1))
    octets = message(template_set(AGENT))
    harness.send_message(octets)
    result = None
    for block in range(9):
        records = [external(block * 500 + at) for at in range(500)]
        for at in range(0, 500, 100):
            sent = message(data_set(AGENT, *records[at : at + 100]))
            result = harness.kernel.ingest([sent], [session()], 0.0)
            assert result.is_due == (harness.kernel.statistics().flows_evicted >= 4096)
    assert result is not None
    assert result.is_due


def test_expire_works_in_slices_and_in_order() -> None:
    harness = Harness()
    harness.send(*(external(port) for port in (5, 3, 4, 1)))
    harness.now = 1
    harness.send(external(3, flowEndSeconds=2))
    assert ports(harness.expire(1, limit=3)) == [5, 3, 4]
    assert harness.kernel.next_expiry() == 0
    assert ports(harness.expire(1, limit=3)) == [1]
    assert harness.kernel.next_expiry() == 61
    assert harness.expire(1, limit=3) == []


def test_batches_are_split_by_schema_in_the_order_of_their_first_rows() -> None:
    harness = Harness()
    names = [name.replace("IPv4", "IPv6") for name in AGENT]
    harness.send(external(1))
    harness.send(external(2), names=names)
    harness.send(external(3))
    assert [ports([batch]) for batch in harness.expire()] == [[1, 3], [2]]


def test_a_scan_gives_each_flow_that_stays_once_whatever_comes_and_leaves() -> None:
    harness = Harness(limits=KernelLimits(active_timeout=10, idle_timeout=10))
    harness.send(*(external(port) for port in range(1, 7)))
    harness.now = 5
    harness.send(*(external(port, flowEndSeconds=2) for port in (2, 4, 6)))
    first, cursor = harness.kernel.scan(FlowFilter(), 0, 2)
    assert cursor == 2
    harness.expire(0)
    harness.expire(10)  # 1, 3 and 5 leave
    harness.send(external(7), external(8))
    rest: list[FlowBatch] = []
    while cursor is not None:
        batches, cursor = harness.kernel.scan(FlowFilter(), cursor, 2)
        rest += batches
    found = ports(first) + ports(rest)
    assert {2, 4, 6} <= set(found)
    assert len(found) == len(set(found))
    assert harness.kernel.scan(FlowFilter(), 100, 5) == ([], None)


def test_what_nothing_holds_any_more_is_forgotten() -> None:
    harness = Harness(limits=KernelLimits(string_octets=20))
    harness.send(external(1, sourcePodName="a-pod-of-17-bytes", tcpState="abc"))
    harness.send(external(2, sourcePodName="b-pod-of-17-bytes", tcpState="abc"))
    assert [row["sourcePodName"] for row in harness.stored()] == ["a-pod-of-17-bytes", ""]
    assert harness.statistics.strings_dropped > 0
    harness.expire(0)
    harness.expire(90)
    assert harness.statistics.flows_held == 0
    harness.send(external(3, sourcePodName="c-pod-of-17-bytes", tcpState="xyz"))
    (row,) = harness.stored()
    assert (row["sourcePodName"], row["tcpState"]) == ("c-pod-of-17-bytes", "xyz")


LABEL = InformationElement(
    name="testLabel",
    element_id=ElementId(1),
    enterprise_number=EnterpriseNumber(32473),
    data_type=DataType.STRING,
    merge_rule=MergeRule.FIRST,
)
ADDRESS = InformationElement(
    name="testAddress",
    element_id=ElementId(2),
    enterprise_number=EnterpriseNumber(32473),
    data_type=DataType.IPV4_ADDRESS,
    merge_rule=MergeRule.FIRST,
)


def enriched_harness(**others: Any) -> Harness:
    return Harness(elements=(LABEL, ADDRESS), extra=("testLabel", "testAddress"), is_enriched=True, **others)


def test_flows_are_offered_apart_until_they_are_enriched() -> None:
    harness = enriched_harness()
    harness.send(external(1))
    (batch,) = harness.expire()
    assert batch.is_first_export
    harness.send(external(1, flowEndSeconds=5), external(2))
    (batch,) = harness.expire(60)
    assert batch.is_first_export  # the enricher was down: both are offered
    assert ports([batch]) == [2, 1]  # by deadline
    harness.kernel.store_enriched(batch.take([1]), {"testLabel": ["one"], "testAddress": ["192.0.2.7"]})
    harness.send(external(1, flowEndSeconds=6), external(2, flowEndSeconds=6))
    first, later = harness.expire(120)
    assert (first.is_first_export, ports([first])) == (False, [1]) or (later.is_first_export, ports([first])) == (
        False,
        [2],
    )
    rows = {row["sourceTransportPort"]: row for batch in (first, later) for row in batch.to_dicts()}
    assert (rows[1]["testLabel"], rows[1]["testAddress"]) == ("one", "192.0.2.7")
    assert (rows[2]["testLabel"], rows[2]["testAddress"]) == ("", "0.0.0.0")


def test_without_enrichers_nothing_is_split() -> None:
    harness = Harness()
    harness.send(external(1))
    (batch,) = harness.expire()
    assert not batch.is_first_export


def test_enrichment_fills_gaps_and_never_overwrites() -> None:
    harness = enriched_harness()
    harness.send(external(1), external(2, destinationPodName="given", destinationServicePort=0))
    (batch,) = harness.expire()
    harness.kernel.store_enriched(batch, {"destinationPodName": ["a", "b"], "destinationServicePort": [80, 81]})
    assert [(row["destinationPodName"], row["destinationServicePort"]) for row in harness.stored()] == [
        ("a", 4739),
        ("given", 81),
    ]


def test_flows_that_left_meanwhile_are_skipped_even_if_others_have_their_place() -> None:
    harness = enriched_harness()
    harness.send(external(1))
    (batch,) = harness.expire(0)
    harness.expire(90)
    harness.send(external(2))
    harness.kernel.store_enriched(batch, {"testLabel": ["stale"]})
    assert [row["testLabel"] for row in harness.stored()] == [""]


def test_rows_of_evicted_flows_are_offered_but_nothing_is_kept_for_them() -> None:
    harness = enriched_harness(limits=KernelLimits(flows=1))
    harness.send(external(1), external(2))
    (batch,) = harness.expire()
    assert batch.is_first_export
    harness.kernel.store_enriched(batch, {"testLabel": ["one", "two"]})
    assert [(row["sourceTransportPort"], row["testLabel"]) for row in harness.stored()] == [(2, "two")]


@pytest.mark.parametrize(
    "columns",
    [
        {"testLabel": ["x"], "testAddress": ["nowhere"]},
        {"testLabel": ["x", "y"]},
        {"testLabel": [1]},
        {"flowId": [1]},
        {"octetTotalCount": [1]},
        {"sourceTransportPort": [1]},
        {"testLabel": ["x"], "destinationServicePort": [70_000]},
    ],
)
def test_what_an_enricher_may_not_give_is_refused_and_changes_nothing(columns: dict[str, Any]) -> None:
    harness = enriched_harness()
    harness.send(external(1))
    (batch,) = harness.expire()
    before = harness.stored()
    with pytest.raises(ValueError):
        harness.kernel.store_enriched(batch, columns)
    assert harness.stored() == before


def test_a_message_is_checked_to_its_first_fault_and_records_before_it_count() -> None:
    harness = Harness()
    good = message(template_set(AGENT), data_set(AGENT, external(1)))
    bad = message(data_set(AGENT, external(2)), b"\x01\x00\xff\xff")
    sessions = [session(protocol="tcp"), session(protocol="tcp")]
    result = harness.kernel.ingest([good, bad], sessions, 0.0)
    assert result.faulty == (sessions[0],)
    assert result.notices == ((sessions[0], Reason.SET_TOO_LONG, 0, 1),)
    statistics = harness.statistics
    assert (statistics.messages, statistics.malformed_messages, statistics.records_received) == (2, 1, 2)
    assert statistics.reasons == {"set_too_long": 1}


def test_over_udp_a_faulty_message_ends_nothing_and_notices_are_not_repeated() -> None:
    harness = Harness()
    bad = message(b"\x01\x00\xff\xff")
    unknown = message(b"\x01\x01\x00\x05\x00", b"\x01\x02\x00\x05\x00")
    result = harness.kernel.ingest([bad, bad, unknown], [session()] * 3, 0.0)
    assert result.faulty == ()
    assert result.notices == (
        (session(), Reason.SET_TOO_LONG, 0, 1),
        (session(), Reason.TEMPLATE_UNKNOWN, 257, 1),
    )
    statistics = harness.statistics
    assert (statistics.sets_without_template, statistics.sets_held) == (2, 2)
    assert statistics.reasons == {"set_too_long": 2, "template_unknown": 2}


def test_early_data_is_merged_when_its_template_comes() -> None:
    harness = Harness()
    harness.send_message(message(data_set(AGENT, external(1))))
    assert harness.statistics.records_received == 0
    harness.send_message(message(template_set(AGENT)))
    assert held(harness) == [1]


def test_a_closed_session_has_lost_its_templates() -> None:
    harness = Harness()
    harness.send(external(1))
    harness.kernel.close_session(session())
    harness.send_message(message(data_set(AGENT, external(2))))
    assert harness.statistics.sets_without_template == 1
    assert held(harness) == [1]


def test_what_waited_for_its_template_in_vain_and_templates_not_sent_again_are_counted() -> None:
    harness = Harness()
    harness.send_message(message(data_set(AGENT, S1)))
    harness.send_message(message(template_set(AGENT, template_id=300)))
    assert (harness.statistics.sets_held, harness.statistics.held_sets_expired) == (1, 0)
    harness.kernel.tick(60.0)
    assert (harness.statistics.held_sets_expired, harness.statistics.templates_expired) == (1, 0)
    harness.now = 1_000.0
    harness.send_message(message(template_set(AGENT, template_id=301)))  # the session is not silent
    harness.kernel.tick(1_800.0)
    assert harness.statistics.templates_expired == 1


def test_silent_sessions_are_told_by_the_tick() -> None:
    harness = Harness()
    harness.send(external(1))
    assert list(harness.kernel.tick(10.0)) == []
    assert list(harness.kernel.tick(100_000.0)) == [session()]


def test_option_records_are_no_flows() -> None:
    harness = Harness()
    # Options Template 256 (RFC 7011 section 3.4.2.2): scope meteringProcessId, option exportedMessageTotalCount
    options = bytes.fromhex("0003 0012 0100 0002 0001 008f 0004 0029 0008".replace(" ", ""))
    options = options[:2] + len(options).to_bytes(2, "big") + options[4:]
    records = bytes.fromhex("0100 0010 00000001 0000000000000005".replace(" ", ""))
    harness.send_message(message(options, records))
    statistics = harness.statistics
    assert (statistics.option_records, statistics.records_received, statistics.templates) == (1, 0, 1)


def test_a_clock_that_goes_back_is_not_followed() -> None:
    harness = Harness()
    harness.now = 100
    harness.send(external(1))
    harness.now = 50
    harness.send(external(2), external(1, flowEndSeconds=3))
    assert harness.kernel.next_expiry() == 100
    assert ports(harness.expire(50)) == [1, 2]
    assert harness.kernel.next_expiry() == 160


def test_lost_records_are_counted_and_a_late_one_takes_its_loss_back() -> None:
    harness = Harness()
    harness.send_message(message(template_set(AGENT), data_set(AGENT, external(1)), sequence=0))
    harness.send_message(message(data_set(AGENT, external(3)), sequence=2))
    assert harness.statistics.sequence_lost == 1
    harness.send_message(message(data_set(AGENT, external(2)), sequence=1))
    assert harness.statistics.sequence_lost == 0


def test_a_waiting_half_that_is_joined_after_a_retry_leaves_once() -> None:
    harness = Harness()
    harness.send(S1)
    harness.expire(60)
    harness.send(D1, S2)
    assert [row["octetTotalCount"] for row in harness.rows()] == [2000]
    assert harness.rows(200) == []
    assert harness.statistics.flows_held == 0


def test_an_enricher_may_tell_the_direction_where_the_record_did_not() -> None:
    harness = Harness(is_enriched=True)
    names = ["sourceIPv4Address", "flowDirection"]
    harness.send({"sourceIPv4Address": "10.0.0.1", "flowDirection": 0}, names=names)
    harness.send({"sourceIPv4Address": "10.0.0.2"}, names=names[:1])
    (batch,) = harness.expire()
    harness.kernel.store_enriched(batch, {"flowDirection": [1, 1]})
    assert [row["flowDirection"] for row in harness.stored()] == [0, 1]


def test_rows_of_a_source_are_nobodys_flow() -> None:
    harness = Harness(is_enriched=True)
    schema = build_schemas(default_registry())[FlowOrigin.SOURCE, AddressFamily.IPV4]
    batch = FlowBatch.from_columns(schema, {"sourcePodName": ["pod"]})
    harness.kernel.store_enriched(batch, {"destinationPodName": ["other"]})
    assert harness.statistics.flows_held == 0


def test_refused_templates_and_cut_sets_are_counted_by_reason() -> None:
    harness = Harness()
    empty_template = bytes.fromhex("0002 0008 0100 0001".replace(" ", ""))
    cut = data_set(AGENT, external(1), external(2))
    cut = cut[:2] + (len(cut) - 60).to_bytes(2, "big") + cut[4:-60]
    harness.send_message(message(template_set(AGENT, 256), cut))
    harness.send_message(message(empty_template))
    statistics = harness.statistics
    assert statistics.records_received == 1
    assert statistics.malformed_templates == 1
    assert statistics.reasons == {"template_truncated": 1}


def test_a_record_that_runs_over_its_set_is_noted_and_those_before_it_count() -> None:
    harness = Harness()
    names = [
        "flowType",
        "flowStartSeconds",
        "flowEndSeconds",
        "sourceIPv4Address",
        "destinationIPv4Address",
        "tcpState",
    ]
    good = data_set(names, external(1))
    overrun = bytes(17) + b"\x09"
    body = good[4:] + overrun
    octets = message(template_set(names), good[:2] + (4 + len(body)).to_bytes(2, "big") + body)
    result = harness.kernel.ingest([octets], [session()], 0.0)
    assert result.notices == ((session(), Reason.RECORD_TRUNCATED, 256, 1),)
    assert harness.statistics.records_received == 1


def test_a_withdrawn_template_is_no_longer_known() -> None:
    harness = Harness()
    withdrawal = bytes.fromhex("0002 0008 0100 0000".replace(" ", ""))
    octets = [message(template_set(AGENT)), message(withdrawal), message(data_set(AGENT, external(1)))]
    harness.kernel.ingest(octets, [session(protocol="tcp")] * 3, 0.0)
    assert harness.statistics.sets_without_template == 1


def test_many_different_templates_are_compiled_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_MAXIMUM_PLANS", 2)
    harness = Harness()
    for times in (1, 2, 3, 1, 2, 3):
        harness.send(external(1, flowEndSeconds=times + 1), names=[*AGENT, *["vlanId"] * times])
    assert harness.statistics.elements_dropped == {"vlanId": 12}
    # the side's end follows each record, an older one too: what comes after it is newer again
    assert (harness.statistics.records_merged, harness.statistics.records_older) == (4, 1)


def test_names_that_peers_make_up_are_counted_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "_MAXIMUM_NAMES", 2)
    counts: dict[str, int] = {}
    tally.add_bounded(counts, ["a", "b", "c", "d", "a"], 2)
    assert counts == {"a": 4, "b": 2, "other": 4}
