"""Certificates as objects of the namespace: against the stand-in, and against a real API server where there is one."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from cluster_hand import ClusterHand
from kubernetes_stand_in import Fault, KubernetesStandIn
from waiting import until

from flowjoin.api import CertificateObject
from flowjoin.testing import RecordingContext
from flowjoin_kubernetes import _object_watch
from flowjoin_kubernetes._certificates import ClusterCertificates
from flowjoin_kubernetes._client import ApiError, load_api
from flowjoin_kubernetes._config import KubernetesConfig

AUTHORITY, CLIENT, PUBLISHED = (
    CertificateObject.AUTHORITY,
    CertificateObject.CLIENT,
    CertificateObject.AUTHORITY_CERTIFICATE,
)
PAIR = {"tls.crt": b"certificate", "tls.key": b"key"}
NEVER = 1e6  # seconds
NAMESPACE = "flow-aggregator"


def store_of(kubeconfig: Path, namespace: str, context: RecordingContext | None = None) -> ClusterCertificates:
    api = load_api(KubernetesConfig(kubeconfig=kubeconfig))
    return ClusterCertificates(api, namespace, (context or RecordingContext()).log)


@pytest.fixture
def store(hand: ClusterHand) -> ClusterCertificates:
    return store_of(hand.kubeconfig, hand.namespace)


@pytest.fixture
def lone(kubeconfig: Path) -> ClusterCertificates:
    """Over the stand-in alone, for what a real server does not do when it is asked to."""
    return store_of(kubeconfig, NAMESPACE)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no watch, a look comes soon."""
    for name in ("FIRST_LOOK_SECONDS", "LAST_LOOK_SECONDS"):
        monkeypatch.setattr(_object_watch, name, 0.01)


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a watch can tell."""
    for name in ("FIRST_LOOK_SECONDS", "LAST_LOOK_SECONDS"):
        monkeypatch.setattr(_object_watch, name, NEVER)


async def test_what_is_not_there_is_none(store: ClusterCertificates) -> None:
    assert [await store.get(name) for name in CertificateObject] == [None, None, None]


async def test_only_the_three_are_asked_for_by_name(server: KubernetesStandIn, lone: ClusterCertificates) -> None:
    for name in CertificateObject:
        await lone.get(name)
    assert server.requests == [
        f"/api/v1/namespaces/{NAMESPACE}/secrets/flow-aggregator-ca-tls",
        f"/api/v1/namespaces/{NAMESPACE}/secrets/flow-aggregator-client-tls",
        f"/api/v1/namespaces/{NAMESPACE}/configmaps/flow-aggregator-ca",
    ]


async def test_objects_are_what_agents_read(hand: ClusterHand, store: ClusterCertificates) -> None:
    assert await store.put(CLIENT, PAIR, None)
    assert await store.put(PUBLISHED, {"ca.crt": b"authority"}, None)
    secret = await hand.read("secrets", CLIENT.value)
    assert secret["type"] == "kubernetes.io/tls"
    assert {key: base64.b64decode(value) for key, value in secret["data"].items()} == PAIR
    config_map = await hand.read("configmaps", PUBLISHED.value)
    assert config_map["metadata"]["labels"] == {"app": "flow-aggregator"}
    assert config_map["data"] == {"ca.crt": "authority"}
    written: list[tuple[CertificateObject, Mapping[str, bytes]]] = [
        (CLIENT, PAIR),
        (PUBLISHED, {"ca.crt": b"authority"}),
    ]
    for name, data in written:
        held = await store.get(name)
        assert held is not None
        assert held.data == data


async def test_who_is_slower_writes_nothing_and_is_told(hand: ClusterHand, store: ClusterCertificates) -> None:
    other = store_of(hand.kubeconfig, hand.namespace)
    assert await store.put(AUTHORITY, PAIR, None)
    assert not await other.put(AUTHORITY, {**PAIR, "tls.key": b"theirs"}, None), "it exists already"
    mine, theirs = await store.get(AUTHORITY), await other.get(AUTHORITY)
    assert mine is not None
    assert theirs is not None
    assert await other.put(AUTHORITY, {**PAIR, "tls.key": b"new"}, theirs.version)
    assert not await store.put(AUTHORITY, PAIR, mine.version), "it was changed meanwhile"
    held = await store.get(AUTHORITY)
    assert held is not None
    assert held.data["tls.key"] == b"new"
    await hand.delete("secrets", AUTHORITY.value)
    assert not await store.put(AUTHORITY, PAIR, held.version), "it was deleted meanwhile"


async def test_what_others_wrote_about_an_object_stays(hand: ClusterHand, store: ClusterCertificates) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e02"}
    metadata = {
        "name": PUBLISHED.value,
        "labels": {"team": "flows"},
        "annotations": {"helm": "yes"},
        "ownerReferences": [owner],
        "finalizers": ["flows.example/kept"],
    }
    await hand.put("configmaps", {"metadata": metadata, "data": {}})
    held = await store.get(PUBLISHED)
    assert held is not None
    assert await store.put(PUBLISHED, {"ca.crt": b"new"}, held.version)
    metadata = (await hand.read("configmaps", PUBLISHED.value))["metadata"]
    assert metadata["labels"] == {"team": "flows", "app": "flow-aggregator"}
    assert metadata["annotations"] == {"helm": "yes"}
    assert [each["uid"] for each in metadata["ownerReferences"]] == [owner["uid"]]
    assert metadata["finalizers"] == ["flows.example/kept"]


async def test_a_secret_of_another_type_is_renewed_as_it_is(hand: ClusterHand, store: ClusterCertificates) -> None:
    made = {key: base64.b64encode(value).decode() for key, value in PAIR.items()}
    await hand.put("secrets", {"metadata": {"name": AUTHORITY.value}, "type": "Opaque", "data": made})
    held = await store.get(AUTHORITY)
    assert held is not None
    assert await store.put(AUTHORITY, {**PAIR, "tls.key": b"new"}, held.version)
    secret = await hand.read("secrets", AUTHORITY.value)
    assert secret["type"] == "Opaque"
    assert base64.b64decode(secret["data"]["tls.key"]) == b"new"
    await hand.delete("secrets", AUTHORITY.value)
    assert await store.get(AUTHORITY) is None
    assert await store.put(AUTHORITY, PAIR, None)
    assert (await hand.read("secrets", AUTHORITY.value))["type"] == "kubernetes.io/tls"


@pytest.mark.parametrize("data", [None, {"tls.crt": "no base64!", "tls.key": 7}])
async def test_what_is_no_value_is_as_good_as_absent(
    server: KubernetesStandIn, lone: ClusterCertificates, data: dict[str, Any] | None
) -> None:
    server.put("secrets", {"metadata": {"name": CLIENT.value, "namespace": NAMESPACE}, "data": data})
    held = await lone.get(CLIENT)
    assert held is not None
    assert not any(held.data.values())


async def test_a_refusal_is_an_error_and_no_lost_race(server: KubernetesStandIn, lone: ClusterCertificates) -> None:
    server.faults = [Fault(403, "secrets", message="not for you")]
    with pytest.raises(ApiError, match="not for you"):
        await lone.put(CLIENT, PAIR, None)
    server.forbidden = {"secrets"}
    with pytest.raises(ApiError, match="forbidden"):
        await lone.get(CLIENT)


async def synced(store: ClusterCertificates) -> None:
    """As after a sync: all is there and was read."""
    for name, data in ((AUTHORITY, PAIR), (CLIENT, PAIR), (PUBLISHED, {"ca.crt": b"authority"})):
        assert await store.put(name, data, None)


@pytest.mark.parametrize(("resource", "name"), [("secrets", AUTHORITY), ("secrets", CLIENT), ("configmaps", PUBLISHED)])
@pytest.mark.usefixtures("no_looks")
async def test_a_watch_tells_that_somebody_has_changed_or_deleted_one(
    hand: ClusterHand, store: ClusterCertificates, resource: str, name: CertificateObject
) -> None:
    await synced(store)
    for change in ("put", "delete"):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.wait_change)
                await trio.sleep(0.2)  # mostly enough for the watches to begin; if not, what was missed is read then
                assert nursery.child_tasks, "what we wrote ourselves is no change"
                if change == "put":
                    found = await hand.read(resource, name.value)
                    found["metadata"] = {"name": name.value, "labels": {"touched": "yes"}}
                    await hand.put(resource, found)
                else:
                    await hand.delete(resource, name.value)
        assert (await store.get(name) is None) == (change == "delete")


@pytest.mark.usefixtures("no_looks")
async def test_what_was_not_there_is_seen_when_it_is_made(hand: ClusterHand, store: ClusterCertificates) -> None:
    for name in CertificateObject:
        assert await store.get(name) is None
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.wait_change)
            await hand.put("configmaps", {"metadata": {"name": PUBLISHED.value}, "data": {}})


@pytest.mark.usefixtures("no_looks")
async def test_what_changed_between_reading_and_waiting_is_not_missed(
    hand: ClusterHand, store: ClusterCertificates
) -> None:
    await synced(store)
    await hand.delete("secrets", CLIENT.value)  # of which no watch tells that begins later
    with trio.fail_after(60):
        await store.wait_change()


@pytest.mark.usefixtures("looks")
async def test_a_watch_that_breaks_is_begun_again(server: KubernetesStandIn, lone: ClusterCertificates) -> None:
    await synced(lone)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lone.wait_change)
            for _ in range(3):
                await server.wait_watches(3)
                begun = len(server.requests)
                await server.drop_connections()
                await server.wait_requests(begun + 9)  # each looks, watches, and looks again
            assert nursery.child_tasks, "nothing has changed"
            server.gone_event()
            server.delete("secrets", NAMESPACE, CLIENT.value)


@pytest.mark.usefixtures("looks")
async def test_who_may_not_watch_looks_now_and_then_and_says_so_once(
    server: KubernetesStandIn, kubeconfig: Path
) -> None:
    context = RecordingContext()
    store = store_of(kubeconfig, NAMESPACE, context)
    await synced(store)
    server.forbidden = {"watch secrets", "watch configmaps"}
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.wait_change)
            await server.wait_requests(len(server.requests) + 30)
            assert nursery.child_tasks, "nothing has changed"
            server.delete("configmaps", NAMESPACE, PUBLISHED.value)
    problems = [line.facts["problem"] for line in context.log.lines if line.event == "certificate_unwatched"]
    assert len(problems) == 3
    assert all("cannot watch resource" in str(problem) for problem in problems)


@pytest.mark.usefixtures("looks")
async def test_while_the_server_is_away_or_answers_junk_it_waits(
    server: KubernetesStandIn, lone: ClusterCertificates
) -> None:
    await synced(lone)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lone.wait_change)
            await server.wait_watches(3)
            server.faults = [Fault(503, times=5), Fault(429, times=5), Fault(500, times=5)]
            await server.drop_connections()
            await until(lambda: not server.faults)
            await server.wait_watches(3)
            begun = len(server.requests)
            server.send_to_watches(b"no JSON\n{}\nnull\n")
            server.send_to_watches(b"x" * 5_000_000)  # too long for an event: the watch is given up
            await server.wait_requests(begun + 18)
            assert nursery.child_tasks, "nothing has changed"
            server.delete("secrets", NAMESPACE, AUTHORITY.value)


@pytest.mark.parametrize("requests", range(8))
@pytest.mark.usefixtures("no_looks")
async def test_cancelled_while_it_waits_it_ends_at_once_and_leaves_no_connection(
    server: KubernetesStandIn, lone: ClusterCertificates, requests: int
) -> None:
    await synced(lone)
    before = len(server.requests)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lone.wait_change)
            if requests < 7:
                await server.wait_requests(before + requests)
            else:
                await server.wait_watches(3)
            nursery.cancel_scope.cancel()
        await server.wait_watches(0)
        await server.wait_connections(0)
