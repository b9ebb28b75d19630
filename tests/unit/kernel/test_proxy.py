from __future__ import annotations

from typing import Any

import pytest
from hand_made import AGENT, AGENT_IPV6, D1, S1, Record, data_set, message
from kernel_harness import Harness, session

from flowjoin._kernel import flow_table, proxy
from flowjoin._model.flow_key import FlowFilter, FlowKey

PLAIN = ["sourceIPv4Address", "destinationIPv4Address", "octetDeltaCount", "flowStartMilliseconds"]
ROW: Record = {
    "sourceIPv4Address": "10.0.0.1",
    "destinationIPv4Address": "10.0.0.2",
    "octetDeltaCount": 5,
    "flowStartMilliseconds": 1_700_000_000_999,
}


def passed(*records: Record, names: list[str] = AGENT, **others: Any) -> list[dict[str, Any]]:
    harness = Harness(is_proxy=True)
    harness.send(*records, names=names, **others)
    return harness.rows()


def test_records_pass_as_they_came_each_with_its_origin() -> None:
    rows = passed(S1, D1, S1, domain=7)
    assert [row["octetTotalCount"] for row in rows] == [1000, 1020, 1000]
    assert [row["sourcePodName"] for row in rows] == ["pod1", "", "pod1"]
    for row in rows:
        assert (row["clusterId"], row["originalObservationDomainId"]) == ("cluster", 7)
        assert (row["originalExporterIPv4Address"], row["originalExporterIPv6Address"]) == ("192.0.2.1", "::")
    (row,) = passed(S1, names=AGENT_IPV6, peer="2001:db8::9")
    assert row["sourceIPv6Address"] == "2001:0:3238:dfe1:63::fefb"
    assert (row["originalExporterIPv4Address"], row["originalExporterIPv6Address"]) == ("0.0.0.0", "2001:db8::9")


def test_part_of_a_batch_of_passed_records_has_no_handles_as_the_whole_has_none() -> None:
    harness = Harness(is_proxy=True)
    harness.send(S1, D1, S1)
    (batch,) = harness.expire()
    assert (len(batch), len(batch.handles)) == (3, 0)
    part = batch.slice(1, 3)
    assert (len(part), list(part.handles)) == (2, [])


BOTH: Record = {"sourcePodName": "pod1", "destinationPodName": "pod2"}


@pytest.mark.parametrize(
    ("record", "direction"),
    [
        (S1, 1),
        (D1, 0),
        (S1 | BOTH, 255),
        (S1 | {"flowType": 3}, 1),
        (D1 | {"flowType": 3}, 255),
        (D1 | {"flowType": 4}, 0),
        (S1 | {"flowType": 4}, 255),
        (S1 | BOTH | {"flowType": 1}, 255),
        (S1 | {"flowType": 0}, 255),
    ],
)
def test_the_direction_is_that_of_the_node_that_saw_the_flow(record: Record, direction: int) -> None:
    assert [row["flowDirection"] for row in passed(record)] == [direction]


def test_what_a_record_says_itself_is_kept() -> None:
    names = [*AGENT, "flowDirection", "originalExporterIPv4Address", "originalObservationDomainId", "clusterId"]
    given: Record = {"flowDirection": 0, "originalExporterIPv4Address": "203.0.113.1"}
    (row,) = passed(S1 | given | {"originalObservationDomainId": 0, "clusterId": "theirs"}, names=names)
    assert (row["flowDirection"], row["originalExporterIPv4Address"]) == (0, "203.0.113.1")
    assert (row["originalObservationDomainId"], row["clusterId"]) == (0, "theirs")


def test_every_exporter_is_allowed_and_no_element_is_lost() -> None:
    names = [*PLAIN, "vlanId", "unknown", "vlanId"]
    harness = Harness(is_proxy=True)
    harness.send(ROW | {"vlanId": 9, "unknown": b"\x01\x02\x03\x04"}, names=names)
    (batch,) = harness.expire()
    (row,) = batch.to_dicts()
    assert (row["vlanId"], row["64000/999"], row["flowStartMilliseconds"]) == (9, "01020304", 1_700_000_000_999)
    assert (row["flowStartSeconds"], row["flowEndSeconds"]) == (1_700_000_000, 0)
    assert row["flowDirection"] == 255
    assert harness.statistics.elements_dropped == {"vlanId": 1}  # the second


def test_a_field_whose_length_does_not_fit_its_element_is_kept_as_octets(monkeypatch: pytest.MonkeyPatch) -> None:
    import hand_made

    monkeypatch.setitem(hand_made.FIELDS, "wide counter", (86, 0, 16))
    monkeypatch.setitem(hand_made.FIELDS, "short UUID", (160, hand_made.ANTREA, 2))
    names = [*PLAIN, "wide counter", "short UUID"]
    (row,) = passed(ROW | {"wide counter": b"\x07" * 16, "short UUID": b"ab"}, names=names)
    assert row["0/86"] == "07" * 16
    assert row["56506/160"] == "6162"
    assert (row["packetTotalCount"], row["destinationPodUUID"]) == (0, "00" * 16)


@pytest.mark.parametrize(
    ("names", "record", "cause"),
    [
        (PLAIN[:3], ROW, "time_absent"),
        (PLAIN[1:], ROW, "address_absent"),
        (["octetDeltaCount", "flowStartMilliseconds"], ROW, "address_absent"),
        ([*PLAIN, "sourceIPv6Address"], ROW | {"sourceIPv6Address": "::1"}, "address_mixed"),
        (["sourceIPv4Address", "destinationIPv6Address", PLAIN[3]], ROW, "address_absent"),
    ],
)
def test_a_record_without_one_family_or_a_start_is_rejected(names: list[str], record: Record, cause: str) -> None:
    harness = Harness(is_proxy=True)
    harness.send(record, names=names)
    assert harness.statistics.records_rejected == {cause: 1}
    assert harness.rows() == []


def test_of_both_families_the_zero_side_is_absent() -> None:
    names = [*PLAIN, "sourceIPv6Address", "destinationIPv6Address"]
    harness = Harness(is_proxy=True)
    harness.send(
        ROW, ROW | {"sourceIPv4Address": 0, "destinationIPv4Address": 0, "sourceIPv6Address": "::1"}, names=names
    )
    assert [row.get("sourceIPv6Address") for row in harness.rows()] == [None, "::1"]


def test_rows_leave_in_slices_in_the_order_of_their_records() -> None:
    harness = Harness(is_proxy=True)
    assert harness.kernel.next_expiry() is None
    harness.now = 5
    harness.send(*(S1 | {"sourceTransportPort": port} for port in range(5)))
    assert harness.kernel.next_expiry() == 5
    assert [row["sourceTransportPort"] for batch in harness.expire(limit=3) for row in batch.to_dicts()] == [0, 1, 2]
    assert [row["sourceTransportPort"] for row in harness.rows()] == [3, 4]
    assert harness.statistics.rows == 5


def test_waiting_rows_are_bounded_and_soon_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "MAXIMUM_DEPARTED", 3)
    monkeypatch.setattr(proxy, "DUE_ROWS", 2)
    harness = Harness(is_proxy=True)
    harness.send(S1, S1, S1, S1)
    assert harness.statistics.records_rejected == {"table_full": 1}
    assert harness.kernel.ingest([], [], 0.0).is_due
    harness.expire()
    assert not harness.kernel.ingest([], [], 0.0).is_due
    assert flow_table.MAXIMUM_DEPARTED == 65_536


def test_rows_are_offered_to_enrichers_and_nothing_is_held() -> None:
    harness = Harness(is_proxy=True, is_enriched=True)
    harness.send(S1)
    (batch,) = harness.expire()
    assert batch.is_first_export
    harness.kernel.store_enriched(batch, {"destinationPodName": ["pod2"]})
    assert harness.kernel.scan(FlowFilter(), 0, 10) == ([], None)
    assert harness.kernel.lookup(FlowKey(source="10.0.0.1", destination="10.0.0.2", protocol_identifier=6)) is None
    assert harness.statistics.flows_held == 0


def test_sessions_end_as_in_the_other_kernel() -> None:
    harness = Harness(is_proxy=True)
    harness.send(S1)
    harness.kernel.close_session(session())
    harness.send_message(message(data_set(AGENT, S1)))
    assert harness.statistics.sets_without_template == 1
    assert list(harness.kernel.tick(100_000.0)) == [session()]
