"""Halves and records in whatever order and with whatever counters they come."""

from __future__ import annotations

import pytest
from hand_made import AGENT, D1, D2, S1, S2, Record
from joined_flows import DROP, one
from kernel_harness import Harness

from flowjoin._kernel import KernelLimits

pytestmark = pytest.mark.usefixtures("kernel_form")


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
