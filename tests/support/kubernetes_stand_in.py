"""A stand-in for the Kubernetes API server: lists in pages, watches with history, 410 Gone, and faults on demand.

It speaks HTTP/1.1 on a socket of loopback, as the real one does over it: resource versions grow over all resources; a
list's pages are of one moment, and their token is void once the history before it is gone; a watch gives every change
after its version, or 410 where that is gone, as an event in a stream or as a status; without a version it begins with
what there is. What begins to fit a field selector is told as added, what no longer fits as deleted. Bookmarks come when
a test asks.
"""

from __future__ import annotations

import base64
import copy
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import h11
import trio
from http_wire import next_request, send_head, send_json, until_closed
from kubernetes_objects import Manifest

_LABELS = ("metadata.name", "metadata.namespace")  # which fields may be selected by
_LABELS_OF = {"pods": ("spec.nodeName", "status.phase")}

Key = tuple[str, str, str]  # resource, namespace, name; in what is asked for, an empty one stands for all

_KINDS = {
    "pods": "Pod", "nodes": "Node", "services": "Service", "configmaps": "ConfigMap", "secrets": "Secret",
}  # fmt: skip


@dataclass(slots=True)
class Fault:
    """Answers that are not what was asked for.

    Attributes:
        match: part of the request's target.
        times: how often.
    """

    status: int
    match: str = ""
    times: float = 1
    message: str = "injected"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Change:
    version: int
    kind: str
    resource: str
    manifest: Manifest
    before: Manifest | None = None
    junk: bytes = b""  # what is told in its place


class _Wanted(NamedTuple):
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
            return _event("DELETED", change.manifest) if does_fit else None
        if does_fit:
            return _event("MODIFIED" if did_fit else "ADDED", change.manifest)
        if not did_fit:
            return None
        gone = copy.deepcopy(change.before)
        assert gone is not None, "it did fit"
        gone["metadata"]["resourceVersion"] = str(change.version)
        return _event("DELETED", gone)


class KubernetesStandIn:
    """The server's state, changed by tests between their requests.

    Attributes:
        port: where it listens; the same each time it comes back.
        requests: targets of all requests, in order.
        authorizations: the headers of that name, in order.
        client_names: those of the certificates that clients showed, for each connection over TLS.
        split: octets in a piece of a stream; None sends each event whole.
        tokens: bearer tokens that are accepted; None accepts all.
        forbidden: resources that are answered with 403; or ``watch secrets``, where only that may not be done.
        faults: worked off before anything else.
        gone_as_status: a watch from a version that is gone is refused at once, not by an event.
        stall: a part of targets whose requests get no answer at all.
        review: answers a TokenReview or SubjectAccessReview.
        reviewed: what was asked so.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self.requests: list[str] = []
        self.authorizations: list[str] = []
        self.client_names: list[tuple[str, ...]] = []
        self.split: int | None = None
        self.tokens: set[str] | None = None
        self.forbidden: set[str] = set()
        self.faults: list[Fault] = []
        self.gone_as_status = False
        self.stall: str | None = None
        self.review: Callable[[Manifest], Manifest] = lambda asked: {**asked, "status": {}}
        self.reviewed: list[Manifest] = []
        self.connections = 0
        self._tls = tls
        self._objects: dict[Key, Manifest] = {}
        self._history: list[_Change] = []
        self._version = 1000
        self._oldest = 1000
        self._snapshots: dict[int, list[tuple[Key, Manifest]]] = {}
        self._watches: dict[trio.MemorySendChannel[bytes | None], _Wanted] = {}
        self._changed = trio.Event()
        self._streams: set[trio.abc.Stream] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def watches(self) -> int:
        """How many are going on."""
        return len(self._watches)

    # What tests do to the cluster.

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
        self._history.clear()

    def bookmark(self) -> None:
        """Send a bookmark to every watch."""
        for channel, wanted in self._watches.items():
            manifest = {"kind": _KINDS[wanted.key[0]], "metadata": {"resourceVersion": str(self._version)}}
            channel.send_nowait(_event("BOOKMARK", manifest))

    def send_to_watches(self, octets: bytes | None) -> None:
        """Send octets into every stream as they are; None ends the streams as the server does in time."""
        for channel in list(self._watches):
            channel.send_nowait(octets)

    def spoil(self, resource: str, octets: bytes) -> None:
        """A change that can be told in no other words: these octets."""
        self._version += 1
        change = _Change(self._version, "MODIFIED", resource, {}, junk=octets)
        self._history.append(change)
        for channel, wanted in self._watches.items():
            if event := wanted.event(change):
                channel.send_nowait(event)

    def gone_event(self) -> None:
        """Tell every watch that its version is gone."""
        self.send_to_watches(_event("ERROR", _status(410, "Expired", "too old resource version")))
        self.send_to_watches(None)

    async def drop_connections(self) -> None:
        """Break every connection off."""
        for stream in list(self._streams):
            await trio.aclose_forcefully(stream)

    async def wait_watches(self, count: int) -> None:
        """Wait until so many watches go on."""
        while self.watches != count:
            await self._wait_change()

    async def wait_connections(self, count: int) -> None:
        """Wait until so many connections are open."""
        while len(self._streams) != count:
            await self._wait_change()

    async def wait_requests(self, count: int) -> None:
        """Wait until there were so many requests."""
        while len(self.requests) < count:
            await self._wait_change()

    async def _wait_change(self) -> None:
        self._changed = trio.Event()
        await self._changed.wait()

    # The server.

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[KubernetesStandIn]:
        """Listen until the context is left; afterwards it is down, and can come back."""
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
            self.port = listeners[0].socket.getsockname()[1]
            nursery.start_soon(partial(trio.serve_listeners, self._serve, listeners, handler_nursery=nursery))
            try:
                yield self
            finally:
                nursery.cancel_scope.cancel()

    async def _serve(self, socket: trio.SocketStream) -> None:
        stream: trio.abc.Stream = socket
        tls: trio.SSLStream[trio.SocketStream] | None = None
        self.connections += 1
        if self._tls is not None:
            stream = tls = trio.SSLStream(socket, self._tls, server_side=True, https_compatible=True)
        self._streams.add(stream)
        try:
            if tls is not None:
                await tls.do_handshake()
                subject = tls.getpeercert() or {}
                self.client_names.append(tuple(name for _, name in subject.get("subjectAltName", ())))
            http = h11.Connection(h11.SERVER)
            while True:
                request = await next_request(http, stream)
                if request is None:
                    break
                await self._answer(http, stream, *request)
                if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                    break
                http.start_next_cycle()
        except* (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError):
            pass  # the client left, or the test broke the connection off
        finally:
            self._streams.discard(stream)
            self._changed.set()
            await trio.aclose_forcefully(stream)

    async def _answer(self, http: h11.Connection, stream: trio.abc.Stream, request: h11.Request, body: bytes) -> None:
        target = request.target.decode()
        headers = {name.decode(): value.decode() for name, value in request.headers}
        self.requests.append(target)
        self.authorizations.append(headers.get("authorization", ""))
        self._changed.set()
        if self.stall is not None and self.stall in target:
            await trio.sleep_forever()
        for fault in self.faults:
            if fault.match in target:
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                status = _status(fault.status, "Injected", fault.message)
                await send_json(http, stream, fault.status, status, fault.headers)
                return
        if self.tokens is not None and headers.get("authorization", "").partition(" ")[2] not in self.tokens:
            await send_json(http, stream, 401, _status(401, "Unauthorized", "Unauthorized"))
            return
        url = urlsplit(target)
        resource, namespace, name = _resource_of(url.path)
        query = dict(parse_qsl(url.query))
        wanted = _Wanted((resource, namespace, name), _fields(query.get("fieldSelector", "")))
        unknown = [label for label, _ in wanted.fields if label not in (*_LABELS, *_LABELS_OF.get(resource, ()))]
        verb = _verb(request.method, is_of_one=bool(name), is_watch=query.get("watch") == "1")
        if {resource, f"{verb} {resource}"} & self.forbidden:
            message = f'{resource} is forbidden: User "system:serviceaccount:flows:flowjoin" cannot {verb} resource'
            await send_json(http, stream, 403, _status(403, "Forbidden", message))
        elif unknown:
            await send_json(http, stream, 400, _status(400, "BadRequest", f"field label not supported: {unknown[0]}"))
        elif request.method == b"POST" and url.path.startswith("/apis/"):
            self.reviewed.append(json.loads(body))
            await send_json(http, stream, 201, self.review(json.loads(body)))
        elif request.method in (b"POST", b"PUT"):
            code, written = self._write(resource, namespace, name, json.loads(body))
            await send_json(http, stream, code, written)
        elif name:
            found = self._objects.get((resource, namespace, name))
            missing = _status(404, "NotFound", f'{resource} "{name}" not found')
            await send_json(http, stream, 200 if found else 404, found or missing)
        elif verb == "watch":
            await self._watch(http, stream, wanted, query)
        else:
            code, answer = self._list(wanted, query)
            await send_json(http, stream, code, answer)

    def _write(self, resource: str, namespace: str, name: str, manifest: Manifest) -> tuple[int, Manifest]:
        """Create where no name is in the path, else replace what still has the version that is named."""
        there = self._objects.get((resource, namespace, name or manifest["metadata"]["name"]))
        if not name:
            if there is not None:
                return 409, _status(409, "AlreadyExists", f"{resource} already exists")
            return 201, self.put(resource, manifest)
        if there is None:
            return 404, _status(404, "NotFound", f'{resource} "{name}" not found')
        if manifest["metadata"].get("resourceVersion") != there["metadata"]["resourceVersion"]:
            return 409, _status(409, "Conflict", "the object has been modified; please apply your changes")
        if manifest.get("type") != there.get("type"):
            return 422, _status(422, "Invalid", "type: field is immutable")
        return 200, self.put(resource, manifest)

    def _list(self, wanted: _Wanted, query: dict[str, str]) -> tuple[int, Manifest]:
        version, at = self._version, 0
        if "continue" in query:
            version, at = json.loads(base64.b64decode(query["continue"]))
            if version < self._oldest:
                return 410, _status(410, "Expired", "The provided continue parameter is too old")
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
            "kind": f"{_KINDS[wanted.key[0]]}List",
            "apiVersion": "v1",
            "metadata": metadata,
            "items": items[at : at + limit],
        }

    async def _watch(
        self, http: h11.Connection, stream: trio.abc.Stream, wanted: _Wanted, query: dict[str, str]
    ) -> None:
        since = int(query.get("resourceVersion") or self._version)
        gone = _status(410, "Expired", f"too old resource version: {since} ({self._oldest})")
        if since < self._oldest and self.gone_as_status:
            await send_json(http, stream, 410, gone)
            return
        await send_head(http, stream)
        if since < self._oldest:
            await self._send_pieces(http, stream, _event("ERROR", gone))
            await stream.send_all(http.send(h11.EndOfMessage()) or b"")
            return
        send, receive = trio.open_memory_channel[bytes | None](inf)
        if "resourceVersion" not in query:
            for (resource, _, _), manifest in self._objects.items():
                if wanted.fits(resource, manifest):
                    send.send_nowait(_event("ADDED", manifest))
        for change in self._history:
            if change.version > since and (event := wanted.event(change)):
                send.send_nowait(event)
        self._watches[send] = wanted
        self._changed.set()
        try:
            with trio.move_on_after(float(query["timeoutSeconds"])):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(until_closed, stream, nursery.cancel_scope)
                    async for octets in receive:
                        if octets is None:
                            break
                        await self._send_pieces(http, stream, octets)
                    nursery.cancel_scope.cancel()
        finally:
            del self._watches[send]
            self._changed.set()
        await stream.send_all(http.send(h11.EndOfMessage()) or b"")

    async def _send_pieces(self, http: h11.Connection, stream: trio.abc.Stream, octets: bytes) -> None:
        size = self.split or len(octets)
        for at in range(0, len(octets), size):
            await stream.send_all(http.send(h11.Data(octets[at : at + size])) or b"")
            if self.split:
                await trio.lowlevel.checkpoint()

    def _note(self, kind: str, resource: str, manifest: Manifest, before: Manifest | None) -> None:
        self._version += 1
        manifest["metadata"]["resourceVersion"] = str(self._version)
        change = _Change(self._version, kind, resource, copy.deepcopy(manifest), before)
        self._history.append(change)
        for channel, wanted in self._watches.items():
            if event := wanted.event(change):
                channel.send_nowait(event)


def _resource_of(path: str) -> Key:
    parts = path.removeprefix("/api/v1/").split("/")
    if parts[0] == "namespaces" and len(parts) > 2:
        return parts[2], parts[1], parts[3] if len(parts) > 3 else ""
    return parts[0], "", parts[1] if len(parts) > 1 else ""


def _key(resource: str, manifest: Manifest) -> Key:
    return resource, manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def _fields(selector: str) -> tuple[tuple[str, str], ...]:
    pairs = (each.partition("=") for each in selector.split(",") if each)
    return tuple((label, value.removeprefix("=")) for label, _, value in pairs)


def _field(manifest: Manifest, label: str) -> str:
    outer, _, inner = label.partition(".")
    return str(manifest.get(outer, {}).get(inner, ""))


def _verb(method: bytes, *, is_of_one: bool, is_watch: bool) -> str:
    """As roles have it."""
    if method == b"GET":
        return "get" if is_of_one else "watch" if is_watch else "list"
    return {b"POST": "create", b"PUT": "update"}[method]


def _event(kind: str, manifest: Manifest) -> bytes:
    return json.dumps({"type": kind, "object": manifest}, ensure_ascii=False).encode() + b"\n"


def _status(code: int, reason: str, message: str) -> Manifest:
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    }  # fmt: skip
