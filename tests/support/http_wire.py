"""The HTTP/1.1 of a server, as far as the stand-in for the Kubernetes API server speaks it."""

from __future__ import annotations

import json
from typing import Any

import h11
import trio

Manifest = dict[str, Any]


async def next_request(http: h11.Connection, stream: trio.abc.Stream) -> tuple[h11.Request, bytes] | None:
    request: h11.Request | None = None
    body = b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some()))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            return request, body
        elif isinstance(event, h11.ConnectionClosed):
            return None


async def send_head(http: h11.Connection, stream: trio.abc.Stream) -> None:
    head = h11.Response(
        status_code=200, headers=[("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
    )
    await stream.send_all(http.send(head) or b"")


async def send_json(
    http: h11.Connection, stream: trio.abc.Stream, code: int, body: Manifest, headers: dict[str, str] | None = None
) -> None:
    octets = json.dumps(body, ensure_ascii=False).encode()
    fields = [("Content-Type", "application/json"), ("Content-Length", str(len(octets))), *(headers or {}).items()]
    for event in (h11.Response(status_code=code, headers=fields), h11.Data(octets), h11.EndOfMessage()):
        await stream.send_all(http.send(event) or b"")


async def until_closed(stream: trio.abc.Stream, scope: trio.CancelScope) -> None:
    while await stream.receive_some():
        pass
    scope.cancel()
