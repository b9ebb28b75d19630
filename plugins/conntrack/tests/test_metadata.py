from __future__ import annotations

from typing import Any

import pytest
from conntrack_entries import connection

from flowjoin.api import Pod, PolicyRule, Service, ServicePort
from flowjoin_conntrack._metadata import Classifier, FlowType, rule_ids

PODS = {
    "10.10.0.2": Pod(namespace="ns", name="two", node_name="here"),
    "10.10.0.3": Pod(namespace="ns", name="three", node_name="here"),
    "10.10.1.4": Pod(namespace="ns", name="far", node_name="there"),
}
SERVICE = (Service(namespace="shop", name="web"), ServicePort(port=80, protocol_identifier=6, name="http"))


class Lookups:
    def pod(self, address: str, at: float | None = None) -> Pod | None:
        return PODS.get(address)

    def service_by_address(
        self, address: str, port: int, protocol_identifier: int, at: float | None = None
    ) -> tuple[Service, ServicePort] | None:
        return SERVICE if (address, port, protocol_identifier) == ("10.96.0.9", 80, 6) else None

    def service_by_name(self, namespace: str, name: str, at: float | None = None) -> Service | None:
        return None

    def rule(self, rule_id: int, generation: int = 0) -> PolicyRule | None:
        return PolicyRule(policy_name=f"policy-{rule_id}", policy_type=2)


def classifier(**changed: Any) -> Classifier:
    facts: dict[str, Any] = {
        "node": "here",
        "zones": frozenset(),
        "protocols": None,
        "gateways": frozenset({"10.10.0.1"}),
        "service_networks": (),
        "pod_networks": ("10.10.0.0/16",),
        "pods_only": True,
        "pods": Lookups(),
        "services": Lookups(),
        "policies": Lookups(),
    }
    return Classifier(**{**facts, **changed})


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        ("10.10.0.2", "10.10.0.3", FlowType.INTRA_NODE),
        ("10.10.0.2", "10.10.1.4", FlowType.INTER_NODE),
        ("10.10.1.4", "10.10.0.2", FlowType.INTER_NODE),
        ("10.10.0.2", "8.8.8.8", FlowType.TO_EXTERNAL),
        ("10.10.0.2", "10.10.0.1", None),  # to the gateway
        ("10.10.0.1", "10.10.0.2", FlowType.INTER_NODE),
        ("10.10.0.1", "10.10.0.9", None),  # no Pod that is known
        ("8.8.8.8", "10.10.0.2", FlowType.FROM_EXTERNAL),
        ("192.168.1.10", "10.10.0.2", FlowType.FROM_EXTERNAL),
        ("8.8.8.8", "9.9.9.9", None),
        ("10.10.1.4", "8.8.8.8", None),  # the Egress Node sees another Node's Pod
    ],
)
def test_the_kind_of_flow_follows_from_its_ends(source: str, destination: str, expected: FlowType | None) -> None:
    found = classifier()(connection(source, destination).pack())
    assert (None if found is None else found.flow_type) == expected


def test_where_antrea_only_enforces_policies_a_flow_is_within_a_node_or_between_two() -> None:
    kinds = []
    for source, destination in (("10.10.0.2", "10.10.0.3"), ("10.10.0.2", "10.10.1.4"), ("10.10.0.2", "8.8.8.8")):
        found = classifier(network_policy_only=True)(connection(source, destination).pack())
        assert found is not None
        kinds.append(found.flow_type)
    assert kinds == [FlowType.INTRA_NODE, FlowType.INTER_NODE, FlowType.INTER_NODE]


def test_pods_of_other_nodes_are_not_named_for_their_own_node_does() -> None:
    found = classifier()(connection("10.10.0.2", "10.10.1.4").pack())
    assert found is not None
    assert found.source_pod == PODS["10.10.0.2"]
    assert found.destination_pod is None


def test_the_service_is_the_one_that_was_asked_for() -> None:
    row = connection(original="10.96.0.9", mark=0x13).pack()
    found = classifier()(row)
    assert found is not None
    assert found.service_name == "shop/web:http"
    unmarked = classifier()(connection(original="10.96.0.9", mark=3).pack())
    assert unmarked is not None
    assert unmarked.service_name == ""


def test_the_label_names_the_rules() -> None:
    labels = (2 << 32 | 1).to_bytes(16, "big")
    assert rule_ids(labels) == (1, 2)
    found = classifier()(connection(labels=labels).pack())
    assert found is not None
    assert found.ingress is not None
    assert found.egress is not None
    assert (found.ingress.policy_name, found.egress.policy_name) == ("policy-1", "policy-2")


@pytest.mark.parametrize(
    ("changed", "row"),
    [
        ({"zones": frozenset({65520})}, connection(zone=100)),
        ({"protocols": frozenset({17})}, connection()),
        ({"service_networks": ("10.10.0.0/24",)}, connection()),
        ({}, connection(zone=65520, mark=0x10)),  # committed, then denied
    ],
    ids=["another zone", "another protocol", "a Service without proxy", "denied"],
)
def test_a_connection_is_left_out(changed: dict[str, Any], row: Any) -> None:
    assert classifier(**changed)(row.pack()) is None
    assert classifier()(connection(zone=65520, mark=3).pack()) is not None


def test_without_look_ups_every_connection_is_kept_and_nothing_is_said_of_its_kind() -> None:
    plain = classifier(pods=None, services=None, policies=None, pod_networks=(), gateways=frozenset(), pods_only=False)
    found = plain(connection("192.0.2.1", "198.51.100.1", labels=b"\xff" * 16).pack())
    assert found is not None
    assert found.flow_type is FlowType.UNSPECIFIED
    assert (found.source_pod, found.service, found.ingress) == (None, None, None)
