"""Joining, on records made by hand; the figures are those of Antrea's flow aggregator."""

from __future__ import annotations

import pytest
from hand_made import AGENT, AGENT_IPV6, D1, D2, S1, S2, Record, message, template_set
from joined_flows import DROP, KEY, REJECT, SHORT, SIDES, one, statistics_of
from kernel_harness import Harness

from flowjoin._model.flow_key import FlowFilter, FlowKey
from flowjoin._model.information_element import DataType, ElementId, EnterpriseNumber, InformationElement, MergeRule

pytestmark = pytest.mark.usefixtures("kernel_form")


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
