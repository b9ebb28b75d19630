from __future__ import annotations

from collections import Counter

import pytest

from flowjoin._generator.config import MAX_FLOWS_PER_NODE, TrafficConfig
from flowjoin._generator.flow import FlowKind
from flowjoin._generator.shares import flows_of_kinds, records_planned
from flowjoin._generator.traffic import Traffic
from flowjoin._model.flow_schema import AddressFamily

ENDS_AT = 1_700_000_000


def flows_of(**settings):
    return list(Traffic(TrafficConfig(**settings), ends_at=ENDS_AT))


def test_equal_seeds_give_equal_flows_and_others_do_not():
    assert flows_of(flows=200, seed=7) == flows_of(flows=200, seed=7)
    assert flows_of(flows=200, seed=7) != flows_of(flows=200, seed=8)


@pytest.mark.parametrize("count", [0, 1, 2, 17, 5000])
def test_there_are_as_many_distinct_flow_keys_as_asked_for(count):
    flows = flows_of(flows=count)
    assert len({flow.key for flow in flows}) == len(flows) == count


def test_kinds_and_families_have_their_shares():
    flows = flows_of(flows=1000, inter_node_share=0.4, external_share=0.2, denied_share=0.3, ipv6_share=0.5)
    kinds = Counter(flow.kind for flow in flows)
    assert kinds == {
        FlowKind.INTER_NODE: 400,
        FlowKind.TO_EXTERNAL: 100,
        FlowKind.FROM_EXTERNAL: 50,
        FlowKind.FROM_EXTERNAL_FORWARDED: 50,
        FlowKind.EGRESS_DENIED: 100,
        FlowKind.INGRESS_REJECTED: 100,
        FlowKind.INGRESS_DROPPED: 100,
        FlowKind.INTRA_NODE: 100,
    }
    assert Counter(flow.family for flow in flows) == {AddressFamily.IPV4: 500, AddressFamily.IPV6: 500}


def test_records_are_planned_as_they_come():
    config = TrafficConfig(flows=777, updates=3)
    assert records_planned(config) == sum(
        len(half.updates) for flow in Traffic(config, ends_at=ENDS_AT) for half in flow.halves
    )
    assert sum(flows_of_kinds(config).values()) == 777


def test_counters_grow_ends_move_on_and_both_halves_end_together():
    for flow in flows_of(flows=500, updates=3):
        ends = [[update.flow_end for update in half.updates] for half in flow.halves]
        assert all(end == ends[0] for end in ends)
        assert flow.flow_start < ends[0][0]
        assert ends[0][-1] <= ENDS_AT
        for half in flow.halves:
            assert len(half.updates) == 4
            for before, after in zip(half.updates, half.updates[1:], strict=False):
                assert after.flow_end > before.flow_end
                assert after.packets >= before.packets
                assert after.octets >= before.octets
                assert after.reverse_packets >= before.reverse_packets
                assert before.flow_end_reason != 1
            assert half.updates[0].packets >= 1
            assert half.updates[0].octets >= 1
            assert max(update.octets for update in half.updates) <= flow.octets


def test_a_flow_between_nodes_is_told_by_two_nodes_of_which_each_knows_its_own_pod():
    for flow in flows_of(flows=100, inter_node_share=1, external_share=0, denied_share=0):
        source, destination = flow.halves
        assert source.node != destination.node
        assert source.elements["sourcePodName"]
        assert "destinationPodName" not in source.elements
        assert destination.elements["destinationPodName"]
        assert "sourcePodName" not in destination.elements
        assert "destinationServicePortName" not in destination.elements
        assert source.elements["flowType"] == destination.elements["flowType"] == 2


def test_a_forwarded_flow_from_outside_meets_under_its_snat_address():
    flows = flows_of(flows=400, inter_node_share=0, external_share=1, denied_share=0)
    forwarded = [flow for flow in flows if flow.kind is FlowKind.FROM_EXTERNAL_FORWARDED]
    assert len(forwarded) == 100
    for flow in forwarded:
        outer, inner = flow.halves
        assert outer.node != inner.node
        assert outer.elements["flowType"] == 4
        assert inner.elements["flowType"] == 2
        assert "destinationPodName" not in outer.elements
        assert outer.elements["proxySnatIPv4"] == inner.elements["sourceIPv4Address"] == flow.key.source
        assert outer.elements["proxySnatPort"] == inner.elements["sourceTransportPort"] == flow.key.source_port
        assert outer.elements["sourceIPv4Address"] != flow.key.source
        assert outer.elements["destinationIPv4Address"] == inner.elements["destinationIPv4Address"]


def test_denied_flows_say_who_denied_them():
    by_kind = {}
    for flow in flows_of(flows=300, inter_node_share=0, external_share=0, denied_share=1):
        by_kind.setdefault(flow.kind, []).append(flow)
        assert all(half.elements["flowType"] == 2 for half in flow.halves)
        assert all(update.reverse_packets == 0 for half in flow.halves for update in half.updates)
    egress, rejected, dropped = (
        by_kind[kind] for kind in (FlowKind.EGRESS_DENIED, FlowKind.INGRESS_REJECTED, FlowKind.INGRESS_DROPPED)
    )
    assert {flow.halves[0].elements["egressNetworkPolicyRuleAction"] for flow in egress} == {2, 3}
    assert {flow.halves[0].elements["ingressNetworkPolicyRuleAction"] for flow in rejected} == {3}
    assert all(len(flow.halves) == 1 for flow in egress + rejected)
    for flow in dropped:
        source, destination = flow.halves
        assert destination.elements["ingressNetworkPolicyRuleAction"] == 2
        assert "ingressNetworkPolicyRuleAction" not in source.elements
        assert {update.tcp_state for update in source.updates} == {"SYN_SENT"}


def test_a_policy_is_of_its_pods_namespace_or_of_the_whole_cluster():
    seen = set()
    for flow in flows_of(flows=300):
        for half in flow.halves:
            for direction, side in (("ingress", "destination"), ("egress", "source")):
                if name := half.elements.get(f"{direction}NetworkPolicyName"):
                    namespace = half.elements[f"{direction}NetworkPolicyNamespace"]
                    policy_type = half.elements[f"{direction}NetworkPolicyType"]
                    assert namespace in (half.elements[f"{side}PodNamespace"], ""), name
                    assert (policy_type == 3) == (namespace == "")
                    seen.add(policy_type)
    assert seen == {1, 2, 3}


def test_a_policy_of_kubernetes_denies_nothing():
    for flow in flows_of(flows=300, inter_node_share=0, external_share=0, denied_share=1):
        for half in flow.halves:
            for direction in ("ingress", "egress"):
                if half.elements.get(f"{direction}NetworkPolicyRuleAction", 1) != 1:
                    assert half.elements[f"{direction}NetworkPolicyType"] in (2, 3)


def test_dns_is_asked_over_udp_mostly_and_from_inside():
    asked = Counter()
    for flow in flows_of(flows=3000):
        if flow.key.destination_port == 53:
            assert flow.kind in (FlowKind.INTRA_NODE, FlowKind.INTER_NODE)
            asked[flow.key.protocol_identifier] += 1
    assert asked[6] > 0
    assert asked[17] > 10 * asked[6]
    assert asked.keys() == {6, 17}


def test_source_ports_lie_all_over_the_ephemeral_range():
    ports = [
        flow.key.source_port
        for flow in flows_of(flows=2000)
        if flow.key.protocol_identifier in (6, 17) and flow.kind is not FlowKind.FROM_EXTERNAL_FORWARDED
    ]
    assert min(ports) >= 32768
    assert max(ports) <= 60999
    assert len({(port - 32768) * 20 // 28232 for port in ports}) == 20  # in each twentieth of it
    assert len(set(ports)) > 0.9 * len(ports)


def test_servers_ask_nobody_and_clients_outside_reach_what_is_exposed():
    for flow in flows_of(flows=1000, inter_node_share=0.5, external_share=0.3, denied_share=0.1):
        for half in flow.halves:
            name = half.elements.get("sourcePodName", "")
            assert not name.startswith(("redis", "postgres", "coredns"))
            if flow.kind in (FlowKind.FROM_EXTERNAL, FlowKind.FROM_EXTERNAL_FORWARDED):
                name = half.elements.get("destinationPodName", "frontend")
                assert name.startswith(("frontend", "checkout", "payments-api", "nginx"))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"flows": 1, "ipv6_share": 1.5}, "ipv6-share must be from 0 to 1, not 1.5"),
        ({"flows": 1, "inter_node_share": float("nan")}, "inter-node-share must be"),
        ({"flows": 1, "inter_node_share": 0.9, "denied_share": 0.2}, "must not add up to more than 1"),
        ({"flows": -1}, "flows must not be negative"),
        ({"flows": 1, "nodes": 1}, "nodes must be from 2 to 250, not 1"),
        ({"flows": 1, "updates": 1001}, "updates must be"),
        ({"flows": 2 * MAX_FLOWS_PER_NODE + 1, "nodes": 2}, "need at least 3 nodes"),
    ],
)
def test_traffic_that_cannot_be_made_is_refused(settings, problem):
    with pytest.raises(ValueError, match=problem):
        TrafficConfig(**settings)
