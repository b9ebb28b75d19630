from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_fakes import MemoryLog

from flowjoin._plugins.file_lookup import FileLookup
from flowjoin._plugins.file_tables import FileLookupConfig, read_tables
from flowjoin._plugins.loader import load_plugins
from flowjoin.api import ConfigError, Egress, EgressLookup, NodeLookup, Pod, PodLookup, PolicyLookup, ServiceLookup

TEXT = """
pods:
  - {namespace: shop, name: web-1, uid: u1, addresses: [10.10.0.5, "2001:db8:0::5"], node: node-1, labels: {app: web},
     until: "1970-01-01T00:01:40Z"}
  - {namespace: shop, name: web-2, addresses: [10.10.0.5], from: "1970-01-01T00:01:40Z"}
  - {namespace: kube-system, name: proxy, addresses: [192.0.2.1], hostNetwork: true}
nodes:
  - {name: node-1, addresses: [192.0.2.1]}
services:
  - namespace: shop
    name: web
    clusterAddresses: [10.96.0.9]
    ports: [{name: http, port: 80, protocol: tcp, nodePort: 30080}, {port: 53, protocol: udp}]
policies:
  - {rule: 7, policyName: old}
  - {rule: 7, generation: 2, policyName: new, policyNamespace: shop, policyType: antrea, ruleAction: drop}
"""


@pytest.fixture
def lookup() -> FileLookup:
    return FileLookup(read_tables(TEXT, "tables.yaml"))


def test_it_answers_every_protocol(lookup: FileLookup) -> None:
    for protocol in (PodLookup, NodeLookup, ServiceLookup, PolicyLookup, EgressLookup):
        assert isinstance(lookup, protocol)


def test_an_address_is_the_pod_that_had_it_then(lookup: FileLookup) -> None:
    first, second = lookup.pod("10.10.0.5", 99.9), lookup.pod("10.10.0.5", 100.0)

    assert first is not None
    assert (first.name, first.uid, first.node_name, first.labels) == ("web-1", "u1", "node-1", {"app": "web"})
    assert second is not None
    assert second.name == "web-2"


def test_without_a_time_the_present_pod_is_meant(lookup: FileLookup) -> None:
    now = lookup.pod("10.10.0.5")
    assert now is not None
    assert now.name == "web-2"
    assert lookup.pod("2001:db8::5") is None


def test_addresses_are_compared_in_canonical_form(lookup: FileLookup) -> None:
    assert lookup.pod("2001:DB8:0:0::5", 50) is not None
    assert lookup.pod("::ffff:10.10.0.5", 50) is not None


def test_an_address_of_a_host_network_pod_is_its_nodes(lookup: FileLookup) -> None:
    assert lookup.pod("192.0.2.1") is None
    node = lookup.node_by_address("192.0.2.1")
    assert node is not None
    assert node == lookup.node_by_name("node-1")


def test_a_service_is_found_by_address_port_and_protocol_and_by_name(lookup: FileLookup) -> None:
    found = lookup.service_by_address("10.96.0.9", 80, 6)

    assert found is not None
    service, port = found
    assert (service.name, port.name, port.node_port) == ("web", "http", 30080)
    assert lookup.service_by_address("10.96.0.9", 80, 17) is None
    assert lookup.service_by_name("shop", "web") == service


def test_a_rule_number_means_its_latest_giving_out_unless_one_is_named(lookup: FileLookup) -> None:
    old, new, latest = lookup.rule(7, 1), lookup.rule(7, 2), lookup.rule(7)
    assert old is not None
    assert old.policy_name == "old"
    assert new is not None
    assert (new.policy_type, new.rule_action) == (2, 2)
    assert latest == new
    assert lookup.rule(7, 3) is None
    assert lookup.rule(8) is None


RULES = """
policies:
  - {rule: 1, policyName: always}
  - {rule: 2, policyName: old, until: "1970-01-01T00:01:00Z"}
  - {rule: 2, generation: 2, policyName: new, from: "1970-01-01T00:02:00Z"}
  - {rule: 3, policyName: old}
  - {rule: 3, generation: 2, policyName: new}
  - {rule: 4, policyName: old}
  - {rule: 4, generation: 2, policyName: new, from: "1970-01-01T00:02:00Z"}
"""


@pytest.mark.parametrize(
    ("rule", "at", "policy"),
    [
        (1, 5.0, "always"),
        (2, 59.0, "old"),
        (2, 60.0, None),  # nobody had the number
        (2, 120.0, "new"),
        (3, 5.0, None),  # which of them it was, the file does not tell
        (4, 119.0, "old"),
        (4, 120.0, "new"),
        (9, 5.0, None),
    ],
)
def test_with_a_time_a_rule_number_is_the_rule_that_had_it_then_or_none(
    rule: int, at: float, policy: str | None
) -> None:
    found = FileLookup(read_tables(RULES, "tables.yaml")).rule(rule, at=at)
    assert (None if found is None else found.policy_name) == policy


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("pods: [{namespace: a, name: b, addresses: [10.0.0.300]}]", r"tables.yaml:1: pods\[0\]\.addresses"),
        ("pods:\n- {namespace: a, name: b, from: yesterday}", r"tables.yaml:2: pods\[0\]\.from"),
        ("pods: [{namespace: a, name: b, colour: red}]", "colour"),
        ("services: [{namespace: a, name: b, ports: [{port: 80, protocol: icmp}]}]", "protocol"),
    ],
)
def test_a_wrong_entry_is_an_error_with_its_place(text: str, place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        read_tables(text, "tables.yaml")


def test_an_empty_file_knows_nothing() -> None:
    assert FileLookup(read_tables("", "tables.yaml")).pod("10.0.0.1") is None


async def test_it_is_shipped_as_the_plugin_file(tmp_path: Path) -> None:
    path = tmp_path / "tables.yaml"
    path.write_text(TEXT)
    lookup_type = load_plugins(["file"]).lookup_type("file")

    class Context:
        log = MemoryLog()

    async with lookup_type.open(FileLookupConfig(path=path), Context()) as opened:  # type: ignore[arg-type]
        assert isinstance(opened, FileLookup)
        assert opened.node_by_name("node-1") is not None

    with pytest.raises(ConfigError, match=r"^path: .*absent cannot be read: No such file or directory; give the path"):
        async with lookup_type.open(FileLookupConfig(path=tmp_path / "absent"), Context()):  # type: ignore[arg-type]
            pass


EGRESSES = """
egresses:
  - {name: web, address: 203.0.113.9, node: node-2, namespaces: [shop], podLabels: {app: web},
     until: "2026-01-02T00:00:00Z"}
  - {name: shop, uid: 00112233-4455-6677-8899-aabbccddeeff, address: "2001:DB8::9", namespaces: [shop]}
"""


def test_a_pods_egress_is_the_first_that_is_for_its_namespace_labels_and_time() -> None:
    lookup = FileLookup(read_tables(EGRESSES, "cluster.yaml"))
    pod = Pod(namespace="shop", name="web-1", labels={"app": "web", "tier": "1"})
    at = 1767311999.0  # a second before it ends
    assert lookup.egress(pod, at) == Egress(name="web", address="203.0.113.9", node_name="node-2")
    shop = Egress(name="shop", uid="00112233-4455-6677-8899-aabbccddeeff", address="2001:db8::9")
    assert lookup.egress(pod, at + 1) == lookup.egress(pod) == shop
    assert lookup.egress(Pod(namespace="shop", name="db-1"), at) == shop
    assert lookup.egress(Pod(namespace="other", name="web-1", labels={"app": "web"}), at) is None
