"""Certificates as objects of the namespace, and reviews of tokens, against the stand-in."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import trio
from kubernetes_stand_in import Fault, KubernetesStandIn

from flowjoin.api import CertificateObject, User
from flowjoin_kubernetes._access import ClusterAccess
from flowjoin_kubernetes._certificates import ClusterCertificates
from flowjoin_kubernetes._client import Api, ApiError, load_api
from flowjoin_kubernetes._config import KubernetesConfig

NAMESPACE = "flow-aggregator"
AUTHORITY, CLIENT, PUBLISHED = (
    CertificateObject.AUTHORITY,
    CertificateObject.CLIENT,
    CertificateObject.AUTHORITY_CERTIFICATE,
)
PAIR = {"tls.crt": b"certificate", "tls.key": b"key"}


@pytest.fixture
def api(kubeconfig: Path) -> Api:
    return load_api(KubernetesConfig(kubeconfig=kubeconfig))


@pytest.fixture
def store(api: Api) -> ClusterCertificates:
    return ClusterCertificates(api, NAMESPACE)


def stored(server: KubernetesStandIn, resource: str, name: CertificateObject) -> dict[str, Any]:
    return server._objects[resource, NAMESPACE, name.value]


async def test_what_is_not_there_is_none(server: KubernetesStandIn, store: ClusterCertificates) -> None:
    assert [await store.get(name) for name in CertificateObject] == [None, None, None]
    assert server.requests == [
        f"/api/v1/namespaces/{NAMESPACE}/secrets/flow-aggregator-ca-tls",
        f"/api/v1/namespaces/{NAMESPACE}/secrets/flow-aggregator-client-tls",
        f"/api/v1/namespaces/{NAMESPACE}/configmaps/flow-aggregator-ca",
    ]


async def test_objects_are_what_agents_read(server: KubernetesStandIn, store: ClusterCertificates) -> None:
    assert await store.put(CLIENT, PAIR, None)
    assert await store.put(PUBLISHED, {"ca.crt": b"authority"}, None)
    secret = stored(server, "secrets", CLIENT)
    assert secret["type"] == "kubernetes.io/tls"
    assert {key: base64.b64decode(value) for key, value in secret["data"].items()} == PAIR
    config_map = stored(server, "configmaps", PUBLISHED)
    assert config_map["metadata"]["labels"] == {"app": "flow-aggregator"}
    assert config_map["data"] == {"ca.crt": "authority"}
    for name, data in ((CLIENT, PAIR), (PUBLISHED, {"ca.crt": b"authority"})):
        held = await store.get(name)
        assert held is not None
        assert held.data == data


async def test_who_is_slower_writes_nothing_and_is_told(
    server: KubernetesStandIn, store: ClusterCertificates, api: Api
) -> None:
    other = ClusterCertificates(api, NAMESPACE)
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
    server.delete("secrets", NAMESPACE, AUTHORITY.value)
    assert not await store.put(AUTHORITY, PAIR, held.version), "it was deleted meanwhile"


async def test_labels_and_annotations_of_others_stay(server: KubernetesStandIn, store: ClusterCertificates) -> None:
    metadata = {
        "name": PUBLISHED.value,
        "namespace": NAMESPACE,
        "labels": {"team": "flows"},
        "annotations": {"helm": "yes"},
    }
    server.put("configmaps", {"metadata": metadata, "data": {}})
    held = await store.get(PUBLISHED)
    assert held is not None
    assert await store.put(PUBLISHED, {"ca.crt": b"new"}, held.version)
    metadata = stored(server, "configmaps", PUBLISHED)["metadata"]
    assert metadata["labels"] == {"team": "flows", "app": "flow-aggregator"}
    assert metadata["annotations"] == {"helm": "yes"}


@pytest.mark.parametrize("data", [None, {"tls.crt": "no base64!", "tls.key": 7}])
async def test_what_is_no_value_is_as_good_as_absent(
    server: KubernetesStandIn, store: ClusterCertificates, data: dict[str, Any] | None
) -> None:
    server.put("secrets", {"metadata": {"name": CLIENT.value, "namespace": NAMESPACE}, "data": data})
    held = await store.get(CLIENT)
    assert held is not None
    assert not any(held.data.values())


async def test_a_refusal_is_an_error_and_no_lost_race(server: KubernetesStandIn, store: ClusterCertificates) -> None:
    server.faults = [Fault(403, "secrets", message="not for you")]
    with pytest.raises(ApiError, match="not for you"):
        await store.put(CLIENT, PAIR, None)
    server.forbidden = {"secrets"}
    with pytest.raises(ApiError, match="forbidden"):
        await store.get(CLIENT)


async def test_a_change_by_others_is_seen(
    server: KubernetesStandIn, store: ClusterCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowjoin_kubernetes._certificates.LOOK_SECONDS", 0.01)
    await store.put(CLIENT, PAIR, None)
    for name in CertificateObject:
        await store.get(name)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.wait_change)
            before = len(server.requests)
            await server.wait_requests(before + 6)
            assert nursery.child_tasks, "nothing has changed"
            server.delete("secrets", NAMESPACE, CLIENT.value)


async def test_a_tokens_user_is_what_the_review_says(server: KubernetesStandIn, api: Api) -> None:
    user = {
        "username": "system:serviceaccount:monitoring:prometheus",
        "uid": "1",
        "groups": ["system:authenticated"],
        "extra": {"node": ["n1"]},
    }
    server.review = lambda asked: {**asked, "status": {"authenticated": True, "user": user}}
    found = await ClusterAccess(api).authenticate("theirs")
    assert found == User(
        name=user["username"],
        uid="1",
        groups=("system:authenticated",),
        extra={"node": ("n1",)},  # type: ignore[arg-type]
    )
    assert server.reviewed[0]["spec"] == {"token": "theirs"}
    server.review = lambda asked: {**asked, "status": {"allowed": True}}
    assert found is not None
    assert await ClusterAccess(api).is_allowed(found, "get", "/flowrecords")
    assert server.reviewed[1]["spec"] == {
        "nonResourceAttributes": {"path": "/flowrecords", "verb": "get"},
        "user": user["username"],
        "uid": "1",
        "groups": ["system:authenticated"],
        "extra": {"node": ["n1"]},
    }


@pytest.mark.parametrize(
    "status",
    [{}, {"authenticated": False}, {"authenticated": "true", "user": {"username": "a"}}, {"authenticated": True}],
)
async def test_a_token_that_the_review_does_not_know_is_nobodys(
    server: KubernetesStandIn, api: Api, status: dict[str, Any]
) -> None:
    server.review = lambda asked: {**asked, "status": status}
    assert await ClusterAccess(api).authenticate("x") is None


@pytest.mark.parametrize("status", [{}, {"allowed": False}, {"allowed": True, "denied": True}, {"allowed": 1}])
async def test_only_a_clear_yes_is_a_yes(server: KubernetesStandIn, api: Api, status: dict[str, Any]) -> None:
    server.review = lambda asked: {**asked, "status": status}
    assert not await ClusterAccess(api).is_allowed(User(name="a"), "get", "/flowrecords")


async def test_a_review_that_is_refused_is_an_error(server: KubernetesStandIn, api: Api) -> None:
    server.faults = [Fault(403, "tokenreviews", message="may not review")]
    with pytest.raises(ApiError, match="may not review"):
        await ClusterAccess(api).authenticate("x")
