"""Reviews of tokens and of what may be read: against the stand-in, and as a real API server answers."""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from kubernetes_stand_in import Fault, KubernetesStandIn
from real_kubernetes import READER, RealKubernetes, write_kubeconfig

from flowjoin.api import User
from flowjoin_kubernetes._access import ClusterAccess
from flowjoin_kubernetes._client import Api, ApiError, load_api
from flowjoin_kubernetes._config import KubernetesConfig

GROUP = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def api(kubeconfig: Path) -> Api:
    return load_api(KubernetesConfig(kubeconfig=kubeconfig))


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
    [
        {},
        {"authenticated": False},
        {"authenticated": "true", "user": {"username": "a"}},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": "system:anonymous", "groups": ["system:unauthenticated"]}},
    ],
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


def real_access(cluster: RealKubernetes, folder: Path, *token: str) -> ClusterAccess:
    kubeconfig = write_kubeconfig(folder / "real", cluster.url, *token)
    return ClusterAccess(load_api(KubernetesConfig(kubeconfig=kubeconfig)))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_real_server_says_who_a_service_account_is_and_what_its_roles_let_it_read(
    real_cluster: RealKubernetes, tmp_path: Path
) -> None:
    ask = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
    namespace = await ask(real_cluster.make_namespace)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await ask(real_cluster.request, "POST", accounts, {"metadata": {"name": "prometheus"}})
    role = {
        "metadata": {"name": namespace},
        "rules": [{"nonResourceURLs": ["/flowrecords", "/metrics"], "verbs": ["get"]}],
    }
    binding = {
        "metadata": {"name": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace},
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": namespace}],
    }
    await ask(real_cluster.request, "POST", f"{GROUP}/clusterroles", role)
    await ask(real_cluster.request, "POST", f"{GROUP}/clusterrolebindings", binding)
    token = await ask(real_cluster.make_token, namespace, "prometheus")

    access = real_access(real_cluster, tmp_path)
    with trio.fail_after(120):
        user = await access.authenticate(token)
        assert user is not None
        assert user.name == f"system:serviceaccount:{namespace}:prometheus"
        assert {"system:serviceaccounts", f"system:serviceaccounts:{namespace}"} <= set(user.groups)
        while not await access.is_allowed(user, "get", "/flowrecords"):  # noqa: ASYNC110 - told to its authoriser alone
            await trio.sleep(0.1)
        asked = [("get", "/metrics"), ("head", "/flowrecords"), ("get", "/loglevel"), ("get", "/flowrecords/more")]
        assert [await access.is_allowed(user, *each) for each in asked] == [True, False, False, False]
        assert not await access.is_allowed(User(name="somebody"), "get", "/flowrecords")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_real_server_knows_no_token_that_it_did_not_make(real_cluster: RealKubernetes, tmp_path: Path) -> None:
    ask = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
    namespace = await ask(real_cluster.make_namespace)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await ask(real_cluster.request, "POST", accounts, {"metadata": {"name": "default"}})
    head, claims, signature = (await ask(real_cluster.make_token, namespace, "default")).split(".")
    other = json.loads(base64.urlsafe_b64decode(claims + "=="))
    other["sub"] = "system:serviceaccount:kube-system:default"
    forged = base64.urlsafe_b64encode(json.dumps(other).encode()).decode().rstrip("=")
    wrong = [f"{head}.{forged}.{signature}", f"{head}.{claims}.", "nobody", "x" * 16_000, "\xff\x00", " ", "\u00a0"]
    access = real_access(real_cluster, tmp_path)
    with trio.fail_after(120):
        assert [await access.authenticate(token) for token in wrong] == [None] * len(wrong)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_who_may_not_review_is_told_which_right_is_missing(real_cluster: RealKubernetes, tmp_path: Path) -> None:
    access = real_access(real_cluster, tmp_path, READER)
    with trio.fail_after(120):
        with pytest.raises(ApiError, match='cannot create resource "tokenreviews"'):
            await access.authenticate("x")
        with pytest.raises(ApiError, match='cannot create resource "subjectaccessreviews"'):
            await access.is_allowed(User(name="x"), "get", "/flowrecords")
