"""flowjoin-kubernetes keeps the contracts of enrichers and of look-ups."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from kubernetes_objects import node, pod, service
from kubernetes_process import KubernetesProcess

from flowjoin.api import ClientCredentials, EnricherType, LookupType, Node, Pod, Service, ServicePort
from flowjoin.testing import EnricherConformance, EnricherExample, LookupConformance, LookupExample, standard_flow
from flowjoin_kubernetes import (
    KubernetesConfig,
    KubernetesLookupConfig,
    flowjoin_enricher_types,
    flowjoin_lookup_types,
)

UID = "0b6f3b0a-7a49-4f43-9d0c-0f0f5a1c2d3e"


def objects() -> list[tuple[str, dict[str, Any]]]:
    place = {"namespace": "flow-aggregator"}
    pair = {name: base64.b64encode(name.encode()).decode() for name in ("tls.crt", "tls.key")}
    return [
        ("pods", pod("web-1", "10.0.0.1", labels={"app": "web"}, uid=UID)),
        ("pods", pod("db-0", "10.0.0.2", node="node-2", uid=UID.replace("0b", "0c"))),
        ("nodes", node("node-1", "192.0.2.1", pod_networks=("10.0.0.0/24",), uid=UID)),
        ("services", service("web", "10.96.0.1", uid=UID)),
        ("configmaps", {"metadata": {"name": "flow-aggregator-ca", **place}, "data": {"ca.crt": "CA"}}),
        ("secrets", {"metadata": {"name": "flow-aggregator-client-tls", **place}, "data": pair}),
    ]


@pytest.fixture(scope="module")
def process() -> Iterator[KubernetesProcess]:
    """In a process of its own: the kits count what this one holds."""
    process = KubernetesProcess(objects())
    with process.running():
        yield process


class TestEnricher(EnricherConformance):
    @pytest.fixture
    def enricher_type(self) -> EnricherType:
        return flowjoin_enricher_types()[0]

    @pytest.fixture
    def config(self, process: KubernetesProcess, kubeconfig_of: Callable[..., Path]) -> KubernetesConfig:
        return KubernetesConfig(kubeconfig=kubeconfig_of(process.url))

    @pytest.fixture
    def example(self) -> EnricherExample:
        names = {f"{side}{what}": "" for side in ("source", "destination") for what in ("PodName", "PodNamespace")}
        addresses = {"sourceIPv4Address": "10.0.0.1", "destinationIPv4Address": "10.0.0.2"}
        return EnricherExample(
            batch=standard_flow(flowType=2, **names, **addresses),
            columns={
                "sourcePodName": ["web-1"],
                "sourcePodLabels": ['{"app":"web"}'],
                "destinationPodName": ["db-0"],
                "destinationNodeName": ["node-2"],
                "destinationPodLabels": ["{}"],
            },
        )

    @pytest.fixture
    def source_down(self, process: KubernetesProcess) -> Callable[[], AbstractContextManager[None]]:
        return process.down


class TestLookup(LookupConformance):
    @pytest.fixture
    def lookup_type(self) -> LookupType:
        return flowjoin_lookup_types()[0]

    @pytest.fixture
    def config(self, process: KubernetesProcess, kubeconfig_of: Callable[..., Path]) -> KubernetesLookupConfig:
        return KubernetesLookupConfig(kubeconfig=kubeconfig_of(process.url))

    @pytest.fixture
    def examples(self) -> Sequence[LookupExample]:
        web = Pod(
            namespace="default",
            name="web-1",
            uid=UID,
            node_name="node-1",
            addresses=("10.0.0.1",),
            labels={"app": "web"},
        )
        machine = Node(name="node-1", uid=UID, addresses=("192.0.2.1",))
        port = ServicePort(port=80, protocol_identifier=6, name="http", node_port=30080)
        front = Service(namespace="default", name="web", uid=UID, cluster_addresses=("10.96.0.1",), ports=(port,))
        answers: list[tuple[str, tuple[Any, ...], object]] = [
            ("pod", ("10.0.0.1",), web),
            ("pod", ("10.0.0.1", 5.0), web),
            ("pod_network", ("10.0.0.9",), "10.0.0.0/24"),
            ("node_by_name", ("node-1",), machine),
            ("node_by_address", ("192.0.2.1", 5.0), machine),
            ("service_by_name", ("default", "web"), front),
            ("service_by_address", ("10.96.0.1", 80, 6), (front, port)),
            ("client_credentials", (), ClientCredentials(ca="CA", certificate="tls.crt", key="tls.key")),
        ]
        return [LookupExample(method=method, arguments=asked, answer=answer) for method, asked, answer in answers]

    @pytest.fixture
    def source_down(self, process: KubernetesProcess) -> Callable[[], AbstractContextManager[None]]:
        return process.down
