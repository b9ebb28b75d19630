"""On a Node, the Pods of that Node alone are listed and watched; of the others' it knows the networks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from kubernetes_objects import node, pod, service
from kubernetes_stand_in import KubernetesStandIn
from waiting import until

from flowjoin.api import ConfigError
from flowjoin.testing import RecordingContext
from flowjoin_kubernetes import KubernetesLookupConfig, _tables, _watch
from flowjoin_kubernetes._config import own_node
from flowjoin_kubernetes._lookup import KubernetesLookup, open_lookup

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = replace(_watch.TIMING, first_wait=0.001, longest_wait=0.01)
    monkeypatch.setattr(_watch, "TIMING", timing)
    monkeypatch.setattr(_tables, "_LOOK_SECONDS", 0.005)
    monkeypatch.setenv("NODE_NAME", "node-1")


@pytest.fixture
def cluster(server: KubernetesStandIn) -> KubernetesStandIn:
    """Two Nodes with a Pod each, and a Service."""
    server.put("nodes", node("node-1", "192.0.2.1", pod_networks=("10.10.1.0/24", "fd00:10:1::/64")))
    server.put("nodes", node("node-2", "192.0.2.2", pod_networks=("10.10.2.0/24", "fd00:10:2::/64")))
    server.put("pods", pod("here", "10.10.1.5", "fd00:10:1::5"))
    server.put("pods", pod("there", "10.10.2.5", node="node-2"))
    server.put("services", service("web", "10.96.0.1"))
    return server


@asynccontextmanager
async def opened(kubeconfig: Path, context: RecordingContext | None = None) -> AsyncIterator[KubernetesLookup]:
    config = KubernetesLookupConfig(kubeconfig=kubeconfig, only_node=True)
    with trio.fail_after(PATIENCE):
        async with open_lookup(config, context or RecordingContext()) as lookup:
            yield lookup


def names(lookup: KubernetesLookup, *addresses: str) -> list[str | None]:
    return [None if found is None else found.name for found in map(lookup.pod, addresses)]


def queries(server: KubernetesStandIn, resource: str) -> list[dict[str, list[str]]]:
    urls = map(urlsplit, server.requests)
    return [parse_qs(url.query) for url in urls if url.path == f"/api/v1/{resource}"]


async def test_only_the_pods_of_this_node_are_known(cluster: KubernetesStandIn, kubeconfig: Path) -> None:
    async with opened(kubeconfig) as lookup:
        assert names(lookup, "10.10.1.5", "fd00:10:1::5", "10.10.2.5") == ["here", "here", None]
        await cluster.wait_watches(3)
    asked = queries(cluster, "pods")
    assert {"watch" in query for query in asked} == {True, False}
    assert all(query["fieldSelector"] == ["spec.nodeName=node-1"] for query in asked)


async def test_nodes_and_services_are_known_whole(cluster: KubernetesStandIn, kubeconfig: Path) -> None:
    async with opened(kubeconfig) as lookup:
        await cluster.wait_watches(3)
        assert lookup.node_by_name("node-2") is not None
        assert lookup.service_by_address("10.96.0.1", 80, 6) is not None
    assert not any("fieldSelector" in query for what in ("nodes", "services") for query in queries(cluster, what))


async def test_without_the_key_all_pods_are_known_whatever_the_nodes_name(
    cluster: KubernetesStandIn, kubeconfig: Path
) -> None:
    with trio.fail_after(PATIENCE):
        async with open_lookup(KubernetesLookupConfig(kubeconfig=kubeconfig), RecordingContext()) as lookup:
            await cluster.wait_watches(3)
            assert names(lookup, "10.10.1.5", "10.10.2.5") == ["here", "there"]
            assert not lookup.is_of_one_node()
    assert not any("fieldSelector" in target for target in cluster.requests)


async def test_each_page_of_the_list_is_of_this_node(cluster: KubernetesStandIn, kubeconfig: Path) -> None:
    for number in range(1100):
        cluster.put("pods", pod(f"pod-{number}", f"10.10.{number // 250 + 10}.{number % 250}"))
        cluster.put("pods", pod(f"far-{number}", f"10.20.{number // 250}.{number % 250}", node="node-2"))
    async with opened(kubeconfig) as lookup:
        assert len(lookup._tables.pods) == 1101
    lists = [query for query in queries(cluster, "pods") if "watch" not in query]
    assert len(lists) == 3
    assert all(query["fieldSelector"] == ["spec.nodeName=node-1"] for query in lists)


async def test_pods_that_appear_vanish_and_begin_anew_on_another_node_are_followed(
    cluster: KubernetesStandIn, kubeconfig: Path
) -> None:
    async with opened(kubeconfig) as lookup:
        await cluster.wait_watches(3)
        cluster.put("pods", pod("new", node="", phase="Pending"))  # no Node yet
        cluster.put("pods", pod("new", phase="Pending"))  # given to this one: it is told as added
        cluster.put("pods", pod("new", "10.10.1.6"))
        cluster.put("pods", pod("far", "10.10.2.6", node="node-2"))
        await until(lambda: names(lookup, "10.10.1.6", "10.10.2.6") == ["new", None])
        cluster.delete("pods", "default", "here")
        cluster.put("pods", pod("here", "10.10.2.7", node="node-2"))  # as of a StatefulSet
        await until(lambda: names(lookup, "10.10.1.5", "10.10.2.7") == [None, None])
        assert lookup.pod("10.10.1.5", at=1e9) is not None  # found by flows of its time
        cluster.delete("pods", "default", "here")
        cluster.put("pods", pod("here", "10.10.1.8"))
        await until(lambda: names(lookup, "10.10.1.8") == ["here"])
    assert sum("limit=" in target for target in cluster.requests if "/pods" in target) == 1


async def test_a_pod_that_no_longer_fits_is_deleted(cluster: KubernetesStandIn, kubeconfig: Path) -> None:
    async with opened(kubeconfig) as lookup:
        await cluster.wait_watches(3)
        cluster.put("pods", pod("here", "10.10.1.5", node="node-2"))
        await until(lambda: names(lookup, "10.10.1.5") == [None])


async def test_a_watch_that_breaks_goes_on_with_the_same_pods(cluster: KubernetesStandIn, kubeconfig: Path) -> None:
    async with opened(kubeconfig) as lookup:
        await cluster.wait_watches(3)
        await cluster.drop_connections()
        cluster.put("pods", pod("far", "10.10.2.6", node="node-2"))
        cluster.put("pods", pod("new", "10.10.1.6"))
        await until(lambda: names(lookup, "10.10.1.6", "10.10.2.6") == ["new", None])


@pytest.mark.parametrize("as_status", [False, True])
async def test_where_the_version_is_gone_this_nodes_pods_are_listed_again(
    cluster: KubernetesStandIn, kubeconfig: Path, *, as_status: bool
) -> None:
    cluster.gone_as_status = as_status
    cluster.put("pods", pod("goes", "10.10.1.6"))
    cluster.put("pods", pod("leaves", "10.10.1.7"))
    context = RecordingContext()
    async with opened(kubeconfig, context) as lookup:
        await cluster.wait_watches(3)
        await cluster.drop_connections()
        cluster.delete("pods", "default", "goes")
        cluster.delete("pods", "default", "leaves")
        cluster.put("pods", pod("leaves", "10.10.2.7", node="node-2"))
        cluster.put("pods", pod("comes", "10.10.1.8"))
        cluster.compact()
        asked = ("10.10.1.5", "10.10.1.6", "10.10.1.7", "10.10.2.7", "10.10.1.8")
        await until(lambda: names(lookup, *asked) == ["here", None, None, None, "comes"])
        cluster.put("pods", pod("later", "10.10.1.9"))
        await until(lambda: names(lookup, "10.10.1.9") == ["later"])
    assert "list_again" in context.events
    assert all(query["fieldSelector"] == ["spec.nodeName=node-1"] for query in queries(cluster, "pods"))


async def test_an_address_of_another_nodes_pod_is_known_by_its_network(
    cluster: KubernetesStandIn, kubeconfig: Path
) -> None:
    async with opened(kubeconfig) as lookup:
        assert lookup.pod_network("10.10.2.5") == lookup.pod_network("::ffff:10.10.2.77") == "10.10.2.0/24"
        assert lookup.pod_network("fd00:10:2::5") == "fd00:10:2::/64"
        assert lookup.pod_network("10.10.3.5") is None
        assert lookup.pod_network("192.0.2.2") is None
        assert lookup.pod_network("fd00:10:3::5") is None
        await cluster.wait_watches(3)
        cluster.put("nodes", node("node-3", pod_networks=("10.10.3.0/25", "10.10.4.0/23")))
        await until(lambda: lookup.pod_network("10.10.5.1") is not None)
        assert lookup.pod_network("10.10.3.5") == "10.10.3.0/25"
        assert lookup.pod_network("10.10.3.129") is None
        assert lookup.pod_network("10.10.2.5") == "10.10.2.0/24"
        cluster.delete("nodes", "", "node-3")
        await until(lambda: lookup.pod_network("10.10.3.5") is None)
        assert lookup.pod_network("10.10.3.5", at=1e9) == "10.10.3.0/25"  # for a while


async def test_a_node_that_is_not_there_is_said_until_it_is(
    server: KubernetesStandIn, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "node-7")
    server.put("nodes", node("node-1"))
    context = RecordingContext()
    async with opened(kubeconfig, context):
        await server.wait_watches(3)
        await until(lambda: bool(context.impairments))
        problem = "there is no Node 'node-7' in the cluster, so no Pod is found: NODE_NAME must be a Node's name"
        assert context.impairments == [problem]
        server.put("nodes", node("node-7"))
        await until(lambda: context.impairments == [problem, ""])
    assert "nodes_without_pod_networks" in context.events


async def test_a_node_that_is_there_is_no_news(cluster: KubernetesStandIn, kubeconfig: Path) -> None:
    context = RecordingContext()
    async with opened(kubeconfig, context) as lookup:
        await cluster.wait_watches(3)
        cluster.put("pods", pod("new", "10.10.1.6"))
        await until(lambda: names(lookup, "10.10.1.6") == ["new"])
    assert not any(context.impairments)
    assert "nodes_without_pod_networks" not in context.events


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (None, "needs this Node's name, and NODE_NAME is not set"),
        ("", "needs this Node's name, and NODE_NAME is not set"),
        ("Node-1", "NODE_NAME is 'Node-1', which is no Node's name"),
        ("a,status.phase=Running", "NODE_NAME is 'a,status.phase=Running', which is no Node's name"),
        ("node-1\n", "NODE_NAME is 'node-1\\n', which is no Node's name"),
        ("-a", "NODE_NAME is '-a', which is no Node's name"),
        ("a..b", "NODE_NAME is 'a..b', which is no Node's name"),
        ("a" * 254, f"NODE_NAME is '{'a' * 253}', which is no Node's name"),
    ],
)
async def test_without_a_nodes_name_it_does_not_open_and_asks_nothing(
    server: KubernetesStandIn, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, sentence: str
) -> None:
    if name is None:
        monkeypatch.delenv("NODE_NAME")
    else:
        monkeypatch.setenv("NODE_NAME", name)
    with pytest.raises(ConfigError) as caught:
        async with opened(kubeconfig):
            pass
    assert caught.value.path == "onlyNode"
    assert sentence in str(caught.value)
    assert server.requests == []


@pytest.mark.parametrize("name", ["node-1", "ip-10-0-0-1.eu-west-1.compute.internal", "7", "a" * 253])
def test_names_that_nodes_have_are_taken(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("NODE_NAME", name)
    assert own_node() == name
