"""What a Kubernetes API server keeps: objects, the changes they had, and who is told of these.

Resource versions grow over all resources; a list's pages are of one moment, and their token is void once the history
before it is gone. What begins to fit a field selector is told as added, what no longer fits as deleted.
"""

from __future__ import annotations

import base64
import copy
import json
import uuid
from dataclasses import dataclass
from typing import NamedTuple

import trio
from kubernetes_objects import Manifest

__all__ = ["KINDS", "History", "Key", "Wanted", "event", "status"]

KINDS = {
    "pods": "Pod", "nodes": "Node", "services": "Service", "configmaps": "ConfigMap", "secrets": "Secret",
}  # fmt: skip

Key = tuple[str, str, str]  # resource, namespace, name; in what is asked for, an empty one stands for all


@dataclass(frozen=True, slots=True)
class _Change:
    version: int
    kind: str
    resource: str
    manifest: Manifest
    before: Manifest | None = None
    junk: bytes = b""  # what is told in its place


class Wanted(NamedTuple):
    """What a list or a watch is of.

    Attributes:
        fields: of the field selector, with their values.
    """

    key: Key
    fields: tuple[tuple[str, str], ...] = ()

    def fits(self, resource: str, manifest: Manifest) -> bool:
        is_of = (one == other or not other for one, other in zip(_key(resource, manifest), self.key, strict=True))
        return all(is_of) and all(_field(manifest, label) == value for label, value in self.fields)

    def event(self, change: _Change) -> bytes | None:
        """As a watch of it tells a change; None where that is nothing to it."""
        if change.junk:
            return change.junk if change.resource == self.key[0] else None
        did_fit = change.before is not None and self.fits(change.resource, change.before)
        does_fit = self.fits(change.resource, change.manifest)
        if change.kind == "DELETED":
            return event("DELETED", change.manifest) if does_fit else None
        if does_fit:
            return event("MODIFIED" if did_fit else "ADDED", change.manifest)
        if not did_fit:
            return None
        gone = copy.deepcopy(change.before)
        assert gone is not None, "it did fit"
        gone["metadata"]["resourceVersion"] = str(change.version)
        return event("DELETED", gone)


class History:
    """The server's state, changed by tests between their requests, and by requests.

    Attributes:
        told: for each watch, where its events go, None at its end, and what it is of.
    """

    def __init__(self) -> None:
        self.told: dict[trio.MemorySendChannel[bytes | None], Wanted] = {}
        self._objects: dict[Key, Manifest] = {}
        self._changes: list[_Change] = []
        self._version = 1000
        self._oldest = 1000
        self._snapshots: dict[int, list[tuple[Key, Manifest]]] = {}

    def put(self, resource: str, manifest: Manifest) -> Manifest:
        """Make or change an object; gives it as it is stored."""
        manifest = copy.deepcopy(manifest)
        metadata, key = manifest["metadata"], _key(resource, manifest)
        old = self._objects.get(key)
        metadata.setdefault("uid", old["metadata"]["uid"] if old else str(uuid.uuid4()))
        self._note("MODIFIED" if old else "ADDED", resource, manifest, old)
        self._objects[key] = manifest
        return copy.deepcopy(manifest)

    def delete(self, resource: str, namespace: str, name: str) -> None:
        """Delete an object."""
        manifest = copy.deepcopy(self._objects.pop((resource, namespace, name)))
        self._note("DELETED", resource, manifest, None)

    def compact(self) -> None:
        """Forget the history: versions and tokens from before are gone."""
        self._version += 1
        self._oldest = self._version
        self._changes.clear()

    def bookmark(self) -> None:
        """Send a bookmark to every watch."""
        for channel, wanted in self.told.items():
            manifest = {"kind": KINDS[wanted.key[0]], "metadata": {"resourceVersion": str(self._version)}}
            channel.send_nowait(event("BOOKMARK", manifest))

    def send_to_watches(self, octets: bytes | None) -> None:
        """Send octets into every stream as they are; None ends the streams as the server does in time."""
        for channel in list(self.told):
            channel.send_nowait(octets)

    def spoil(self, resource: str, octets: bytes) -> None:
        """A change that can be told in no other words: these octets."""
        self._version += 1
        self._tell(_Change(self._version, "MODIFIED", resource, {}, junk=octets))

    def gone_event(self) -> None:
        """Tell every watch that its version is gone."""
        self.send_to_watches(event("ERROR", status(410, "Expired", "too old resource version")))
        self.send_to_watches(None)

    def find(self, key: Key) -> Manifest | None:
        """The object as it is."""
        return self._objects.get(key)

    def write(self, key: Key, manifest: Manifest) -> tuple[int, Manifest]:
        """Create where no name is in the key, else replace what still has the version that is named."""
        resource, namespace, name = key
        there = self._objects.get((resource, namespace, name or manifest["metadata"]["name"]))
        if not name:
            if there is not None:
                return 409, status(409, "AlreadyExists", f"{resource} already exists")
            return 201, self.put(resource, manifest)
        if there is None:
            return 404, status(404, "NotFound", f'{resource} "{name}" not found')
        if manifest["metadata"].get("resourceVersion") != there["metadata"]["resourceVersion"]:
            return 409, status(409, "Conflict", "the object has been modified; please apply your changes")
        if manifest.get("type") != there.get("type"):
            return 422, status(422, "Invalid", "type: field is immutable")
        return 200, self.put(resource, manifest)

    def page(self, wanted: Wanted, query: dict[str, str]) -> tuple[int, Manifest]:
        """A page of a list."""
        version, at = self._version, 0
        if "continue" in query:
            version, at = json.loads(base64.b64decode(query["continue"]))
            if version < self._oldest:
                return 410, status(410, "Expired", "The provided continue parameter is too old")
        snapshot = self._snapshots.get(version)
        if snapshot is None or not at:
            snapshot = self._snapshots[version] = [
                (key, copy.deepcopy(manifest)) for key, manifest in sorted(self._objects.items())
            ]
        items = [manifest for (resource, _, _), manifest in snapshot if wanted.fits(resource, manifest)]
        limit = int(query.get("limit") or 0) or len(items)
        metadata: Manifest = {"resourceVersion": str(version)}
        if at + limit < len(items):
            metadata["continue"] = base64.b64encode(json.dumps([version, at + limit]).encode()).decode()
            metadata["remainingItemCount"] = len(items) - at - limit
        return 200, {
            "kind": f"{KINDS[wanted.key[0]]}List",
            "apiVersion": "v1",
            "metadata": metadata,
            "items": items[at : at + limit],
        }

    def problem_from(self, version: str | None) -> Manifest | None:
        """Why no watch can go on from there; None where one can."""
        since = int(version or self._version)
        if since >= self._oldest:
            return None
        return status(410, "Expired", f"too old resource version: {since} ({self._oldest})")

    def events_from(self, version: str | None, wanted: Wanted) -> list[bytes]:
        """What a watch begins with: the changes after the version; without one, what there is."""
        if version is None:
            return [
                event("ADDED", each) for (resource, _, _), each in self._objects.items() if wanted.fits(resource, each)
            ]
        later = [wanted.event(change) for change in self._changes if change.version > int(version)]
        return [each for each in later if each]

    def _note(self, kind: str, resource: str, manifest: Manifest, before: Manifest | None) -> None:
        self._version += 1
        manifest["metadata"]["resourceVersion"] = str(self._version)
        self._tell(_Change(self._version, kind, resource, copy.deepcopy(manifest), before))

    def _tell(self, change: _Change) -> None:
        self._changes.append(change)
        for channel, wanted in self.told.items():
            if told := wanted.event(change):
                channel.send_nowait(told)


def event(kind: str, manifest: Manifest) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": kind, "object": manifest}, ensure_ascii=False).encode() + b"\n"


def status(code: int, reason: str, message: str) -> Manifest:
    """What a refusal is told as."""
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    }  # fmt: skip


def _key(resource: str, manifest: Manifest) -> Key:
    return resource, manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def _field(manifest: Manifest, label: str) -> str:
    outer, _, inner = label.partition(".")
    return str(manifest.get(outer, {}).get(inner, ""))
