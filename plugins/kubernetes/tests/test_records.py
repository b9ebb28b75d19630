"""What is kept of the API server's objects."""

from __future__ import annotations

import json
import uuid

import pytest
from kubernetes_objects import node, pod, service

from flowjoin_kubernetes._records import NodeRecord, PodRecord, ServiceRecord, labels_json, uid_octets, uid_text

UID = "0b6f3b0a-7a49-4f43-9d0c-0f0f5a1c2d3e"
CREATED = 1767225600.0  # 2026-01-01T00:00:00Z


def test_a_pod_keeps_names_node_labels_and_both_addresses() -> None:
    record = PodRecord.of(pod("web-1", "10.0.0.1", "2001:DB8::0:1", labels={"b": "2", "a": "1"}, uid=UID), 5.0)
    assert (record.namespace, record.name, record.node) == ("default", "web-1", "node-1")
    assert record.addresses == ("10.0.0.1", "2001:db8::1")
    assert record.labels == '{"a":"1","b":"2"}'
    assert record.created == CREATED
    assert record.uid == uuid.UUID(UID).bytes
    assert uid_text(record.uid) == UID


def test_a_pod_that_is_seen_pending_was_created_when_it_was_seen() -> None:
    assert PodRecord.of(pod("a", phase="Pending", uid=UID), 5.0).created == 5.0


@pytest.mark.parametrize(
    ("phase", "is_over"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_that_ended_is_over(phase: str, is_over: bool) -> None:
    assert PodRecord.is_over(pod("a", phase=phase)) is is_over


def test_a_pod_in_its_nodes_network_is_not_wanted() -> None:
    assert not PodRecord.is_wanted(pod("a", host_network=True))
    assert PodRecord.is_wanted(pod("a"))


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (None, "{}"), ({}, "{}"), ({"test": "ut"}, '{"test":"ut"}'),
        ({"tier": "a", "app": "iperf"}, '{"app":"iperf","tier":"a"}'),
        ({"x": 'a"b\\<é>'}, '{"x":"a\\"b\\\\<é>"}'),
    ],
)  # fmt: skip
def test_labels_are_a_compact_object_with_its_keys_in_order(labels: dict[str, str] | None, text: str) -> None:
    assert labels_json(labels) == text
    assert json.loads(text) == (labels or {})


def test_pods_of_one_workload_share_their_texts() -> None:
    one, two = (PodRecord.of(pod(f"web-{n}", f"10.0.0.{n}", labels={"app": "web"}, uid=f"{n}"), 0.0) for n in (1, 2))
    assert one.labels is two.labels
    assert one.node is two.node
    assert one.namespace is two.namespace


def test_a_uid_that_is_no_uuid_is_kept_as_it_is() -> None:
    record = PodRecord.of(pod("a", uid="mirror"), 0.0)
    assert uid_text(record.uid) == "mirror"
    assert uid_octets(record.uid) == bytes(16)


def test_a_node_is_found_by_name_and_addresses() -> None:
    record = NodeRecord.of(node("node-1", "192.0.2.1", "2001:db8::1", uid=UID), 0.0)
    assert list(record.found_by()) == [("name", "node-1"), ("address", "192.0.2.1"), ("address", "2001:db8::1")]


@pytest.mark.parametrize(
    ("spec", "networks"),
    [
        (
            {"podCIDR": "10.10.1.0/24", "podCIDRs": ["10.10.1.0/24", "fd00:10:1::/64"]},
            ["10.10.1.0/24", "fd00:10:1::/64"],
        ),
        ({"podCIDR": "10.10.1.9/24"}, ["10.10.1.0/24"]),
        ({"podCIDRs": ["0.0.0.0/0", "::/0", "10.10.1.1/32"]}, ["0.0.0.0/0", "::/0", "10.10.1.1/32"]),
        ({"podCIDRs": ["nonsense", "10.10.1.0/33", ""]}, []),
        ({}, []),
        (None, []),
    ],
)
def test_a_node_says_in_which_networks_its_pods_are(spec: object, networks: list[str]) -> None:
    record = NodeRecord.of({**node("node-1", uid=UID), "spec": spec}, 0.0)
    assert list(map(str, record.pod_networks)) == networks


def test_a_service_is_found_by_name_and_each_address_and_port() -> None:
    record = ServiceRecord.of(service("web", "10.96.0.1", "2001:db8::96", uid=UID), 0.0)
    assert list(record.found_by()) == [("name", "default", "web"), ("10.96.0.1", 80, 6), ("2001:db8::96", 80, 6)]
    assert record.ports == ((80, 6, "http", 30080),)


def test_a_headless_service_is_found_by_name_alone() -> None:
    assert list(ServiceRecord.of(service("db", uid=UID), 0.0).found_by()) == [("name", "default", "db")]


def test_a_service_of_an_old_server_has_one_address() -> None:
    manifest = service("web", "10.96.0.1", uid=UID)
    del manifest["spec"]["clusterIPs"]
    assert ServiceRecord.of(manifest, 0.0).addresses == ("10.96.0.1",)
