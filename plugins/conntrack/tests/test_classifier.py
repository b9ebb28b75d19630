from __future__ import annotations

from typing import Any

import pytest
from conntrack_entries import connection

from flowjoin.api import Egress, Pod, PolicyRule, Service, ServicePort
from flowjoin_conntrack._classifier import Classifier
from flowjoin_conntrack._metadata import FlowType, MissingRule, rule_ids
from flowjoin_conntrack._verdict import DROP, REJECT, Verdict

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

    def rule(self, rule_id: int, generation: int = 0, at: float | None = None) -> PolicyRule | None:
        if rule_id == 200:
            return None
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


def test_only_what_goes_outside_has_an_egress() -> None:
    class Egresses:
        def egress(self, pod: Pod, at: float | None = None) -> Egress | None:
            return Egress(name=f"of-{pod.name}")

    found = classifier(egresses=Egresses())(connection("10.10.0.2", "8.8.8.8").pack())
    assert found is not None
    assert found.out_through == Egress(name="of-two")
    inside = classifier(egresses=Egresses())(connection("10.10.0.2", "10.10.0.3").pack())
    assert inside is not None
    assert inside.out_through is None


def test_pods_of_other_nodes_are_not_named_for_their_own_node_does() -> None:
    found = classifier()(connection("10.10.0.2", "10.10.1.4").pack())
    assert found is not None
    assert found.source_pod == PODS["10.10.0.2"]
    assert found.destination_pod is None


class Networks:
    """Of two Nodes of which one is here."""

    def pod_network(self, address: str, at: float | None = None) -> str | None:
        assert at is None, "asked for the present"
        return next((f"{start}0/24" for start in ("10.10.0.", "10.10.1.") if address.startswith(start)), None)


class OwnPods(Lookups):
    """Those of this Node alone."""

    def pod(self, address: str, at: float | None = None) -> Pod | None:
        found = PODS.get(address)
        return found if found is not None and found.node_name == "here" else None


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        ("10.10.0.2", "10.10.0.3", FlowType.INTRA_NODE),
        ("10.10.0.2", "10.10.1.4", FlowType.INTER_NODE),
        ("10.10.1.4", "10.10.0.2", FlowType.INTER_NODE),
        ("10.10.0.2", "10.10.0.1", None),  # to the gateway, which is in a Pods' network too
        ("10.10.0.2", "10.10.2.7", FlowType.TO_EXTERNAL),  # of no Node
        ("10.10.2.7", "10.10.0.2", FlowType.FROM_EXTERNAL),
        ("10.10.1.4", "8.8.8.8", None),
    ],
)
def test_where_only_this_nodes_pods_are_known_the_nodes_networks_tell_the_others(
    source: str, destination: str, expected: FlowType | None
) -> None:
    local = classifier(pods=OwnPods(), pod_networks=(), networks=Networks())
    found = local(connection(source, destination).pack())
    assert (None if found is None else found.flow_type) == expected


def test_the_service_is_the_one_that_was_asked_for() -> None:
    row = connection(original="10.96.0.9", mark=0x13).pack()
    found = classifier()(row)
    assert found is not None
    assert found.service_name == "shop/web:http"
    unmarked = classifier()(connection(original="10.96.0.9", mark=3).pack())
    assert unmarked is not None
    assert unmarked.service_name == ""


@pytest.mark.parametrize(("protocol", "asked"), [(6, [6]), (17, [17]), (132, [132]), (1, []), (58, []), (47, [])])
def test_a_service_is_looked_up_for_protocols_that_services_have(protocol: int, asked: list[int]) -> None:
    class Asked(Lookups):
        def service_by_address(
            self, address: str, port: int, protocol_identifier: int, at: float | None = None
        ) -> tuple[Service, ServicePort] | None:
            protocols.append(protocol_identifier)
            return None

    protocols: list[int] = []
    assert classifier(services=Asked())(connection(original="10.96.0.9", mark=0x13, protocol=protocol).pack())
    assert protocols == asked


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


@pytest.mark.parametrize(
    ("verdict", "direction", "wanted"),
    [
        (Verdict(action=DROP, direction="ingress", rule_id=100), "ingress", ("policy-100", 2, 2)),
        (Verdict(action=REJECT, direction="egress", rule_id=100), "egress", ("policy-100", 2, 3)),
        (Verdict(action=DROP, direction="ingress", rule_id=200), "ingress", ("", 0, 2)),  # no policy is known
        (Verdict(action=DROP, direction="egress", is_implicit=True), "egress", ("", 1, 2)),
        (Verdict(action=DROP), "ingress", ("", 0, 2)),  # 10.10.0.3 is a Pod of this Node
    ],
)
def test_a_denied_connection_has_the_rule_that_denied_it(verdict: Verdict, direction: str, wanted: object) -> None:
    found = classifier(pods_only=False).of_denied(connection("192.0.2.9", "10.10.0.3"), verdict)
    assert found is not None
    rule, other = getattr(found, direction), found.egress if direction == "ingress" else found.ingress
    assert (rule.policy_name, rule.policy_type, rule.rule_action) == wanted
    assert other is None


def test_what_only_a_pod_of_this_node_sends_was_denied_on_its_way_out() -> None:
    found = classifier(pods_only=False).of_denied(connection("10.10.0.3", "192.0.2.9"), Verdict())
    assert found is not None
    assert found.egress == PolicyRule(policy_name="", policy_type=0, rule_action=DROP)
    assert found.ingress is None


def test_a_rule_that_denied_wins_over_the_one_that_let_pass() -> None:
    labels = bytes(8) + (0).to_bytes(4, "big") + (300).to_bytes(4, "big")
    passed = connection("192.0.2.9", "10.10.0.3", labels=labels)
    found = classifier(pods_only=False).of_denied(passed, Verdict(direction="ingress", rule_id=100))
    assert found is not None
    assert found.ingress == PolicyRule(policy_name="policy-100", policy_type=2, rule_action=DROP)
    found = classifier(pods_only=False)(passed.pack())
    assert found is not None
    assert found.ingress == PolicyRule(policy_name="policy-300", policy_type=2, rule_action=1)


def test_denied_connections_of_nobody_here_are_left_out_as_others_are() -> None:
    far = connection("192.0.2.9", "10.10.1.4")
    assert classifier(pods_only=True).of_denied(far, Verdict()) is None
    assert classifier(pods_only=False, protocols=frozenset({17})).of_denied(far, Verdict()) is None


def test_a_rule_is_asked_for_as_it_was_when_the_connection_began() -> None:
    asked: list[tuple[int, float | None]] = []

    class Policies(Lookups):
        def rule(self, rule_id: int, generation: int = 0, at: float | None = None) -> PolicyRule | None:
            asked.append((rule_id, at))
            return None

    labels = bytes(8) + (2).to_bytes(4, "big") + (1).to_bytes(4, "big")
    kept = classifier(pods_only=False, policies=Policies())
    kept(connection(labels=labels).pack())
    kept.of_denied(connection(labels=bytes(16)), Verdict(rule_id=9))
    assert asked == [(1, 1_000_000_000.0), (2, 1_000_000_000.0), (9, 1_000_000_000.0)]


def test_a_rule_that_was_not_known_is_asked_for_again_as_of_the_same_time() -> None:
    known: dict[int, str] = {}
    asked: list[tuple[int, float | None]] = []

    class Policies(Lookups):
        def rule(self, rule_id: int, generation: int = 0, at: float | None = None) -> PolicyRule | None:
            asked.append((rule_id, at))
            return PolicyRule(policy_name=known[rule_id], policy_type=2) if rule_id in known else None

    labels = bytes(8) + (2).to_bytes(4, "big") + (1).to_bytes(4, "big")
    kept = classifier(pods_only=False, policies=Policies())
    row = connection(labels=labels).pack()
    found = kept(row)
    assert found is not None
    assert (found.ingress, found.egress, len(found.missing)) == (None, None, 2)
    known[1] = "late"
    found = kept.with_late_rules(found, row, 5.0)
    assert found.ingress == PolicyRule(policy_name="late", policy_type=2, rule_action=1)
    assert (found.egress, found.missing) == (None, (MissingRule("egress", 2, 1),))
    denied = kept.of_denied(connection(), Verdict(action=REJECT, direction="egress", rule_id=3))
    assert denied is not None
    known[3] = "later"
    denied = kept.with_late_rules(denied, row, 5.0)
    assert denied.egress == PolicyRule(policy_name="later", policy_type=2, rule_action=REJECT)
    assert denied.missing == ()
    assert {at for _, at in asked} == {1_000_000_000.0}


def test_a_connection_without_a_start_began_when_it_was_seen() -> None:
    asked: list[float | None] = []

    class Policies(Lookups):
        def rule(self, rule_id: int, generation: int = 0, at: float | None = None) -> PolicyRule | None:
            asked.append(at)
            return None

    kept = classifier(pods_only=False, policies=Policies())
    kept.seen_at = 7.0
    row = connection(start=0, labels=bytes(15) + b"\x01").pack()
    found = kept(row)
    assert found is not None
    kept.with_late_rules(found, row, 7.0)
    assert asked == [7.0, 7.0]


@pytest.mark.parametrize("rule_id", [0, 200])  # none, and one that no look-up knows
@pytest.mark.parametrize("label", [300, 200])
def test_the_rule_that_let_pass_never_stands_in_for_the_one_that_denied(rule_id: int, label: int) -> None:
    kept = classifier(pods_only=False)
    passed = connection("192.0.2.9", "10.10.0.3", labels=bytes(12) + label.to_bytes(4, "big"))
    found = kept.of_denied(passed, Verdict(direction="ingress", rule_id=rule_id))
    assert found is not None
    assert found.ingress == PolicyRule(policy_name="", policy_type=0, rule_action=DROP)
    late = classifier(pods_only=False, policies=KnowsAll()).with_late_rules(found, passed.pack(), 5.0)
    assert late.ingress is not None
    assert late.ingress.rule_action == DROP
    assert late.ingress.policy_name == ("policy-200" if rule_id else "")


class KnowsAll(Lookups):
    def rule(self, rule_id: int, generation: int = 0, at: float | None = None) -> PolicyRule | None:
        return PolicyRule(policy_name=f"policy-{rule_id}", policy_type=2)
