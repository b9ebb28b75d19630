"""A made-up cluster: nodes, Pods, Services and policies with the names such things have."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from random import Random
from typing import Final

from flowjoin._model.flow_schema import AddressFamily

__all__ = ["KUBERNETES_POLICY", "Cluster", "Node", "Pod", "Policy", "Service", "make_cluster"]

_PODS_PER_NODE: Final = 40
_APPLICATIONS: Final = (
    ("shop", "frontend", "http", 80, 8080),
    ("shop", "checkout", "grpc", 443, 8443),
    ("shop", "cart", "http", 80, 8080),
    ("shop", "payments-api", "https", 443, 8443),
    ("data", "redis", "redis", 6379, 6379),
    ("data", "kafka", "broker", 9092, 9092),
    ("data", "postgres", "", 5432, 5432),
    ("kube-system", "coredns", "dns", 53, 53),
    ("monitoring", "prometheus", "web", 9090, 9090),
    ("team-a-prod", "worker", "http", 8000, 8000),
    ("team-a-prod", "batch", "", 7000, 7000),
    ("default", "nginx", "http", 80, 80),
)
# Who asks whom; who is not named here only answers.
_CALLS: Final = {
    "frontend": ("checkout", "cart", "coredns"),
    "checkout": ("payments-api", "cart", "kafka", "coredns"),
    "cart": ("redis", "coredns"),
    "payments-api": ("postgres", "kafka", "coredns"),
    "kafka": ("kafka", "coredns"),
    "prometheus": ("frontend", "checkout", "cart", "payments-api", "kafka", "worker", "nginx", "coredns"),
    "worker": ("kafka", "redis", "postgres", "coredns"),
    "batch": ("postgres", "redis", "coredns"),
    "nginx": ("frontend", "worker", "coredns"),
}
_EXPOSED: Final = frozenset({"frontend", "checkout", "payments-api", "nginx"})  # to clients outside of the cluster
_HASH_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes leaves out what could form words
KUBERNETES_POLICY, _ANTREA_POLICY, _ANTREA_CLUSTER_POLICY = 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A Service in front of Pods.

    Attributes:
        port_name: ``namespace/name:port``, or without the port where it has no name.
        addresses: its cluster address in each family.
        port: what clients connect to.
        target_port: what its Pods listen on.
    """

    port_name: str
    addresses: dict[AddressFamily, str]
    port: int
    target_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A Pod, with an address in each family.

    Attributes:
        calls: the applications that it asks; empty for one that only answers.
        is_exposed: whether clients outside of the cluster ask it.
    """

    name: str
    application: str
    calls: tuple[str, ...]
    is_exposed: bool
    namespace: str
    node: int
    addresses: dict[AddressFamily, str]
    service: Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node: its name, its gateway's addresses (the source of what it forwards from outside), its Pods."""

    name: str
    gateways: dict[AddressFamily, str]
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A network policy and one of its rules; a cluster policy has no namespace, a Kubernetes one no rule names."""

    name: str
    namespace: str
    type: int
    rule_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All of it.

    Attributes:
        clients: addresses outside of the cluster, in each family.
    """

    nodes: tuple[Node, ...]
    ingress_policies: tuple[Policy, ...]
    egress_policies: tuple[Policy, ...]
    clients: dict[AddressFamily, tuple[str, ...]]


def make_cluster(random: Random, nodes: int) -> Cluster:
    """A cluster of so many nodes."""
    services = [
        Service(
            port_name=f"{namespace}/{name}:{port_name}" if port_name else f"{namespace}/{name}",
            addresses={
                AddressFamily.IPV4: f"10.96.{number // 200}.{10 + number % 200}",
                AddressFamily.IPV6: f"fd00:10:96::{10 + number:x}",
            },
            port=port,
            target_port=target_port,
        )
        for number, (namespace, name, port_name, port, target_port) in enumerate(_APPLICATIONS)
    ]
    return Cluster(
        nodes=tuple(_make_node(random, number, services) for number in range(nodes)),
        ingress_policies=tuple(_make_policies("ingress")),
        egress_policies=tuple(_make_policies("egress")),
        # Addresses kept for documentation (RFC 5737, RFC 3849): they belong to nobody.
        clients={
            AddressFamily.IPV4: tuple(f"{net}.{host}" for net in ("198.51.100", "203.0.113") for host in range(1, 255)),
            AddressFamily.IPV6: tuple(
                str(ipaddress.IPv6Address((0x20010DB8 << 96) + random.getrandbits(64))) for _ in range(500)
            ),
        },
    )


def _make_node(random: Random, number: int, services: list[Service]) -> Node:
    pods = []
    for index in range(_PODS_PER_NODE):
        application = (index + number) % len(services)
        namespace, name, *_ = _APPLICATIONS[application]
        pods.append(
            Pod(
                name=f"{name}-{_hash(random, 10)}-{_hash(random, 5)}",
                application=name,
                calls=_CALLS.get(name, ()),
                is_exposed=name in _EXPOSED,
                namespace=namespace,
                node=number,
                addresses={
                    AddressFamily.IPV4: f"10.10.{number}.{index + 2}",
                    AddressFamily.IPV6: str(ipaddress.IPv6Address(f"fd00:10:10:{number:x}::{index + 2:x}")),
                },
                service=services[application],
            )
        )
    return Node(
        name="k8s-node-control-plane" if number == 0 else f"k8s-node-worker-{number}",
        gateways={
            AddressFamily.IPV4: f"10.10.{number}.1",
            AddressFamily.IPV6: str(ipaddress.IPv6Address(f"fd00:10:10:{number:x}::1")),
        },
        pods=tuple(pods),
    )


def _make_policies(direction: str) -> list[Policy]:
    policies = []
    for namespace in sorted({row[0] for row in _APPLICATIONS}):
        policies.append(
            Policy(name=f"{namespace}-{direction}", namespace=namespace, type=KUBERNETES_POLICY, rule_name="")
        )
        policies.append(
            Policy(
                name=f"{namespace}-{direction}-strict",
                namespace=namespace,
                type=_ANTREA_POLICY,
                rule_name=f"{direction}-from-team" if direction == "ingress" else f"{direction}-to-team",
            )
        )
    policies.append(
        Policy(
            name=f"baseline-{direction}", namespace="", type=_ANTREA_CLUSTER_POLICY, rule_name=f"{direction}-default"
        )
    )
    return policies


def _hash(random: Random, length: int) -> str:
    return "".join(random.choice(_HASH_LETTERS) for _ in range(length))
