"""The look-up protocols, and the certificates that the flow aggregator publishes."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from kubernetes_objects import node, pod, service
from kubernetes_stand_in import Fault, KubernetesStandIn
from waiting import until

from flowjoin.api import (
    CertificateObject,
    ClientCredentials,
    ClientCredentialsLookup,
    Node,
    NodeLookup,
    PluginError,
    Pod,
    PodLookup,
    Service,
    ServiceLookup,
    ServicePort,
)
from flowjoin.testing import RecordingContext
from flowjoin_kubernetes import KubernetesLookupConfig, _lookup, _watch, flowjoin_lookup_types
from flowjoin_kubernetes._lookup import KubernetesLookup, open_lookup

UID = "0b6f3b0a-7a49-4f43-9d0c-0f0f5a1c2d3e"


@pytest.fixture
async def lookup(server: KubernetesStandIn, kubeconfig: Path) -> Any:  # an async generator
    server.put("pods", pod("web-1", "10.0.0.1", "2001:db8::1", labels={"app": "web"}, uid=UID))
    server.put("pods", pod("agent", "192.0.2.1", host_network=True))
    server.put("pods", pod("job", "10.0.0.9", phase="Succeeded"))
    server.put("nodes", node("node-1", "192.0.2.1", uid=UID, labels={"zone": "a"}))
    server.put("services", service("web", "10.96.0.1", uid=UID))
    config = KubernetesLookupConfig(kubeconfig=kubeconfig)
    async with open_lookup(config, RecordingContext()) as lookup:
        yield lookup


async def test_it_answers_for_pods_nodes_and_services(lookup: KubernetesLookup) -> None:
    found = Pod(
        namespace="default",
        name="web-1",
        uid=UID,
        node_name="node-1",
        addresses=("10.0.0.1", "2001:db8::1"),
        labels={"app": "web"},
    )
    assert lookup.pod("10.0.0.1") == lookup.pod("2001:db8::1", at=5.0) == lookup.pod("::ffff:10.0.0.1") == found
    on = Node(name="node-1", uid=UID, addresses=("192.0.2.1",), labels={"zone": "a"})
    assert lookup.node_by_address("192.0.2.1") == lookup.node_by_name("node-1", at=1e12) == on
    port = ServicePort(port=80, protocol_identifier=6, name="http", node_port=30080)
    web = Service(namespace="default", name="web", uid=UID, cluster_addresses=("10.96.0.1",), ports=(port,))
    assert lookup.service_by_name("default", "web") == web
    assert lookup.service_by_address("10.96.0.1", 80, 6) == (web, port)


async def test_without_the_right_to_read_pods_certificates_and_reviews_are_had_and_pods_are_not_known(
    server: KubernetesStandIn, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lookup, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(_watch, "TIMING", replace(_watch.TIMING, first_wait=0.001, longest_wait=0.01))
    server.put("pods", pod("web-1", "10.0.0.1"))
    server.forbidden.add("pods")
    context = RecordingContext()
    with trio.fail_after(60):
        async with open_lookup(KubernetesLookupConfig(kubeconfig=kubeconfig), context) as lookup:
            assert await lookup.get(CertificateObject.AUTHORITY) is None
            assert await lookup.authenticate("nobody's") is None
            for question in (lambda: lookup.pod("10.0.0.1"), lambda: lookup.pod_network("10.0.0.1"), lookup.shared):
                with pytest.raises(PluginError, match="not known yet"):
                    question()
            assert "pods may not be read" in context.impairments[-1]
            server.forbidden.clear()
            await until(lambda: context.impairments[-1] == "")
            await until(lookup._tables.known.is_set)
            assert lookup.pod("10.0.0.1") is not None


async def test_while_the_server_is_away_it_does_not_open_however_long_that_takes(
    server: KubernetesStandIn, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lookup, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(_watch, "TIMING", replace(_watch.TIMING, first_wait=0.001, longest_wait=0.01))
    server.stall = "/pods"
    opened = trio.Event()

    async def open_it() -> None:
        async with open_lookup(KubernetesLookupConfig(kubeconfig=kubeconfig), RecordingContext()):
            opened.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_it)
            await server.wait_requests(4)
            assert not opened.is_set()
            server.stall = None
            await server.drop_connections()
            await opened.wait()


async def test_what_nobody_has_is_none(lookup: KubernetesLookup) -> None:
    assert lookup.pod("10.0.0.2") is None
    assert lookup.node_by_address("10.0.0.1") is None
    assert lookup.node_by_name("node-2") is None
    assert lookup.service_by_name("shop", "web") is None
    assert lookup.service_by_address("10.96.0.1", 80, 17) is None
    assert lookup.service_by_address("10.96.0.1", 81, 6) is None


async def test_pods_in_their_nodes_network_and_ended_ones_have_no_address(lookup: KubernetesLookup) -> None:
    assert lookup.pod("192.0.2.1") is None
    assert lookup.pod("10.0.0.9") is None


async def test_a_pod_that_ends_is_deleted_then(server: KubernetesStandIn, lookup: KubernetesLookup) -> None:
    server.put("pods", pod("web-1", "10.0.0.1", phase="Failed"))
    with trio.fail_after(60):
        await until(lambda: lookup.pod("10.0.0.1") is None)
    assert lookup.pod("10.0.0.1", at=1e9) is not None


def test_it_hands_over_what_it_provides() -> None:
    (lookup_type,) = flowjoin_lookup_types()
    wanted = {PodLookup, NodeLookup, ServiceLookup, ClientCredentialsLookup}
    assert wanted < set(lookup_type.provides)


def publish(server: KubernetesStandIn, serial: str = "one") -> ClientCredentials:
    given = ClientCredentials(ca=f"CA {serial}\n", certificate=f"CERTIFICATE {serial}\n", key=f"KEY {serial}\n")
    names = {"namespace": "flow-aggregator"}
    server.put("configmaps", {"metadata": {"name": "flow-aggregator-ca", **names}, "data": {"ca.crt": given.ca}})
    encoded = {
        "tls.crt": base64.b64encode(given.certificate.encode()).decode(),
        "tls.key": base64.b64encode(given.key.encode()).decode(),
    }
    server.put("secrets", {"metadata": {"name": "flow-aggregator-client-tls", **names}, "data": encoded})
    return given


async def test_certificates_are_read_at_each_call(server: KubernetesStandIn, lookup: KubernetesLookup) -> None:
    for serial in ("one", "two"):
        given = publish(server, serial)
        assert await lookup.client_credentials() == given


async def test_a_key_is_not_shown(server: KubernetesStandIn, lookup: KubernetesLookup) -> None:
    publish(server)
    assert "KEY" not in repr(await lookup.client_credentials())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("no config map", "cannot retrieve CA cert: error getting ConfigMap flow-aggregator-ca: "),
        ("empty config map", "cannot retrieve CA cert: no data in flow-aggregator-ca ConfigMap"),
        ("no secret", "cannot retrieve client cert and key: error getting Secret flow-aggregator-client-tls: "),
        ("no certificate", "cannot retrieve client cert and key: tls.crt is missing in"),
        ("no key", "cannot retrieve client cert and key: tls.key is missing in"),
        ("no base64", "cannot retrieve client cert and key: tls.key in flow-aggregator-client-tls Secret is no PEM"),
        ("server away", "cannot retrieve CA cert: error getting ConfigMap flow-aggregator-ca: injected"),
    ],
)
async def test_what_is_missing_is_said(
    server: KubernetesStandIn, lookup: KubernetesLookup, change: str, sentence: str
) -> None:
    publish(server)
    place = {"namespace": "flow-aggregator"}
    client = {"name": "flow-aggregator-client-tls", **place}
    if change == "no config map":
        server.delete("configmaps", "flow-aggregator", "flow-aggregator-ca")
    elif change == "empty config map":
        server.put("configmaps", {"metadata": {"name": "flow-aggregator-ca", **place}})
    elif change == "no secret":
        server.delete("secrets", "flow-aggregator", "flow-aggregator-client-tls")
    elif change == "no certificate":
        server.put("secrets", {"metadata": client, "data": {"tls.key": "S0VZ"}})
    elif change == "no key":
        server.put("secrets", {"metadata": client, "data": {"tls.crt": "S0VZ"}})
    elif change == "no base64":
        server.put("secrets", {"metadata": client, "data": {"tls.crt": "S0VZ", "tls.key": "secret words!"}})
    else:
        server.faults.append(Fault(500, match="configmaps"))
    with pytest.raises(PluginError) as caught:
        await lookup.client_credentials()
    assert caught.value.problem.startswith(sentence)
    assert "secret words" not in str(caught.value)
