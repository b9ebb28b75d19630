"""The ASGI application: what is asked for, and what is answered. It waits for nothing but its client.

/flowrecords goes through the table in slices and hands the loop on before each, whether or not a slice gave anything
to send: how long a reply takes is no matter of anybody else's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from flowjoin._api_server.access import Access
from flowjoin._api_server.config import ApiServerLimits
from flowjoin._api_server.figures import Figures
from flowjoin._api_server.flow_query import BadQuery, FlowQuery, parse_query
from flowjoin._api_server.flow_records import json_records
from flowjoin._api_server.log_level import log_level_reply
from flowjoin._api_server.replies import (
    JSON,
    Reply,
    health_reply,
    liveness_reply,
    readiness_reply,
    record_metrics_reply,
    text_reply,
)
from flowjoin._api_server.row_filter import row_filter
from flowjoin._model.flow_batch import FlowBatch

__all__ = ["FLOWS_PER_SLICE", "HttpApi", "Send"]

# ASGI's messages and scopes are dictionaries of many types: hence Any.
Scope: TypeAlias = Mapping[str, Any]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

FLOWS_PER_SLICE: Final = 48  # rows made and written as JSON: some 80 µs a flow, 4 ms
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_EVENTS: Final = "text/event-stream"
_METHODS: Final = ("GET", "HEAD")
_PATHS: Final = (
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/recordmetrics",
    "/flowrecords",
    "/flowstream",
    "/loglevel",
)
_ALWAYS: Final = (("cache-control", "no-store"), ("x-content-type-options", "nosniff"))


class HttpApi:
    """Answers one request at a call."""

    def __init__(
        self,
        figures: Figures,
        limits: ApiServerLimits,
        *,
        give_way: Callable[[], Awaitable[None]],
        access: Access | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Take what is shown, what lets everybody else have their turn, and who says who may read; None: everybody.

        ``clock`` is monotonic seconds, for the length of streams.
        """
        self._figures = figures
        self._access = access
        self._clock = clock
        self._limits = limits
        self._give_way = give_way
        self._scans = 0
        self._streams = 0

    async def answer(
        self, scope: Scope, send: Send, is_gone: Callable[[], bool], *, peer: str = "", identity: str | None = None
    ) -> None:
        """Answer an HTTP request.

        Args:
            scope: of ASGI.
            send: of ASGI.
            is_gone: whether the client has left, so that nobody reads a long reply on.
            peer: the client's address.
            identity: the name in the certificate that TLS has verified.
        """
        path = scope["path"]
        reply = self._refusal(scope)
        if reply is None and self._access is not None:
            reply = await self._access.refusal(scope["method"], path, scope["headers"], peer=peer, identity=identity)
        if reply is None:
            reply = self._short_reply(path, scope)
        query: FlowQuery | None = None
        if reply is None:
            try:
                query = parse_query(scope["query_string"])
            except BadQuery as exc:
                reply = text_reply(404, str(exc))
        is_scan = query is not None and path == "/flowrecords"
        if is_scan and scope["method"] != "HEAD" and self._scans >= self._limits.scans:
            problem = f"{self._scans} replies of /flowrecords are in progress; come again"
            reply = text_reply(503, problem, headers=(("retry-after", "1"),))
        is_stream = path == "/flowstream"
        if query is not None and is_stream and scope["method"] != "HEAD" and self._streams >= self._limits.streams:
            reply = text_reply(503, f"{self._streams} watch already; come again", headers=(("retry-after", "5"),))
        is_known = path in _PATHS or path.startswith("/healthz/")
        status = 200 if reply is None else reply.status
        self._figures.count_request("/" + path.split("/")[1] if is_known else "other", status)
        if reply is not None:
            await self._send_reply(reply, send)
            return
        assert query is not None, "a path that is known and has no short reply"
        await send(self._start(200, _EVENTS if is_stream else JSON))
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        if is_stream:
            self._streams += 1
            try:
                await self._send_stream(query, send, is_gone)
            finally:
                self._streams -= 1
            return
        self._scans += 1
        try:
            await self._send_flows(query, send, is_gone)
        finally:
            self._scans -= 1

    @property
    def _is_guarded(self) -> bool:
        return self._access is not None and self._access.is_required

    def _refusal(self, scope: Scope) -> Reply | None:
        if not scope["http_version"].startswith("1"):
            # Its flow control lets a client hold a reply back for ever.
            return text_reply(505, "write HTTP/1.1")
        if not self._is_guarded and not _is_for_this_machine(scope["headers"]):
            # A page in a browser must not read what is here by letting a name of its own lead to this machine.
            return text_reply(403, "the Host header names another machine; write localhost or a loopback address")
        if scope["method"] not in _METHODS:
            problem = f"there is nothing to change here; use {' or '.join(_METHODS)}"
            return text_reply(405, problem, headers=(("allow", ", ".join(_METHODS)),))
        return None

    def _short_reply(self, path: str, scope: Scope) -> Reply | None:
        figures, query_string = self._figures, scope["query_string"]
        match path:
            case "/livez":
                return liveness_reply()
            case "/readyz":
                return readiness_reply(figures.phase, figures.components(), query_string)
            case "/metrics":
                return Reply(status=200, body=figures.exposition(), content_type=_METRICS_TYPE)
            case "/recordmetrics":
                return record_metrics_reply(figures.record_metrics())
            case "/loglevel":
                return log_level_reply(figures, scope["method"], query_string, dict(scope["headers"]))
            case "/flowrecords" | "/flowstream":
                return None
        if path == "/healthz" or path.startswith("/healthz/"):
            name = path.removeprefix("/healthz").lstrip("/")
            return health_reply(figures.phase, figures.components(), query_string, name)
        return text_reply(404, f"nothing is here; there are {' '.join(_PATHS)}")

    async def _send_reply(self, reply: Reply, send: Send) -> None:
        headers = (("content-length", str(len(reply.body))), *reply.headers)
        await send(self._start(reply.status, reply.content_type, headers))
        await send({"type": "http.response.body", "body": reply.body})  # hypercorn leaves it out for HEAD

    async def _send_flows(self, query: FlowQuery, send: Send, is_gone: Callable[[], bool]) -> None:
        """A JSON array; ``null``, as Antrea has it, where there is no flow."""
        has_begun = False

        async def send_batches(batches: Iterable[FlowBatch]) -> None:
            nonlocal has_begun
            records = [record for batch in batches for record in json_records(batch, self._figures.compatibility)]
            if records:
                opening = "," if has_begun else "["
                has_begun = True
                body = f"{opening}{','.join(records)}".encode()
                await send({"type": "http.response.body", "body": body, "more_body": True})

        found = None if query.key is None else self._figures.lookup(query.key)
        cursor: int | None = None if found is not None else 0
        if found is not None:
            await send_batches([found])
        while cursor is not None and not is_gone():
            await self._give_way()
            batches, cursor = self._figures.scan(query.flow_filter, cursor, FLOWS_PER_SLICE)
            await send_batches(batches)
        if not is_gone():
            await send({"type": "http.response.body", "body": b"]\n" if has_begun else b"null\n"})

    async def _send_stream(self, query: FlowQuery, send: Send, is_gone: Callable[[], bool]) -> None:
        """Server-sent events: one for each flow that is exported, one for what a slow reader did not get."""
        limits = self._limits
        matches = row_filter(query.flow_filter)
        ends_at = self._clock() + limits.stream_seconds
        # Said at once, so that the client knows that it watches from here on.
        await send({"type": "http.response.body", "body": b": watching\n\n", "more_body": True})
        with self._figures.watch() as feed:
            while not is_gone() and self._clock() < ends_at:
                batch, dropped = await feed.next(limits.heartbeat_seconds)
                if dropped:
                    body = f'event: dropped\ndata: {{"rows": {dropped}}}\n\n'.encode()
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                if batch is None:
                    await send({"type": "http.response.body", "body": b": nothing yet\n\n", "more_body": True})
                    continue
                for start in range(0, len(batch), FLOWS_PER_SLICE):
                    await self._give_way()
                    rows = matches(batch.slice(start, min(start + FLOWS_PER_SLICE, len(batch))))
                    events = [f"data: {record}\n\n" for record in json_records(rows, self._figures.compatibility)]
                    if events:
                        body = "".join(events).encode()
                        await send({"type": "http.response.body", "body": body, "more_body": True})
        if not is_gone():
            await send({"type": "http.response.body", "body": b""})

    def _start(self, status: int, content_type: str, headers: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
        named = (
            ("content-type", content_type),
            *_ALWAYS,
            ("flowjoin-compatibility", self._figures.compatibility),
            *headers,
        )
        return {
            "type": "http.response.start",
            "status": status,
            "headers": [(name.encode(), value.encode()) for name, value in named],
        }


def _is_for_this_machine(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether every Host header (HTTP/1.0 has none; HTTP/2's :authority) names this machine."""
    hosts = [value.decode("latin-1") for name, value in headers if name.lower() in (b"host", b":authority")]
    return all(map(_is_loopback, hosts))


def _is_loopback(host: str) -> bool:
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    if name.removesuffix(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
