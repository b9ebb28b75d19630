"""A stand-in API server for each test, the kubeconfig that leads to it, and a real one where a test wants both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from cluster_hand import ClusterHand, RealHand, StandInHand
from kubernetes_stand_in import KubernetesStandIn
from real_kubernetes import RealKubernetes, real_cluster, write_kubeconfig

__all__ = ["real_cluster"]

TOKEN = "a-token-of-a-service-account"


@pytest.fixture
async def server() -> AsyncIterator[KubernetesStandIn]:
    server = KubernetesStandIn()
    server.tokens = {TOKEN}
    async with server.serving():
        yield server


@pytest.fixture
def kubeconfig_of(tmp_path: Path) -> Callable[..., Path]:
    """Writes a kubeconfig: JSON is YAML."""

    def write(url: str, *, token: str = TOKEN, **cluster: str) -> Path:
        path = tmp_path / "kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": url, **cluster}}],
            "users": [{"name": "me", "user": {"token": token}}],
        }
        path.write_text(json.dumps(content))
        return path

    return write


@pytest.fixture
def kubeconfig(server: KubernetesStandIn, kubeconfig_of: Callable[..., Path]) -> Path:
    return kubeconfig_of(server.url)


REAL = pytest.param("real", marks=[pytest.mark.slow, pytest.mark.timeout(600)])


@pytest.fixture(params=["stand-in", REAL])
def real_or_none(request: pytest.FixtureRequest) -> RealKubernetes | None:
    """A test that asks for ``hand`` runs against the stand-in, and against a real kube-apiserver where there is one."""
    return request.getfixturevalue("real_cluster") if request.param == "real" else None


@pytest.fixture
async def hand(
    real_or_none: RealKubernetes | None, server: KubernetesStandIn, kubeconfig: Path, tmp_path: Path
) -> ClusterHand:
    """What the test does to the cluster, in a namespace of its own."""
    if real_or_none is None:
        return StandInHand(server, kubeconfig)
    return RealHand(real_or_none, write_kubeconfig(tmp_path / "real", real_or_none.url))
