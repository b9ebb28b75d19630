"""A stand-in API server for each test, and the kubeconfig that leads to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from kubernetes_stand_in import KubernetesStandIn

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
