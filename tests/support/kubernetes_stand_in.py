"""A stand-in for the Kubernetes API server: lists in pages, watches with history, 410 Gone, and faults on demand.

It speaks HTTP/1.1 on a socket of loopback, as the real one does over it: a watch gives every change after its version,
or 410 where that is gone, as an event in a stream or as a status; without a version it begins with what there is.
Bookmarks come when a test asks.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from urllib.parse import parse_qsl, urlsplit

import h11
import trio
from http_wire import next_request, send_head, send_json, until_closed
from kubernetes_history import History, Key, Wanted, event, status
from kubernetes_objects import Manifest

_LABELS = ("metadata.name", "metadata.namespace")  # which fields may be selected by
_LABELS_OF = {"pods": ("spec.nodeName", "status.phase")}


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


class KubernetesStandIn(History):
    """The server, and faults on demand.

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
        super().__init__()
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
        self._changed = trio.Event()
        self._streams: set[trio.abc.Stream] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def watches(self) -> int:
        """How many are going on."""
        return len(self.told)

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
                refusal = status(fault.status, "Injected", fault.message)
                await send_json(http, stream, fault.status, refusal, fault.headers)
                return
        if self.tokens is not None and headers.get("authorization", "").partition(" ")[2] not in self.tokens:
            await send_json(http, stream, 401, status(401, "Unauthorized", "Unauthorized"))
            return
        url = urlsplit(target)
        resource, namespace, name = _resource_of(url.path)
        query = dict(parse_qsl(url.query))
        wanted = Wanted((resource, namespace, name), _fields(query.get("fieldSelector", "")))
        unknown = [label for label, _ in wanted.fields if label not in (*_LABELS, *_LABELS_OF.get(resource, ()))]
        verb = _verb(request.method, is_of_one=bool(name), is_watch=query.get("watch") == "1")
        if {resource, f"{verb} {resource}"} & self.forbidden:
            message = f'{resource} is forbidden: User "system:serviceaccount:flows:flowjoin" cannot {verb} resource'
            await send_json(http, stream, 403, status(403, "Forbidden", message))
        elif unknown:
            await send_json(http, stream, 400, status(400, "BadRequest", f"field label not supported: {unknown[0]}"))
        elif request.method == b"POST" and url.path.startswith("/apis/"):
            self.reviewed.append(json.loads(body))
            await send_json(http, stream, 201, self.review(json.loads(body)))
        elif request.method in (b"POST", b"PUT"):
            code, written = self.write(wanted.key, json.loads(body))
            await send_json(http, stream, code, written)
        elif name:
            found = self.find(wanted.key)
            missing = status(404, "NotFound", f'{resource} "{name}" not found')
            await send_json(http, stream, 200 if found else 404, found or missing)
        elif verb == "watch":
            await self._watch(http, stream, wanted, query)
        else:
            code, answer = self.page(wanted, query)
            await send_json(http, stream, code, answer)

    async def _watch(
        self, http: h11.Connection, stream: trio.abc.Stream, wanted: Wanted, query: dict[str, str]
    ) -> None:
        version = query.get("resourceVersion")
        gone = self.problem_from(version)
        if gone and self.gone_as_status:
            await send_json(http, stream, 410, gone)
            return
        await send_head(http, stream)
        if gone:
            await self._send_pieces(http, stream, event("ERROR", gone))
            await stream.send_all(http.send(h11.EndOfMessage()) or b"")
            return
        send, receive = trio.open_memory_channel[bytes | None](inf)
        for each in self.events_from(version, wanted):
            send.send_nowait(each)
        self.told[send] = wanted
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
            del self.told[send]
            self._changed.set()
        await stream.send_all(http.send(h11.EndOfMessage()) or b"")

    async def _send_pieces(self, http: h11.Connection, stream: trio.abc.Stream, octets: bytes) -> None:
        size = self.split or len(octets)
        for at in range(0, len(octets), size):
            await stream.send_all(http.send(h11.Data(octets[at : at + size])) or b"")
            if self.split:
                await trio.lowlevel.checkpoint()


def _resource_of(path: str) -> Key:
    parts = path.removeprefix("/api/v1/").split("/")
    if parts[0] == "namespaces" and len(parts) > 2:
        return parts[2], parts[1], parts[3] if len(parts) > 3 else ""
    return parts[0], "", parts[1] if len(parts) > 1 else ""


def _fields(selector: str) -> tuple[tuple[str, str], ...]:
    pairs = (each.partition("=") for each in selector.split(",") if each)
    return tuple((label, value.removeprefix("=")) for label, _, value in pairs)


def _verb(method: bytes, *, is_of_one: bool, is_watch: bool) -> str:
    """As roles have it."""
    if method == b"GET":
        return "get" if is_of_one else "watch" if is_watch else "list"
    return {b"POST": "create", b"PUT": "update"}[method]
