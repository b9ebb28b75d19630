"""The certificates of flowjoin's own authority as objects of its namespace, where agents look for them.

An update names the resource version that was read, so that of two replicas one is refused. What others have written
about an object (labels, annotations, owners, finalizers) stays, and so does a Secret's type, which cannot be changed. A
watch of each object tells what others do to it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import trio

from flowjoin.api import CertificateObject, Logger, StoredCertificate
from flowjoin_kubernetes._client import Api, ApiError
from flowjoin_kubernetes._object_watch import wait_object_change

__all__ = ["ClusterCertificates"]

_LABELS: Final = {"app": "flow-aggregator"}
_OF_OTHERS: Final = ("labels", "annotations", "ownerReferences", "finalizers")
_TYPE: Final = "kubernetes.io/tls"
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class ClusterCertificates:
    """A ``CertificateStore``."""

    def __init__(self, api: Api, namespace: str, log: Logger) -> None:
        """Nothing is asked for yet."""
        self._api = api
        self._namespace = namespace
        self._log = log
        self._seen: dict[CertificateObject, str | None] = {}
        self._metadata: dict[CertificateObject, dict[str, Any]] = {}
        self._types: dict[CertificateObject, str] = {}

    async def get(self, name: CertificateObject) -> StoredCertificate | None:
        """As ``CertificateStore``.

        Raises:
            ApiError: the server refuses.
            HttpTrouble: no answer came.
        """
        try:
            found = await self._api.get_object(f"{self._collection(name)}/{name.value}")
        except ApiError as exc:
            if exc.code != _NOT_FOUND:
                raise
            self._seen[name] = None
            self._metadata.pop(name, None)
            self._types.pop(name, None)
            return None
        metadata = found.get("metadata") or {}
        version = str(metadata.get("resourceVersion") or "")
        self._seen[name] = version
        self._metadata[name] = {key: metadata[key] for key in _OF_OTHERS if metadata.get(key)}
        self._types[name] = str(found.get("type") or _TYPE)
        data = {key: _octets(name, value) for key, value in (found.get("data") or {}).items()}
        return StoredCertificate(data=data, version=version)

    async def put(self, name: CertificateObject, data: Mapping[str, bytes], replaces: str | None) -> bool:
        """As ``CertificateStore``.

        Raises:
            ApiError: the server refuses for another reason than that somebody was faster.
            HttpTrouble: no answer came.
        """
        kept = self._metadata.get(name, {})
        metadata: dict[str, Any] = {
            **kept,
            "name": name.value,
            "namespace": self._namespace,
            "labels": {**kept.get("labels", {}), **_LABELS},
        }
        manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        if name is CertificateObject.AUTHORITY_CERTIFICATE:
            manifest["data"] = {key: octets.decode("ascii") for key, octets in data.items()}
        else:
            manifest |= {"kind": "Secret", "type": self._types.get(name, _TYPE)}
            manifest["data"] = {key: base64.b64encode(octets).decode() for key, octets in data.items()}
        try:
            if replaces is None:
                written = await self._api.send("POST", self._collection(name), manifest)
            else:
                metadata["resourceVersion"] = replaces
                written = await self._api.send("PUT", f"{self._collection(name)}/{name.value}", manifest)
        except ApiError as exc:
            if exc.code in (_CONFLICT, _NOT_FOUND):
                return False
            raise
        self._seen[name] = str((written.get("metadata") or {}).get("resourceVersion") or "")
        return True

    async def wait_change(self) -> None:
        """As ``CertificateStore``; requests that fail are tried again until one succeeds."""
        async with trio.open_nursery() as nursery:
            for name in CertificateObject:
                nursery.start_soon(self._wait_other_version, name, self._seen.get(name), nursery.cancel_scope)

    async def _wait_other_version(self, name: CertificateObject, version: str | None, found: trio.CancelScope) -> None:
        told = ""

        def tell_trouble(problem: str) -> None:
            nonlocal told
            if problem and problem != told:
                self._log.warning("certificate_unwatched", object=name.value, problem=problem)
            told = problem

        async def has_changed() -> bool:
            await self.get(name)
            return self._seen[name] != version

        await wait_object_change(self._api, self._collection(name), name.value, has_changed, tell_trouble=tell_trouble)
        found.cancel()

    def _collection(self, name: CertificateObject) -> str:
        resource = "configmaps" if name is CertificateObject.AUTHORITY_CERTIFICATE else "secrets"
        return f"/api/v1/namespaces/{self._namespace}/{resource}"


def _octets(name: CertificateObject, value: object) -> bytes:
    """A value's octets; none for what is no value, which is as good as absent."""
    if not isinstance(value, str):
        return b""
    if name is CertificateObject.AUTHORITY_CERTIFICATE:
        return value.encode()
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""
