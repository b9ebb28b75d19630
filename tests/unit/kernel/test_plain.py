from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hand_made
import pytest
from hand_made import Record
from kernel_harness import Harness

from flowjoin._kernel import KernelLimits, original_exporters
from flowjoin._model.flow_key import FlowKey
from flowjoin._model.information_element import DataType, ElementId, EnterpriseNumber, InformationElement, MergeRule

pytestmark = pytest.mark.usefixtures("kernel_form")

EXPORTED = 1_700_000_000
NAMES = [
    "sourceIPv4Address",
    "destinationIPv4Address",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "octetDeltaCount",
    "packetDeltaCount",
    "flowStartMilliseconds",
    "flowEndMilliseconds",
]
KEY: Record = {
    "sourceIPv4Address": "10.0.0.1",
    "destinationIPv4Address": "10.0.0.2",
    "sourceTransportPort": 1234,
    "destinationTransportPort": 80,
    "protocolIdentifier": 6,
}


def record(octets: int, end: int = 2000, start: int = 1000, **others: int | str | bytes) -> Record:
    return (
        KEY
        | {
            "octetDeltaCount": octets,
            "packetDeltaCount": 1,
            "flowStartMilliseconds": EXPORTED * 1000 + start,
            "flowEndMilliseconds": EXPORTED * 1000 + end,
        }
        | others
    )


def one(harness: Harness) -> dict[str, Any]:
    (row,) = harness.stored()
    return row


def test_a_plain_flow_is_ready_at_once_and_tells_where_it_was_seen() -> None:
    harness = Harness()
    harness.now = 7.0
    harness.send(record(100), names=NAMES, domain=9)
    assert harness.kernel.next_expiry() == 7.0
    (batch,) = harness.expire()
    (row,) = batch.to_dicts()
    assert (row["octetDeltaCount"], row["octetTotalCount"]) == (100, 100)
    assert (row["flowStartMilliseconds"], row["flowStartSeconds"]) == (EXPORTED * 1000 + 1000, EXPORTED + 1)
    assert (row["flowEndMilliseconds"], row["flowEndSeconds"]) == (EXPORTED * 1000 + 2000, EXPORTED + 2)
    assert (row["originalExporterIPv4Address"], row["originalExporterIPv6Address"]) == ("192.0.2.1", "::")
    assert row["originalObservationDomainId"] == 9
    assert row["flowDirection"] == 255


def test_deltas_add_up_and_totals_are_their_running_sum() -> None:
    harness = Harness()
    harness.send(record(100), record(50, end=3000), names=NAMES)
    assert (one(harness)["octetDeltaCount"], one(harness)["octetTotalCount"]) == (150, 150)
    harness.expire()
    harness.send(record(7, end=1500), names=NAMES)  # late, and counted all the same
    row = one(harness)
    assert (row["octetDeltaCount"], row["octetTotalCount"], row["packetTotalCount"]) == (7, 157, 3)
    assert row["flowEndMilliseconds"] == EXPORTED * 1000 + 3000


TOTALS = [name.replace("Delta", "Total") if "Count" in name else name for name in NAMES]


def test_totals_take_the_maximum_and_deltas_are_their_growth_since_the_last_export() -> None:
    harness = Harness()
    harness.send(record(0, octetTotalCount=1000, packetTotalCount=10), names=TOTALS)
    harness.send(record(0, octetTotalCount=1500, packetTotalCount=15), names=TOTALS)
    assert (one(harness)["octetDeltaCount"], one(harness)["octetTotalCount"]) == (1500, 1500)
    harness.expire()
    harness.send(record(0, octetTotalCount=1600, packetTotalCount=16), names=TOTALS)
    row = one(harness)
    assert (row["octetDeltaCount"], row["octetTotalCount"]) == (100, 1600)
    assert (row["packetDeltaCount"], row["packetTotalCount"]) == (1, 16)
    assert harness.statistics.counters_clamped == 0


def test_a_total_that_goes_back_gives_no_delta_and_is_counted() -> None:
    harness = Harness()
    harness.send(record(0, octetTotalCount=1000, packetTotalCount=10), names=TOTALS)
    harness.send(record(0, octetTotalCount=500, packetTotalCount=10), names=TOTALS)
    row = one(harness)
    assert (row["octetDeltaCount"], row["octetTotalCount"]) == (1000, 1000)
    assert harness.statistics.counters_clamped == 1
    harness.send(record(0, end=1500, octetTotalCount=400, packetTotalCount=4), names=TOTALS)
    assert harness.statistics.counters_clamped == 1  # an earlier record: its total is rightly lower


def test_a_record_with_both_has_both_believed() -> None:
    harness = Harness()
    names = [*NAMES, "octetTotalCount"]
    harness.send(record(100, octetTotalCount=700), record(50, octetTotalCount=750), names=names)
    assert (one(harness)["octetDeltaCount"], one(harness)["octetTotalCount"]) == (150, 750)


def test_counters_stay_in_64_bits_and_a_negative_delta_counts_as_nothing() -> None:
    harness = Harness()
    for _ in range(3):
        harness.send(record(2**63 - 1), names=NAMES)
    assert one(harness)["octetDeltaCount"] == 3 * (2**63 - 1) % 2**64
    harness.send(record(2**64 - 500), names=NAMES)
    assert one(harness)["octetDeltaCount"] == 3 * (2**63 - 1) % 2**64
    assert harness.statistics.counters_clamped == 1
    assert len(harness.rows()) == 1


def test_initiator_and_responder_count_the_two_directions() -> None:
    names = [*NAMES[:5], "initiatorOctets", "responderOctets", "initiatorPackets", "responderPackets"]
    counters: Record = {"initiatorOctets": 1, "responderOctets": 2, "initiatorPackets": 3, "responderPackets": 4}
    harness = Harness()
    harness.send(KEY | counters, KEY | counters, names=names)
    row = one(harness)
    assert [row[name] for name in ("octetDeltaCount", "reverseOctetDeltaCount")] == [2, 4]
    assert [row[name] for name in ("packetTotalCount", "reversePacketTotalCount")] == [6, 8]


def test_the_reverse_direction_is_kept() -> None:
    harness = Harness()
    harness.send(record(5, reverseOctetDeltaCount=6), names=[*NAMES, "reverseOctetDeltaCount"])
    assert (one(harness)["reverseOctetDeltaCount"], one(harness)["reverseOctetTotalCount"]) == (6, 6)


def test_a_flow_seen_at_two_places_is_two_flows() -> None:
    harness = Harness()
    names = [*NAMES, "ingressInterface"]
    harness.send(record(1, ingressInterface=1), record(1, ingressInterface=2), names=names)
    harness.send(record(1), names=NAMES)
    harness.send(record(1), names=NAMES, peer="192.0.2.2")
    harness.send(record(1), names=NAMES, domain=2)
    assert harness.statistics.flows_held == 5


def test_what_a_record_says_of_its_origin_wins_over_the_peer() -> None:
    harness = Harness()
    names = [*NAMES, "originalExporterIPv4Address", "originalObservationDomainId"]
    for peer in ("198.51.100.1", "198.51.100.2"):
        harness.send(
            record(1, originalExporterIPv4Address="203.0.113.7", originalObservationDomainId=77), names=names, peer=peer
        )
    row = one(harness)
    assert (row["originalExporterIPv4Address"], row["originalObservationDomainId"]) == ("203.0.113.7", 77)
    harness.send(
        record(1, originalExporterIPv6Address="2001:db8::7"), names=[*NAMES, "originalExporterIPv6Address"], peer="::1"
    )
    assert harness.stored()[1]["originalExporterIPv6Address"] == "2001:db8::7"
    harness.send(record(1, originalExporterIPv4Address="0.0.0.0"), names=[*NAMES, "originalExporterIPv4Address"])
    assert harness.stored()[2]["originalExporterIPv4Address"] == "192.0.2.1"


@pytest.mark.parametrize("peer", ["192.0.2.1", "::ffff:192.0.2.1"])
def test_a_peer_is_one_original_exporter_however_its_socket_names_it(peer: str) -> None:
    harness = Harness()
    harness.send(record(1), names=NAMES, peer=peer)
    assert one(harness)["originalExporterIPv4Address"] == "192.0.2.1"


@pytest.mark.parametrize(("peer", "told"), [("", "::"), ("fe80::1%eth0", "fe80::1")])
def test_a_file_has_no_exporter_and_a_zone_says_nothing(peer: str, told: str) -> None:
    harness = Harness()
    harness.send(record(1), names=NAMES, peer=peer)
    assert one(harness)["originalExporterIPv6Address"] == told


def test_icmp_is_told_apart_by_type_and_code_however_they_are_sent() -> None:
    harness = Harness()
    addresses = NAMES[:2]
    icmp = {name: KEY[name] for name in addresses} | {"protocolIdentifier": 1}
    harness.send(
        icmp | {"icmpTypeCodeIPv4": 0x0800, "octetDeltaCount": 84},
        icmp | {"icmpTypeCodeIPv4": 0x0303, "octetDeltaCount": 10},
        names=[*addresses, "protocolIdentifier", "icmpTypeCodeIPv4", "octetDeltaCount"],
    )
    harness.send(
        icmp | {"icmpTypeIPv4": 8, "icmpCodeIPv4": 0, "octetDeltaCount": 16},
        names=[*addresses, "protocolIdentifier", "icmpTypeIPv4", "icmpCodeIPv4", "octetDeltaCount"],
    )
    assert [
        [row[name] for name in ("icmpTypeIPv4", "icmpCodeIPv4", "icmpTypeCodeIPv4", "octetDeltaCount")]
        for row in harness.stored()
    ] == [[8, 0, 0x0800, 100], [3, 3, 0x0303, 10]]
    assert "sourceTransportPort" not in harness.statistics.elements_absent  # ICMP has no ports
    found = harness.kernel.lookup(
        FlowKey(
            source="10.0.0.1",
            destination="10.0.0.2",
            protocol_identifier=1,
            original_exporter="192.0.2.1",
            observation_domain_id=1,
            icmp_type_code=0x0800,
        )
    )
    assert found is not None
    assert found.column("octetDeltaCount")[0] == 100


def test_icmpv6_has_elements_of_its_own() -> None:
    harness = Harness()
    harness.send(
        {
            "sourceIPv6Address": "2001:db8::1",
            "destinationIPv6Address": "2001:db8::2",
            "protocolIdentifier": 58,
            "icmpTypeIPv6": 128,
            "icmpCodeIPv6": 1,
        },
        names=["sourceIPv6Address", "destinationIPv6Address", "protocolIdentifier", "icmpTypeIPv6", "icmpCodeIPv6"],
    )
    row = one(harness)
    assert (row["icmpTypeIPv6"], row["icmpCodeIPv6"], row["icmpTypeCodeIPv6"]) == (128, 1, 128 * 256 + 1)


def test_no_absent_element_is_a_reason_to_drop() -> None:
    harness = Harness()
    harness.send({"vlanId": 7}, {"vlanId": 8}, names=["vlanId"])
    row = one(harness)
    assert (row["sourceIPv4Address"], row["vlanId"], row["octetDeltaCount"]) == ("0.0.0.0", 8, 0)
    assert (row["flowStartSeconds"], row["flowEndSeconds"]) == (EXPORTED, EXPORTED)
    assert harness.statistics.records_rejected == {}
    assert harness.statistics.elements_absent == dict.fromkeys(
        (
            "sourceIPv4Address",
            "destinationIPv4Address",
            "protocolIdentifier",
            "sourceTransportPort",
            "destinationTransportPort",
            "flowStartMilliseconds",
            "flowEndMilliseconds",
            "octetDeltaCount",
            "packetDeltaCount",
        ),
        2,
    )


def test_a_lone_address_tells_the_family() -> None:
    harness = Harness()
    harness.send({"destinationIPv6Address": "2001:db8::2"}, names=["destinationIPv6Address"])
    harness.send({"destinationIPv4Address": "10.0.0.2"}, names=["destinationIPv4Address", "sourceIPv6Address"])
    assert [len(row.get("sourceIPv6Address", "")) for row in harness.stored()] == [2, 0]


def test_flags_gather_and_other_elements_follow_the_latest_record() -> None:
    harness = Harness()
    names = [*NAMES, "tcpControlBits", "vlanId", "flowEndReason", "sourceMacAddress", "flowDirection"]
    first = record(1, tcpControlBits=0x02, vlanId=5, flowEndReason=3, flowDirection=1, sourceMacAddress=b"\x02" * 6)
    harness.send(first, names=names)
    harness.send(record(1, end=3000, tcpControlBits=0x11, vlanId=6, flowEndReason=2), names=names)
    harness.send(record(1, end=2500, tcpControlBits=0x08, vlanId=9, flowEndReason=1), names=names)  # earlier
    harness.send(record(1, end=4000), names=NAMES)  # without the elements
    row = one(harness)
    assert [row[name] for name in ("tcpControlBits", "vlanId", "flowEndReason", "flowDirection")] == [0x1B, 6, 2, 0]


def test_a_flow_that_ends_before_it_begins_ends_when_it_begins_and_is_counted() -> None:
    harness = Harness()
    harness.send(record(1, start=2000, end=1995), names=NAMES)
    row = one(harness)
    assert row["flowStartMilliseconds"] == row["flowEndMilliseconds"] == EXPORTED * 1000 + 1995
    assert harness.statistics.times_clamped == 1


def test_the_earliest_start_and_the_latest_end_are_kept() -> None:
    harness = Harness()
    harness.send(record(1, start=1000, end=2000), record(1, start=500, end=800), names=NAMES)
    row = one(harness)
    assert (row["flowStartMilliseconds"] % 10000, row["flowEndMilliseconds"] % 10000) == (500, 2000)


def test_times_beyond_any_calendar_fit_their_columns() -> None:
    harness = Harness()
    harness.send(KEY | {"flowStartMilliseconds": 2**64 - 1, "flowEndMilliseconds": 2**64 - 1}, names=NAMES)
    (row,) = harness.rows()
    assert (row["flowEndMilliseconds"], row["flowEndSeconds"]) == (2**64 - 1, 2**32 - 1)


def test_plain_flows_and_antreas_share_the_table_and_its_clock() -> None:
    harness = Harness(limits=KernelLimits(active_timeout=10, idle_timeout=15))
    harness.send(record(1), names=NAMES)
    assert len(harness.rows(0)) == 1
    assert harness.rows(10) == []
    assert harness.rows(15) == []
    assert harness.statistics.flows_exported_last == 1


# The cases below are of the shared list of wire cases: Messages as real exporters send them.
def test_icmp_without_ports_is_a_flow() -> None:
    harness = Harness()
    harness.send_message(
        bytes.fromhex(
            "000a00436553f10000000000000000010002001c0100000500080004000c0004000400010020000200010008010000170a000001"
            "0a0000020108000000000000000054"
        )
    )
    row = one(harness)
    assert (row["sourceIPv4Address"], row["protocolIdentifier"], row["icmpTypeCodeIPv4"], row["octetDeltaCount"]) == (
        "10.0.0.1",
        1,
        2048,
        84,
    )


def test_totals_alone_and_no_counter_at_all_are_flows() -> None:
    harness = Harness()
    harness.send_message(
        bytes.fromhex(
            "000a005c6553f1000000000000000001000200240100000400080004000c00040055000800560008010100020008"
            "0004000c00040100001c0a0000010a000002000000000000138800000000000000320101000c0a0000010a000002"
        )
    )
    assert harness.statistics.records_received == 2
    row = one(harness)
    assert (row["octetDeltaCount"], row["packetTotalCount"]) == (5000, 50)


def test_an_address_in_the_mapped_form_stays_ipv6() -> None:
    harness = Harness()
    harness.send_message(
        bytes.fromhex(
            "000a00446553f1000000000000000001000200100100000200"
            "1b0010001c00100100002400000000000000000000ffff0a00000100000000000000000000ffff0a000002"
        )
    )
    row = one(harness)
    assert (row["sourceIPv6Address"], row["destinationIPv6Address"]) == ("::ffff:10.0.0.1", "::ffff:10.0.0.2")


def test_of_both_families_the_zero_side_is_absent() -> None:
    harness = Harness()
    harness.send_message(
        bytes.fromhex(
            "000a00656553f1000000000000000001000200200100000600080004001b0010000c0004001c0010000400010001000801000035"
            "00000000fd00000000000000000000000000000100000000fd000000000000000000000000000002060000000000000009"
        )
    )
    row = one(harness)
    assert (row["sourceIPv6Address"], row["octetDeltaCount"]) == ("fd00::1", 9)


def test_a_conntrack_entry_that_was_replaced_gives_no_huge_delta() -> None:
    harness = Harness()
    cases = json.loads((Path(__file__).parents[2] / "data" / "wire-cases.json").read_text())
    (found,) = (case for case in cases if case["id"] == "antrea-delta-underflow")
    deltas = []
    for sent in found["messages"]:
        harness.send_message(bytes.fromhex(sent["hex"]))
        deltas += [row["octetDeltaCount"] for row in harness.rows(harness.now + 60)]
    assert deltas == [1000, 0]


@pytest.mark.parametrize(
    ("case", "start", "end"),
    [
        ("time-seconds-top-bit", 2_147_483_648_000, 4_294_967_295_000),
        ("time-ntp-era1", 2_085_978_596_000, None),
        ("time-delta-micros", 1_699_999_997_000, 1_699_999_999_000),
        ("time-end-before-start", 1_699_999_999_995, 1_699_999_999_995),
    ],
)
def test_times_that_others_misread_are_the_right_instants(case: str, start: int, end: int | None) -> None:
    cases = json.loads((Path(__file__).parents[2] / "data" / "wire-cases.json").read_text())
    (found,) = (each for each in cases if each["id"] == case)
    harness = Harness()
    for sent in found["messages"]:
        harness.send_message(bytes.fromhex(sent["hex"]))
    row = one(harness)
    assert row["flowStartMilliseconds"] == start
    if end is not None:
        assert row["flowEndMilliseconds"] == end
    assert harness.statistics.times_clamped == (case == "time-end-before-start")


def test_extra_elements_follow_their_merge_rules() -> None:
    def element(number: int, name: str, rule: MergeRule) -> InformationElement:
        hand_made.FIELDS[name] = (number, 32473, 2)
        return InformationElement(
            name=name,
            element_id=ElementId(number),
            enterprise_number=EnterpriseNumber(32473),
            data_type=DataType.UNSIGNED16,
            merge_rule=rule,
        )

    elements = [
        element(21, "plainSum", MergeRule.SUM),
        element(22, "plainFill", MergeRule.FILL),
        element(23, "plainMaximum", MergeRule.MAX),
    ]
    names = [each.name for each in elements]
    harness = Harness(elements=elements, extra=names)
    harness.send(record(1, plainSum=40_000, plainFill=5, plainMaximum=3), names=[*NAMES, *names])
    harness.send(record(1, plainSum=40_000, plainFill=0, plainMaximum=9), names=[*NAMES, *names])
    row = one(harness)
    assert [row[name] for name in names] == [65_535, 5, 9]  # the most that two octets can say
    harness.send(record(1, plainFill=6, plainMaximum=8), names=[*NAMES, *names[1:]])
    harness.expire()
    assert [one(harness)[name] for name in names] == [0, 6, 9]


def test_octets_of_any_length_may_be_an_extra_element() -> None:
    hand_made.FIELDS["mplsTopLabelStackSection"] = (70, 0, 3)
    harness = Harness(extra=["mplsTopLabelStackSection"])
    names = [*NAMES, "mplsTopLabelStackSection"]
    harness.send(record(1, mplsTopLabelStackSection=b"abc"), names=names)
    harness.send(record(1, sourceTransportPort=9), names=NAMES)
    assert [row["mplsTopLabelStackSection"] for row in harness.rows()] == ["616263", ""]


def test_many_peers_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original_exporters, "_MAXIMUM_REMEMBERED", 2)
    harness = Harness()
    for peer in ("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.1"):
        harness.send(record(1), names=NAMES, peer=peer)
    assert [row["originalExporterIPv4Address"] for row in harness.stored()] == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]


def test_names_that_an_enricher_adds_stay_while_records_go_on_without_them() -> None:
    names = ("sourcePodName", "sourcePodNamespace", "sourcePodLabels", "destinationNodeName")
    harness = Harness(extra=names, is_enriched=True)
    harness.send(record(100), names=NAMES)
    (batch,) = harness.expire()
    assert batch.is_first_export
    given = {"sourcePodName": ["web-1"], "sourcePodNamespace": ["shop"], "sourcePodLabels": ['{"app":"web"}']}
    harness.kernel.store_enriched(batch, given)
    harness.send(record(50, end=3000), names=NAMES)
    (batch,) = harness.expire(60)
    assert not batch.is_first_export
    (row,) = batch.to_dicts()
    assert row["octetDeltaCount"] == 50
    assert tuple(row[name] for name in names) == ("web-1", "shop", '{"app":"web"}', "")
