"""The same against a real kube-apiserver and etcd: what the stand-in promises, and the rights that the how-to lists."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml
from real_kubernetes import ADMIN, READER, RealKubernetes, write_kubeconfig
from waiting import until

from flowjoin.testing import RecordingContext
from flowjoin_kubernetes import KubernetesConfig, _watch
from flowjoin_kubernetes._client import load_api
from flowjoin_kubernetes._cluster_uuid import cluster_uuid
from flowjoin_kubernetes._tables import ClusterTables, open_tables

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE = 120.0
HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "name-pods-in-flows.md"
GROUP = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(name="cluster")
def _cluster(real_cluster: RealKubernetes) -> RealKubernetes:
    return real_cluster


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_watch, "TIMING", replace(_watch.TIMING, first_wait=0.05, longest_wait=0.5))


@pytest.fixture
def kubeconfig(cluster: RealKubernetes, tmp_path: Path) -> Callable[..., Path]:
    def write(token: str = ADMIN) -> Path:
        return write_kubeconfig(tmp_path / "kubeconfig", cluster.url, token)

    return write


@asynccontextmanager
async def tables_of(
    kubeconfig: Path, context: RecordingContext | None = None, node: str = ""
) -> AsyncIterator[ClusterTables]:
    config = KubernetesConfig(kubeconfig=kubeconfig)
    with trio.fail_after(PATIENCE):
        async with open_tables(load_api(config), config, context or RecordingContext(), node=node) as tables:
            yield tables


def name_of(tables: ClusterTables, address: str) -> str | None:
    record = tables.pod_record(address, None)
    return None if record is None else record.name


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    return await trio.to_thread.run_sync(lambda: function(*arguments))


async def test_lists_in_pages_and_follows_changes(
    cluster: RealKubernetes, kubeconfig: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watch, "_PAGE_SIZES", (3, 5, 0))
    for number in range(10):
        await in_thread(cluster.put_pod, f"pod-{number}", f"10.0.0.{number}")
    node = {"metadata": {"name": "node-1"}}
    await in_thread(cluster.request, "POST", "/api/v1/nodes", node)
    addresses = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}
    await in_thread(cluster.request, "PATCH", "/api/v1/nodes/node-1/status", addresses)
    spec = {"ports": [{"port": 80, "name": "http"}], "selector": {"app": "web"}}
    service = {"metadata": {"name": "web"}, "spec": spec}
    made = await in_thread(cluster.request, "POST", "/api/v1/namespaces/default/services", service)
    async with tables_of(kubeconfig()) as tables:
        assert [name_of(tables, f"10.0.0.{number}") for number in range(10)] == [f"pod-{n}" for n in range(10)]
        assert tables.node_at("192.0.2.1", None) is not None
        assert tables.service_at(made["spec"]["clusterIP"], 80, 6, None) is not None
        assert tables.service_record("default", "kubernetes", None) is not None
        await in_thread(lambda: cluster.put_pod("later", "10.0.1.1", app="web", tier="a"))
        await until(lambda: name_of(tables, "10.0.1.1") == "later")
        found = tables.pod_record("10.0.1.1", None)
        assert found is not None
        assert found.labels == '{"app":"web","tier":"a"}'
        await in_thread(cluster.delete_pod, "later")
        await until(lambda: name_of(tables, "10.0.1.1") is None)
        gone = tables.pod_record("10.0.1.1", 1e9)
        assert gone is not None
        assert gone.name == "later"


async def test_a_list_whose_history_is_compacted_between_pages_is_begun_again(
    cluster: RealKubernetes, kubeconfig: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watch, "_PAGE_SIZES", (2, 5, 0))
    for number in range(4):
        await in_thread(cluster.put_pod, f"paged-{number}", f"10.0.2.{number}")
    whole_page, pages = _watch.Watcher._page, []

    async def page(watcher: _watch.Watcher, connection: Any, query: dict[str, str]) -> Any:
        taken = await whole_page(watcher, connection, query)
        if watcher._resource is _watch.Resource.PODS:
            pages.append(dict(query))
            if len(pages) == 1:
                await in_thread(cluster.put_pod, "between", "10.0.2.9")  # so that there is something to forget
                await in_thread(cluster.compact)
        return taken

    monkeypatch.setattr(_watch.Watcher, "_page", page)
    context = RecordingContext()
    async with tables_of(kubeconfig(), context) as tables:
        assert [name_of(tables, f"10.0.2.{number}") for number in range(4)] == [f"paged-{n}" for n in range(4)]
        assert name_of(tables, "10.0.2.9") == "between"
    assert "list_again" in context.events
    assert {query["limit"] for query in pages} == {"2", "5"}


async def test_of_one_node_its_pods_are_listed_and_followed_whatever_happens_on_others(
    cluster: RealKubernetes, kubeconfig: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watch, "_PAGE_SIZES", (2, 5, 0))
    context = RecordingContext()

    async def put(name: str, address: str, node: str) -> None:
        await in_thread(lambda: cluster.put_pod(name, address, node=node))

    node = {"metadata": {"name": "own"}, "spec": {"podCIDR": "10.7.0.0/24", "podCIDRs": ["10.7.0.0/24"]}}
    await in_thread(cluster.request, "POST", "/api/v1/nodes", node)
    for number in range(3):
        await put(f"own-{number}", f"10.7.0.{number}", "own")
        await put(f"far-{number}", f"10.7.1.{number}", "far")
    async with tables_of(kubeconfig(), context, node="own") as tables:
        assert [name_of(tables, f"10.7.0.{number}") for number in range(3)] == ["own-0", "own-1", "own-2"]
        assert len(tables.pods) == 3
        assert tables.pod_network("10.7.0.99", None) == "10.7.0.0/24"

        # A scheduler gives a Pod to a Node after it was made; then it begins to fit.
        pods = "/api/v1/namespaces/default/pods"
        spec = {"containers": [{"name": "c", "image": "i"}]}
        await in_thread(cluster.request, "POST", pods, {"metadata": {"name": "bound"}, "spec": spec})
        binding = {"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "own"}}
        await in_thread(cluster.request, "POST", f"{pods}/bound/binding", binding)
        status = {"phase": "Running", "podIP": "10.7.0.9", "podIPs": [{"ip": "10.7.0.9"}]}
        await in_thread(cluster.request, "PATCH", f"{pods}/bound/status", {"status": status})
        await until(lambda: name_of(tables, "10.7.0.9") == "bound")

        await in_thread(cluster.delete_pod, "own-0")  # and made anew elsewhere, as of a StatefulSet
        await put("own-0", "10.7.1.9", "far")
        await until(lambda: name_of(tables, "10.7.0.0") is None)

        await in_thread(cluster.kill)
        await until(lambda: any(context.impairments))
        await in_thread(cluster.start)
        await in_thread(cluster.delete_pod, "own-1")
        await put("own-3", "10.7.0.3", "own")
        await in_thread(cluster.compact)
        await until(lambda: (name_of(tables, "10.7.0.1"), name_of(tables, "10.7.0.3")) == (None, "own-3"))
        assert name_of(tables, "10.7.1.9") is None
        assert {record.node for record in map(tables.pods._make, tables.pods._rows.values())} == {"own"}


async def test_a_server_that_is_killed_and_comes_back_is_followed_on_and_what_is_gone_is_listed_again(
    cluster: RealKubernetes, kubeconfig: Callable[..., Path]
) -> None:
    context = RecordingContext()
    async with tables_of(kubeconfig(), context) as tables:
        await in_thread(cluster.put_pod, "before", "10.0.3.1")
        await until(lambda: name_of(tables, "10.0.3.1") == "before")
        await in_thread(cluster.kill)
        await until(lambda: any(context.impairments))
        assert name_of(tables, "10.0.3.1") == "before"
        await in_thread(cluster.start)
        await in_thread(cluster.put_pod, "after", "10.0.3.2")
        await until(lambda: name_of(tables, "10.0.3.2") == "after")
        await until(lambda: context.impairments[-1] == "")


async def test_a_watch_from_a_version_that_is_gone_is_answered_by_a_list(
    cluster: RealKubernetes, kubeconfig: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    await in_thread(cluster.put_pod, "old", "10.0.4.1")
    await in_thread(cluster.compact)
    await in_thread(cluster.kill)  # with its memory of changes
    await in_thread(cluster.start)
    whole_list, lists = _watch.Watcher._list, []

    async def list_(watcher: _watch.Watcher) -> None:
        await whole_list(watcher)
        lists.append(watcher._resource)
        if lists.count(watcher._resource) == 1:
            watcher._version = "1"

    monkeypatch.setattr(_watch.Watcher, "_list", list_)
    context = RecordingContext()
    async with tables_of(kubeconfig(), context) as tables:
        await until(lambda: lists.count(_watch.Resource.PODS) == 2)
        await in_thread(cluster.put_pod, "new", "10.0.4.2")
        await until(lambda: name_of(tables, "10.0.4.2") == "new")
    reasons = [line.facts["reason"] for line in context.log.lines if line.event == "list_again"]
    assert any("too old resource version" in str(reason) for reason in reasons), reasons


async def test_the_rights_of_the_how_to_are_enough_and_without_them_they_are_named(
    cluster: RealKubernetes, kubeconfig: Callable[..., Path]
) -> None:
    context = RecordingContext()
    identity = {
        "metadata": {"name": "antrea-cluster-identity"},
        "data": {"uuid": "27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e02"},
    }
    await in_thread(cluster.request, "POST", "/api/v1/namespaces/kube-system/configmaps", identity)

    async def grant() -> None:
        await until(lambda: any("pods may not be read" in problem for problem in context.impairments))
        (block,) = re.findall(r"^```yaml\n(apiVersion: rbac.*?)^```$", HOW_TO.read_text(), re.M | re.S)
        subject = {"kind": "User", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}
        for role in yaml.safe_load_all(block):
            kind, metadata = role["kind"], role["metadata"]
            place = f"{GROUP}/namespaces/{metadata['namespace']}" if "namespace" in metadata else GROUP
            reference = {"kind": kind, "name": metadata["name"], "apiGroup": "rbac.authorization.k8s.io"}
            binding = {"metadata": {"name": metadata["name"]}, "roleRef": reference, "subjects": [subject]}
            await in_thread(cluster.request, "POST", f"{place}/{kind.lower()}s", role)
            await in_thread(cluster.request, "POST", f"{place}/{kind.lower()}bindings", binding)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(grant)
        async with tables_of(kubeconfig(READER), context) as tables:
            await until(lambda: context.impairments[-1] == "")
            assert tables.service_record("default", "kubernetes", None) is not None
    problem = next(problem for problem in context.impairments if "pods may not be read" in problem)
    assert 'pods is forbidden: User "reader" cannot list resource "pods"' in problem
    config = KubernetesConfig(kubeconfig=kubeconfig(READER))
    assert await cluster_uuid(config, RecordingContext().log) == identity["data"]["uuid"]  # type: ignore[index]


async def test_a_token_that_nobody_has_is_named(cluster: RealKubernetes, kubeconfig: Callable[..., Path]) -> None:
    context = RecordingContext()
    async with trio.open_nursery() as nursery:

        async def open_for_ever() -> None:
            async with tables_of(kubeconfig("nobody-has-this"), context):
                raise AssertionError("it opened")

        nursery.start_soon(open_for_ever)
        with trio.fail_after(PATIENCE):
            await until(lambda: any("does not accept the credentials" in each for each in context.impairments))
        nursery.cancel_scope.cancel()


async def test_it_ends_at_once_while_it_watches(cluster: RealKubernetes, kubeconfig: Callable[..., Path]) -> None:
    async with tables_of(kubeconfig()):
        await trio.sleep(0.2)
        leaving = trio.current_time()
    assert trio.current_time() - leaving < 10
