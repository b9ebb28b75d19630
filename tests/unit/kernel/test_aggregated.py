"""Joining and merging, on records made by hand; the figures are those of Antrea's flow aggregator."""

from __future__ import annotations

from typing import Any

import pytest
from hand_made import AGENT, AGENT_IPV6, D1, D2, S1, S2, Record, data_set, message, template_set
from kernel_harness import Harness

from flowjoin._kernel import KernelLimits
from flowjoin._model.flow_key import FlowFilter, FlowKey
from flowjoin._model.information_element import DataType, ElementId, EnterpriseNumber, InformationElement, MergeRule

pytestmark = pytest.mark.usefixtures("kernel_form")

SHORT = KernelLimits(active_timeout=0.1, idle_timeout=0.15)
KEY = FlowKey(source="10.0.0.1", destination="10.0.0.2", protocol_identifier=6, source_port=1234, destination_port=5678)
DROP, REJECT = 2, 3
SIDES = ("", "FromSourceNode", "FromDestinationNode")


def one(harness: Harness) -> dict[str, Any]:
    (row,) = harness.stored()
    return row


def statistics_of(row: dict[str, Any], side: str) -> dict[str, int]:
    names = ("packetTotalCount", "packetDeltaCount", "octetTotalCount", "octetDeltaCount")
    return {name: row[name + side] for name in names}


def test_a_template_alone_makes_no_flow() -> None:
    harness = Harness(limits=SHORT)
    harness.send_message(message(template_set(AGENT)))
    assert harness.statistics.flows_held == 0
    assert harness.kernel.next_expiry() is None


def test_a_half_alone_waits_with_its_own_side_told() -> None:
    harness = Harness(limits=SHORT)
    harness.send(S1)
    row = one(harness)
    assert harness.statistics.flows_waiting == 1
    assert (row["throughput"], row["throughputFromSourceNode"], row["throughputFromDestinationNode"]) == (8000, 8000, 0)
    assert statistics_of(row, "FromSourceNode") == statistics_of(row, "")
    assert set(statistics_of(row, "FromDestinationNode").values()) == {0}
    assert (row["flowEndSecondsFromSourceNode"], row["flowEndSecondsFromDestinationNode"]) == (1, 0)
    assert harness.kernel.next_expiry() == 0.1
    assert harness.rows(0.05) == []


def test_the_key_is_the_5_tuple_in_canonical_text() -> None:
    harness = Harness(limits=SHORT)
    harness.send(S1)
    found = harness.kernel.lookup(KEY)
    assert found is not None
    assert found.address_text("source")[0] == "10.0.0.1"
    harness.send(S1, names=AGENT_IPV6)
    assert harness.statistics.flows_held == 2
    found = harness.kernel.lookup(
        FlowKey(
            source="2001:0:3238:dfe1:63::fefb",
            destination="2001:0000:3238:DFE1:0063:0000:0000:FEFC",
            protocol_identifier=6,
            source_port=1234,
            destination_port=5678,
        )
    )
    assert found is not None
    assert found.address_text("source")[0] == "2001:0:3238:dfe1:63::fefb"


@pytest.mark.parametrize("names", [AGENT, AGENT_IPV6], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("halves", [(S1, D1), (D1, S1)], ids=["source first", "destination first"])
def test_two_halves_are_joined_in_either_order(names: list[str], halves: tuple[Record, Record]) -> None:
    harness = Harness(limits=SHORT)
    harness.send(halves[0], names=names)
    harness.now = 0.01
    harness.send(halves[1], names=names)
    assert harness.statistics.flows_held == 1
    assert harness.statistics.flows_waiting == 0
    assert harness.kernel.next_expiry() == 0.01  # ready: it leaves at the next expiry
    (row,) = harness.rows(0.01)
    assert (row["sourcePodName"], row["destinationPodName"], row["destinationServicePort"]) == ("pod1", "pod2", 4739)
    cluster = row["destinationClusterIPv4" if names is AGENT else "destinationClusterIPv6"]
    assert cluster == ("192.168.0.1" if names is AGENT else "2001:0:3238:bbbb:63::aaaa")
    assert (row["packetTotalCount"], row["octetTotalCount"]) == (502, 1020)
    assert (row["flowEndSeconds"], row["flowEndSecondsFromSourceNode"], row["flowEndSecondsFromDestinationNode"]) == (
        1,
        1,
        1,
    )
    assert (row["throughputFromSourceNode"], row["throughputFromDestinationNode"]) == (8000, 8160)
    if halves[0] is S1:
        assert (row["throughput"], row["reverseThroughput"]) == (8160, 8160)
    # the idle deadline moved with the second half
    assert harness.kernel.next_expiry() == pytest.approx(0.11)
    assert harness.rows(0.11) == []
    assert harness.kernel.next_expiry() == pytest.approx(0.16)
    assert harness.rows(0.16) == []
    assert harness.statistics.flows_held == 0


@pytest.mark.parametrize(
    ("half", "field", "action", "missing"),
    [
        (S1, "egressNetworkPolicyRuleAction", DROP, "destinationPodName"),
        (S1, "egressNetworkPolicyRuleAction", REJECT, "destinationPodName"),
        (D1, "ingressNetworkPolicyRuleAction", REJECT, "sourcePodName"),
    ],
)
def test_a_denied_flow_waits_for_nothing(half: Record, field: str, action: int, missing: str) -> None:
    harness = Harness(limits=SHORT)
    harness.now = 5.0
    harness.send(half | {field: action})
    assert harness.kernel.next_expiry() == 5.0
    (row,) = harness.rows()
    assert row[missing] == ""
    assert row[field] == action
    assert statistics_of(row, "FromSourceNode") == statistics_of(row, "FromDestinationNode") == statistics_of(row, "")
    assert row["throughput"] == row["throughputFromSourceNode"] == row["throughputFromDestinationNode"]


def test_what_the_ingress_node_dropped_the_source_node_saw_too() -> None:
    harness = Harness(limits=SHORT)
    harness.send(S1)
    harness.send(D1 | {"ingressNetworkPolicyRuleAction": DROP})
    (row,) = harness.rows()
    assert (row["sourcePodName"], row["destinationPodName"]) == ("pod1", "pod2")
    assert row["ingressNetworkPolicyRuleAction"] == DROP


@pytest.mark.parametrize("flow_type", [0, 1, 3, 4, 11])
def test_a_flow_that_does_not_go_between_nodes_is_ready_at_once(flow_type: int) -> None:
    harness = Harness(limits=SHORT)
    harness.now = 2.0
    harness.send(S1 | DESTINATION_TOO | {"flowType": flow_type})
    assert harness.kernel.next_expiry() == 2.0
    assert len(harness.rows()) == 1
    assert harness.kernel.next_expiry() == pytest.approx(2.1)
    harness.expire(2.1)
    assert harness.kernel.next_expiry() == pytest.approx(2.15)
    harness.expire(2.15)
    assert harness.statistics.flows_exported_last == 1


DESTINATION_TOO: Record = {"destinationPodName": "pod2"}


def test_the_worked_example_adds_up() -> None:
    harness = Harness(limits=SHORT)
    for step, record in enumerate((S1, D1, S2, D2)):
        harness.now = step * 0.01
        harness.send(record)
    assert harness.kernel.next_expiry() == 0.01  # the time of D1, which made it ready
    (row,) = harness.rows()
    assert statistics_of(row, "") == statistics_of(row, "FromDestinationNode")
    assert statistics_of(row, "FromDestinationNode") == {
        "packetTotalCount": 1005,
        "packetDeltaCount": 503,
        "octetTotalCount": 2050,
        "octetDeltaCount": 1030,
    }
    assert statistics_of(row, "FromSourceNode") == {
        "packetTotalCount": 1000,
        "packetDeltaCount": 500,
        "octetTotalCount": 2000,
        "octetDeltaCount": 1000,
    }
    for side in SIDES:  # the example's reverse counters equal the forward ones
        for counter in ("PacketTotalCount", "PacketDeltaCount", "OctetTotalCount", "OctetDeltaCount"):
            assert row[f"reverse{counter}{side}"] == row[f"{counter[0].lower()}{counter[1:]}{side}"]
    assert [row[f"throughput{side}"] for side in SIDES] == [915, 888, 915]
    assert [row[f"reverseThroughput{side}"] for side in SIDES] == [915, 888, 915]
    assert (row["flowEndReason"], row["tcpState"], row["flowEndSeconds"]) == (3, "TIME_WAIT", 10)
    assert harness.kernel.next_expiry() == pytest.approx(0.03 + 0.1)
    harness.expire(0.13)
    assert harness.kernel.next_expiry() == pytest.approx(0.03 + 0.15)  # 150 ms after D2


def test_after_an_export_deltas_and_throughputs_restart_and_all_else_stays() -> None:
    harness = Harness()
    harness.send(S1, D1, S2, D2)
    harness.expire()
    row = one(harness)
    for side in SIDES:
        for name in ("octetDeltaCount", "packetDeltaCount", "reverseOctetDeltaCount", "reversePacketDeltaCount"):
            assert row[name + side] == 0
        assert row[f"throughput{side}"] == row[f"reverseThroughput{side}"] == 0
    assert (row["octetTotalCount"], row["octetTotalCountFromSourceNode"]) == (2050, 2000)
    assert (row["flowEndSeconds"], row["tcpState"], row["sourcePodName"]) == (10, "TIME_WAIT", "pod1")


def test_stored_flows_are_found_by_family_key_and_address() -> None:
    harness = Harness(limits=SHORT)
    for names in (AGENT, AGENT_IPV6):
        harness.send(S1, D1, names=names)
    assert len(harness.stored()) == 2
    for row in harness.stored():
        assert (row["sourceTransportPort"], row["destinationTransportPort"], row["protocolIdentifier"]) == (
            1234,
            5678,
            6,
        )
        assert (row["sourcePodName"], row["destinationPodName"], row["destinationServicePort"]) == (
            "pod1",
            "pod2",
            4739,
        )
        assert [row[name] for name in ("flowStartSeconds", "flowEndSeconds", "flowType", "flowEndReason")] == [
            0,
            1,
            2,
            2,
        ]
        assert (row["tcpState"], row["packetTotalCount"], row["octetTotalCount"]) == ("ESTABLISHED", 502, 1020)
        assert [row[f"throughput{side}"] for side in SIDES] == [8160, 8000, 8160]
    full = FlowFilter(
        source="10.0.0.1", destination="10.0.0.2", protocol_identifier=6, source_port=1234, destination_port=5678
    )
    for question in (full, FlowFilter(source="2001:0:3238:dfe1:63::fefb")):
        batches, cursor = harness.kernel.scan(question, 0, 100)
        assert cursor is None
        assert [len(batch) for batch in batches] == [1]
    for question in (FlowFilter(source="10.0.0.9"), FlowFilter(destination_port=1), FlowFilter(source="no address")):
        assert harness.kernel.scan(question, 0, 100) == ([], None)


def test_a_record_that_ends_at_0_is_accepted() -> None:
    harness = Harness(limits=SHORT)
    harness.send(S1 | {"flowEndSeconds": 0})
    assert harness.statistics.flows_created == 1
    assert one(harness)["throughput"] == 0


def test_a_flow_that_does_not_exist_is_not_found() -> None:
    harness = Harness()
    harness.send(S1)
    for question in (
        FlowKey(source="10.0.0.1", destination="10.0.0.2", protocol_identifier=17, source_port=1234),
        FlowKey(source="10.0.0.1", destination="nowhere", protocol_identifier=6),
        FlowKey(source="10.0.0.1", destination="10.0.0.2", protocol_identifier=6, source_port=70_000),
    ):
        assert harness.kernel.lookup(question) is None


def test_a_signed_extra_element_is_filled_when_halves_meet() -> None:
    priority = InformationElement(
        name="testRulePriority",
        element_id=ElementId(1),
        enterprise_number=EnterpriseNumber(32473),
        data_type=DataType.SIGNED32,
        merge_rule=MergeRule.FILL,
    )
    harness = Harness(elements=(priority,), extra=("testRulePriority",))
    names = [*AGENT, "testRulePriority"]
    import hand_made

    hand_made.FIELDS["testRulePriority"] = (1, 32473, 4)
    hand_made._SIGNED.add("testRulePriority")
    harness.send(S1 | {"testRulePriority": 0}, D1 | {"testRulePriority": 50_000}, names=names)
    assert one(harness)["testRulePriority"] == 50_000


def test_a_sides_first_throughput_is_over_the_time_since_the_flow_began() -> None:
    # The other half comes later, for a flow that does not begin at 0: 1020 octets in 10 s.
    harness = Harness(limits=SHORT)
    harness.send(S1 | {"flowStartSeconds": 100, "flowEndSeconds": 105})
    harness.send(D1 | {"flowStartSeconds": 100, "flowEndSeconds": 110})
    row = one(harness)
    assert row["throughputFromSourceNode"] == 1000 * 8 // 5
    assert row["throughputFromDestinationNode"] == row["throughput"] == 1020 * 8 // 10


def test_a_source_half_that_comes_second_has_its_throughput_since_the_flow_began() -> None:
    harness = Harness(limits=SHORT)
    harness.send(D1 | {"flowStartSeconds": 100, "flowEndSeconds": 110})
    harness.send(S1 | {"flowStartSeconds": 100, "flowEndSeconds": 120})
    row = one(harness)
    assert row["throughputFromSourceNode"] == row["throughput"] == 1000 * 8 // 20
    assert row["throughputFromDestinationNode"] == 1020 * 8 // 10


@pytest.mark.parametrize("pods", [("", ""), ("pod1", "pod2")], ids=["no pod named", "both named"])
def test_halves_that_do_not_tell_their_node_are_never_taken_for_the_same_nodes(pods: tuple[str, str]) -> None:
    harness = Harness(limits=SHORT)
    record = S1 | {"sourcePodName": pods[0], "destinationPodName": pods[1]}
    harness.send(record)
    assert harness.statistics.flows_waiting == 1
    harness.send(record | {"flowEndSeconds": 2})
    assert harness.statistics.flows_waiting == 0


def test_a_half_that_stays_alone_is_given_up_at_its_third_expiry() -> None:
    harness = Harness()
    harness.send(S1)
    for now, held in ((59.9, 1), (60.0, 1), (120.0, 1), (179.9, 1), (180.0, 0)):
        assert harness.rows(now) == []
        assert harness.statistics.flows_held == held, now
    assert harness.statistics.flows_given_up == 1
    assert harness.statistics.rows == 0


def test_records_of_the_same_node_do_not_make_a_half_ready_but_postpone_its_idle_deadline() -> None:
    harness = Harness(limits=KernelLimits(active_timeout=100, idle_timeout=90))
    harness.send(S1)
    assert harness.kernel.next_expiry() == 90
    harness.now = 80
    harness.send(S2)
    assert harness.statistics.flows_waiting == 1
    assert harness.kernel.next_expiry() == 100  # the active deadline stays
    assert one(harness)["octetTotalCount"] == 2000


def test_a_ready_flow_leaves_at_once_then_only_with_new_data_and_is_deleted_when_idle() -> None:
    harness = Harness()
    harness.send(S1 | {"flowType": 3})
    assert len(harness.rows(0)) == 1
    assert harness.rows(60) == []
    harness.now = 61
    harness.send(S2 | {"flowType": 3})
    assert harness.rows(100) == []
    assert [row["octetDeltaCount"] for row in harness.rows(120)] == [1000]
    assert harness.rows(150.9) == []
    assert harness.statistics.flows_held == 1
    assert harness.rows(151) == []
    assert harness.statistics.flows_exported_last == 1


def test_a_denying_record_of_a_waiting_flow_does_not_make_it_ready() -> None:
    harness = Harness()
    harness.send(S1)
    harness.send(S2 | {"egressNetworkPolicyRuleAction": DROP})
    assert harness.statistics.flows_waiting == 1
    row = one(harness)
    assert row["octetTotalCountFromSourceNode"] == row["octetTotalCountFromDestinationNode"] == 2000


def test_a_record_no_newer_than_its_side_changes_no_counter_but_makes_an_export() -> None:
    harness = Harness()
    harness.send(S1, D1)
    harness.expire()
    harness.send(S1)
    assert harness.statistics.records_older == 1
    assert one(harness)["octetTotalCount"] == 1020
    assert len(harness.rows(60)) == 1


def test_an_older_record_of_the_other_side_changes_that_side_alone() -> None:
    harness = Harness()
    harness.send(S2, D1)
    row = one(harness)
    assert (row["octetTotalCount"], row["octetTotalCountFromDestinationNode"]) == (2000, 1020)
    assert (row["flowEndSeconds"], row["flowEndSecondsFromDestinationNode"]) == (10, 1)
    assert (row["throughput"], row["throughputFromDestinationNode"]) == (1600, 8160)
    assert row["tcpState"] == "TIME_WAIT"


def test_the_end_of_a_flow_is_never_taken_back() -> None:
    harness = Harness()
    harness.send(S1 | {"flowEndReason": 3}, D2 | {"flowEndReason": 2})
    assert one(harness)["flowEndReason"] == 3


def test_the_first_half_to_come_tells_what_is_not_joined() -> None:
    harness = Harness()
    harness.send(S1 | {"egressName": "egress-a", "egressIP": "172.18.0.1"}, D1 | {"egressName": "egress-b"})
    row = one(harness)
    assert (row["egressName"], row["egressIP"]) == ("egress-a", "172.18.0.1")


def test_a_total_that_goes_back_gives_no_throughput_and_is_counted() -> None:
    harness = Harness()
    harness.send(S2 | {"flowType": 1}, S2 | {"flowType": 1, "flowEndSeconds": 11, "octetTotalCount": 500})
    row = one(harness)
    assert row["throughput"] == 0
    assert (row["octetTotalCount"], row["octetTotalCountFromSourceNode"]) == (2000, 500)
    assert harness.statistics.counters_clamped == 1


def test_a_negative_delta_counts_as_nothing() -> None:
    harness = Harness()
    harness.send(S1 | {"flowType": 1, "octetDeltaCount": 2**64 - 500})
    harness.send(S2 | {"flowType": 1, "reversePacketDeltaCount": 2**63})
    row = one(harness)
    assert (row["octetDeltaCount"], row["reversePacketDeltaCount"]) == (1000, 0)
    assert harness.statistics.counters_clamped == 2


def test_hostile_counters_stay_in_64_bits() -> None:
    harness = Harness()
    top: Record = dict.fromkeys(("octetTotalCount", "packetTotalCount", "reverseOctetTotalCount"), 2**64 - 1)
    big: Record = dict.fromkeys(("octetDeltaCount", "packetDeltaCount"), 2**63 - 1)
    harness.send(S1 | top | big | {"flowType": 1})
    for end in (10, 11, 12):
        harness.send(S2 | top | big | {"flowType": 1, "flowEndSeconds": end})
    row = one(harness)
    assert row["octetTotalCount"] == 2**64 - 1
    assert row["octetDeltaCount"] == (4 * (2**63 - 1)) % 2**64
    assert len(harness.rows()) == 1


def test_differences_over_2_to_the_63_are_right() -> None:
    harness = Harness()
    harness.send(S1 | {"flowType": 1, "octetTotalCount": 2**63 + 1})
    harness.send(S2 | {"flowType": 1, "flowEndSeconds": 2, "octetTotalCount": 2**63 + 101})
    assert one(harness)["throughput"] == 800


@pytest.mark.parametrize("absent", ["flowStartSeconds", "flowEndSeconds"])
def test_a_record_without_a_time_is_rejected(absent: str) -> None:
    harness = Harness()
    harness.send(S1, D1, names=[name for name in AGENT if name != absent])
    assert harness.statistics.records_rejected == {"time_absent": 2}


@pytest.mark.parametrize("absent", ["sourceIPv4Address", "destinationIPv4Address"])
def test_a_record_without_an_address_is_rejected(absent: str) -> None:
    harness = Harness()
    harness.send(S1, names=[name for name in AGENT if name != absent])
    assert harness.statistics.records_rejected == {"address_absent": 1}


def test_absent_ports_are_0() -> None:
    harness = Harness()
    harness.send(S1, names=[name for name in AGENT if "TransportPort" not in name])
    assert (one(harness)["sourceTransportPort"], one(harness)["destinationTransportPort"]) == (0, 0)


def test_of_two_families_the_one_that_is_not_all_zero_counts() -> None:
    both = [*AGENT, "sourceIPv6Address", "destinationIPv6Address", "destinationClusterIPv6"]
    harness = Harness()
    of_ipv4 = S1 | {"sourceIPv6Address": "::", "destinationIPv6Address": "::"}
    of_ipv6 = S1 | {"sourceIPv4Address": "0.0.0.0", "destinationIPv4Address": "0.0.0.0"}
    harness.send(of_ipv4, of_ipv6, S1, names=both)
    harness.send(D1 | {"sourceIPv4Address": "0.0.0.0", "destinationIPv4Address": "0.0.0.0"}, names=both)
    assert harness.statistics.flows_held == 2  # with both families told, IPv4 wins
    (row,) = harness.rows()
    assert row["sourceIPv6Address"] == "2001:0:3238:dfe1:63::fefb"
    assert row["destinationClusterIPv6"] == "2001:0:3238:bbbb:63::aaaa"
    assert (row["octetTotalCount"], row["sourcePodName"], row["destinationPodName"]) == (1020, "pod1", "pod2")


# From-external flows: the Node that takes the connection forwards it, with source NAT, to a Pod elsewhere.
T = 1_700_000_000
EXTERNAL: Record = {
    "flowType": 4,
    "sourceIPv4Address": "172.18.0.1",
    "sourceTransportPort": 38746,
    "destinationIPv4Address": "10.244.1.3",
    "destinationTransportPort": 80,
    "protocolIdentifier": 6,
    "proxySnatIPv4": "10.244.2.1",
    "proxySnatPort": 52391,
    "destinationServiceIPv4": "172.18.0.2",
    "destinationClusterIPv4": "172.18.0.2",
    "destinationServicePort": 82,
    "destinationServicePortName": "namespace/service-name:serviceportname",
    "flowStartSeconds": T,
    "flowEndSeconds": T + 60,
}
AT_THE_POD: Record = {
    "flowType": 2,
    "sourceIPv4Address": "10.244.2.1",
    "sourceTransportPort": 52391,
    "destinationIPv4Address": "10.244.1.3",
    "destinationTransportPort": 80,
    "protocolIdentifier": 6,
    "destinationPodNamespace": "some-namespace",
    "destinationPodName": "nginx-deployment-HASH",
    "flowStartSeconds": T,
    "flowEndSeconds": T + 120,
}
SNAT_KEY = FlowKey(
    source="10.244.2.1", destination="10.244.1.3", protocol_identifier=6, source_port=52391, destination_port=80
)


@pytest.mark.parametrize("halves", [(EXTERNAL, AT_THE_POD), (AT_THE_POD, EXTERNAL)], ids=["outside first", "pod first"])
def test_the_halves_of_a_flow_from_outside_meet_at_the_snat_address(halves: tuple[Record, Record]) -> None:
    harness = Harness()
    harness.send(halves[0])
    assert harness.kernel.lookup(SNAT_KEY) is not None
    assert harness.rows() == []
    harness.send(halves[1])
    (row,) = harness.rows()
    assert row["flowType"] == 4
    assert (row["sourceIPv4Address"], row["sourceTransportPort"]) == ("172.18.0.1", 38746)
    assert (row["proxySnatIPv4"], row["proxySnatPort"]) == ("10.244.2.1", 52391)
    assert (row["destinationPodNamespace"], row["destinationPodName"]) == ("some-namespace", "nginx-deployment-HASH")
    assert (row["destinationServiceIPv4"], row["destinationClusterIPv4"]) == ("172.18.0.2", "172.18.0.2")
    assert row["destinationServicePort"] == 82
    assert row["destinationServicePortName"] == "namespace/service-name:serviceportname"
    assert row["flowEndSeconds"] == T + 120
    # and later records of either Node go on meeting there
    harness.send(EXTERNAL | {"flowEndSeconds": T + 180}, AT_THE_POD | {"flowEndSeconds": T + 190})
    assert harness.statistics.flows_held == 1
    assert one(harness)["sourceIPv4Address"] == "172.18.0.1"


@pytest.mark.parametrize(
    ("record", "waits"),
    [
        (EXTERNAL, True),
        ({name: value for name, value in EXTERNAL.items() if name != "proxySnatIPv4"}, False),
        (EXTERNAL | {"destinationPodName": "pod"}, False),  # one Node sees it all
        (EXTERNAL | {"flowType": 3}, False),
        (EXTERNAL | {"ingressNetworkPolicyRuleAction": REJECT}, False),
        (AT_THE_POD, True),
    ],
)
def test_only_the_outer_half_of_a_flow_from_outside_waits(record: Record, waits: bool) -> None:
    harness = Harness()
    harness.send(record)
    assert harness.statistics.flows_waiting == waits


V = (
    '"{hostname:10.10.0.1,url:/public/,http_user_agent:curl/7.74.0,http_content_type:text/html,'
    'http_method:GET,protocol:HTTP/1.1,status:200,length:153}"'
)


def with_http(*values: str) -> Harness:
    harness = Harness()
    names = [*AGENT, "appProtocolName", "httpVals"]
    for end, value in enumerate(values, start=1):
        harness.send(S1 | {"flowType": 1, "flowEndSeconds": end, "httpVals": value}, names=names)
    return harness


def test_http_transactions_of_all_records_are_kept() -> None:
    assert one(with_http('{"0":' + V + "}", '{"1":' + V + "}"))["httpVals"] == '{"0":' + V + ',"1":' + V + "}"


def test_http_text_that_is_no_such_json_is_replaced_and_counted() -> None:
    harness = with_http("mockHttpString", '{"1":2}')
    assert one(harness)["httpVals"] == '{"1":2}'
    assert harness.statistics.http_vals_replaced == 1


def test_records_without_the_http_element_leave_it_alone() -> None:
    harness = with_http('{"1":2}')
    harness.send(S1 | {"flowType": 1, "flowEndSeconds": 9})
    assert one(harness)["httpVals"] == '{"1":2}'


def test_our_cluster_is_told_unless_the_record_tells_its_own() -> None:
    harness = Harness(cluster_id="ours")
    names = [*AGENT, "clusterId"]
    harness.send(
        S1 | {"flowType": 1, "clusterId": "theirs"}, S1 | {"flowType": 1, "sourceTransportPort": 1}, names=names
    )
    harness.send(S1 | {"flowType": 1, "sourceTransportPort": 2})
    assert [row["clusterId"] for row in harness.stored()] == ["theirs", "ours", "ours"]


def test_elements_map_by_name_in_any_order_and_unknown_ones_are_counted() -> None:
    harness = Harness()
    harness.send(S1, D1, names=[*reversed(AGENT), "unknown", "paddingOctets", "octetTotalCount"])
    (row,) = harness.rows()
    assert (row["octetTotalCount"], row["sourcePodName"], row["destinationPodName"]) == (1020, "pod1", "pod2")
    assert harness.statistics.elements_dropped == {"64000/999": 2, "octetTotalCount": 2}


def test_every_agent_and_every_order_of_halves_is_joined_whatever_its_template() -> None:
    old_agent = [name for name in AGENT if name not in ("egressNodeName", "proxySnatPort", "proxySnatIPv4")]
    harness = Harness()
    harness.send(S1, names=old_agent)
    harness.send(D1)
    (row,) = harness.rows()
    assert (row["egressNodeName"], row["proxySnatIPv4"], row["destinationPodName"]) == ("", "0.0.0.0", "pod2")


def counter_element(name: str, number: int, rule: MergeRule | None, semantics: str = "") -> InformationElement:
    import hand_made

    hand_made.FIELDS[name] = (number, 32473, 4)
    return InformationElement(
        name=name,
        element_id=ElementId(number),
        enterprise_number=EnterpriseNumber(32473),
        data_type=DataType.UNSIGNED32,
        merge_rule=rule,
        semantics=semantics,
    )


def test_extra_elements_follow_their_merge_rules() -> None:
    elements = (
        counter_element("testFirst", 11, MergeRule.FIRST),
        counter_element("testLatest", 12, None),
        counter_element("testMaximum", 13, None, "totalCounter"),
        counter_element("testSum", 14, None, "deltaCounter"),
    )
    names = [element.name for element in elements]
    harness = Harness(elements=elements, extra=names)
    first: Record = {"testFirst": 5, "testLatest": 5, "testMaximum": 9, "testSum": 2**32 - 10}
    later: Record = {"testFirst": 6, "testLatest": 6, "testMaximum": 8, "testSum": 4}
    harness.send(S1 | first, D1 | later, S2 | later, names=[*AGENT, *names])
    row = one(harness)
    assert (row["testFirst"], row["testLatest"], row["testMaximum"]) == (5, 6, 9)
    assert row["testSum"] == 2**32 - 6  # of the side that reported last, never of both
    harness.send(S2 | later | {"flowEndSeconds": 12}, names=[*AGENT, *names])
    assert one(harness)["testSum"] == 2**32 - 2
    harness.send(S2 | later | {"flowEndSeconds": 13}, names=[*AGENT, *names])
    assert one(harness)["testSum"] == 2**32 - 1  # the most the element can say
    harness.send(D1 | later | {"flowEndSeconds": 5}, names=[*AGENT, *names])  # not the latest
    assert one(harness)["testSum"] == 2**32 - 1
    harness.send(S2 | later | {"flowEndSeconds": 14})  # without them: nothing changes
    assert one(harness)["testLatest"] == 6
    harness.expire()
    assert (one(harness)["testSum"], one(harness)["testMaximum"]) == (0, 9)


def test_several_records_in_one_set_are_merged_in_order() -> None:
    harness = Harness()
    harness.send_message(message(template_set(AGENT), data_set(AGENT, S1, D1), data_set(AGENT, S2, D2)))
    assert [row["octetTotalCount"] for row in harness.rows()] == [2050]
