from __future__ import annotations

from conntrack_entries import connection, packed

from flowjoin.api import AddressFamily, Egress, FlowOrigin, Pod, PolicyRule, Service, ServicePort
from flowjoin.wire.registry import default_registry
from flowjoin_conntrack._columns import BatchMaker
from flowjoin_conntrack._exports import Counters, EndReason, Export
from flowjoin_conntrack._metadata import FlowType, Metadata

UID = "00112233-4455-6677-8899-aabbccddeeff"
KNOWN = Metadata(
    source_pod=Pod(namespace="ns", name="two", uid=UID, node_name="here"),
    service=(
        Service(namespace="shop", name="web", uid=UID),
        ServicePort(port=80, protocol_identifier=6),
    ),
    ingress=PolicyRule(policy_name="allow-web", policy_type=2, policy_namespace="ns", rule_name="r", rule_action=1),
    flow_type=FlowType.INTER_NODE,
)


def export(**changed: object) -> Export[Metadata]:
    facts = {
        "row": connection(
            original="10.96.0.9", packets=10, octets=1000, reverse_packets=4, reverse_octets=50, tcp_state=3
        ).pack(),
        "before": Counters(packets=4, octets=400, reverse_packets=9, reverse_octets=0),
        "reason": EndReason.ACTIVE,
        "is_first": False,
        "meta": KNOWN,
        "first_seen": 1_000_000_000_000_000_000,
        "end": 1_700_000_005,
    }
    return Export(**{**facts, **changed})  # type: ignore[arg-type]


def test_a_row_has_the_elements_of_an_agents_record() -> None:
    (batch,) = BatchMaker(default_registry(), node="here").batches([export()])
    assert batch.schema.origin is FlowOrigin.SOURCE
    (row,) = batch.to_dicts()
    assert {name: value for name, value in row.items() if value not in ("", 0, "0.0.0.0", "00" * 16)} == {
        "flowStartSeconds": 1_000_000_000,
        "flowEndSeconds": 1_700_000_005,
        "flowEndReason": 2,
        "sourceTransportPort": 60001,
        "destinationTransportPort": 80,
        "protocolIdentifier": 6,
        "packetTotalCount": 10,
        "octetTotalCount": 1000,
        "packetDeltaCount": 6,
        "octetDeltaCount": 600,
        "sourceIPv4Address": "10.10.0.2",
        "destinationIPv4Address": "10.10.0.3",
        "reversePacketTotalCount": 4,
        "reverseOctetTotalCount": 50,
        "reverseOctetDeltaCount": 50,  # the packets' counter was set back: nothing, and never 2^64 less some
        "sourcePodName": "two",
        "sourcePodNamespace": "ns",
        "sourcePodUUID": UID.replace("-", ""),
        "sourceNodeName": "here",
        "destinationServicePort": 80,
        "destinationServicePortName": "shop/web",
        "destinationServiceUUID": UID.replace("-", ""),
        "ingressNetworkPolicyName": "allow-web",
        "ingressNetworkPolicyNamespace": "ns",
        "ingressNetworkPolicyType": 2,
        "ingressNetworkPolicyRuleName": "r",
        "ingressNetworkPolicyRuleAction": 1,
        "tcpState": "ESTABLISHED",
        "flowType": 2,
        "destinationClusterIPv4": "10.96.0.9",
        "destinationServiceIPv4": "10.96.0.9",
    }


def test_each_family_has_a_batch_of_its_own() -> None:
    six = connection("fd00::1", "fd00::2").pack()
    batches = BatchMaker(default_registry(), node="here").batches(
        [export(row=six, meta=Metadata(), end=1_700_000_001), export()]
    )
    assert [batch.schema.family for batch in batches] == [AddressFamily.IPV4, AddressFamily.IPV6]
    (row,) = batches[1].to_dicts()
    assert (row["sourceIPv6Address"], row["destinationIPv6Address"]) == ("fd00::1", "fd00::2")
    assert row["flowEndSeconds"] == 1_700_000_001
    assert row["proxySnatIPv6"] == "::"


def test_source_nat_is_said() -> None:
    snat = connection(reply_destination=packed("10.10.0.1"), reply_destination_port=4711).pack()
    (batch,) = BatchMaker(default_registry(), node="here").batches([export(row=snat)])
    (row,) = batch.to_dicts()
    assert (row["proxySnatIPv4"], row["proxySnatPort"]) == ("10.10.0.1", 4711)


def test_a_connection_without_a_start_began_when_it_was_seen() -> None:
    (batch,) = BatchMaker(default_registry(), node="here").batches(
        [export(row=connection(start=0).pack(), first_seen=1_700_000_001_000_000_000)]
    )
    assert batch.column("flowStartSeconds").tolist() == [1_700_000_001]


def test_a_data_path_without_counters_has_no_such_columns() -> None:
    (batch,) = BatchMaker(default_registry(), node="here", has_counters=False).batches([export()])
    assert not [name for name in batch.schema.names if name.endswith("Count")]


def test_a_flow_to_outside_tells_its_egress() -> None:
    meta = Metadata(
        flow_type=FlowType.TO_EXTERNAL, out_through=Egress(name="out", uid=UID, address="203.0.113.9", node_name="n2")
    )
    (batch,) = BatchMaker(default_registry(), node="here").batches([export(meta=meta), export()])
    names = ("egressName", "egressIP", "egressNodeName", "egressUUID")
    rows = [[row[name] for name in names] for row in batch.to_dicts()]
    assert rows == [["out", "203.0.113.9", "n2", UID.replace("-", "")], ["", "", "", "0" * 32]]


def test_times_beyond_2106_have_the_octets_that_there_are() -> None:
    far = 2**32 + 5
    made = export(row=connection(start=far * 10**9).pack(), end=far + 1)
    (batch,) = BatchMaker(default_registry(), node="here").batches([made])
    assert batch.column("flowStartSeconds").tolist() == [5]
    assert batch.column("flowEndSeconds").tolist() == [6]
