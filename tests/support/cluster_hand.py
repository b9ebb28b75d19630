"""The same hand on the stand-in and on a real API server: what tests do there behind flowjoin's back."""

from __future__ import annotations

import copy
import urllib.error
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import trio
from kubernetes_objects import Manifest
from kubernetes_stand_in import KubernetesStandIn
from real_kubernetes import RealKubernetes

__all__ = ["ClusterHand", "RealHand", "StandInHand"]


class ClusterHand(Protocol):
    """One namespace.

    Attributes:
        kubeconfig: of somebody who may do everything.
    """

    kubeconfig: Path
    namespace: str

    async def read(self, resource: str, name: str) -> Manifest:
        """The object as it is."""
        ...

    async def put(self, resource: str, manifest: Manifest) -> None:
        """Make it, or put it in the place of what is there."""
        ...

    async def delete(self, resource: str, name: str) -> None:
        """Delete it."""
        ...


class StandInHand:
    namespace = "flow-aggregator"

    def __init__(self, server: KubernetesStandIn, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._server = server

    async def read(self, resource: str, name: str) -> Manifest:
        return copy.deepcopy(self._server.find((resource, self.namespace, name)))

    async def put(self, resource: str, manifest: Manifest) -> None:
        metadata = {**manifest["metadata"], "namespace": self.namespace}
        self._server.put(resource, {**manifest, "metadata": metadata})

    async def delete(self, resource: str, name: str) -> None:
        self._server.delete(resource, self.namespace, name)


class RealHand:
    def __init__(self, cluster: RealKubernetes, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = cluster.make_namespace()
        self._cluster = cluster

    async def read(self, resource: str, name: str) -> Manifest:
        found: Manifest = await self._request("GET", f"{resource}/{name}")
        return found

    async def put(self, resource: str, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        try:
            await self._request("PUT", f"{resource}/{name}", manifest)
        except urllib.error.HTTPError as exc:
            if exc.code != 404:
                raise
            await self._request("POST", resource, manifest)

    async def delete(self, resource: str, name: str) -> None:
        await self._request("DELETE", f"{resource}/{name}")

    async def _request(self, method: str, rest: str, manifest: Manifest | None = None) -> Any:
        path = f"/api/v1/namespaces/{self.namespace}/{rest}"
        return await trio.to_thread.run_sync(partial(self._cluster.request, method, path, manifest))
