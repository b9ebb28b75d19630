"""The HTTP server on a socket of loopback, before a stand-in for the pipeline, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from api_fakes import FakeFigures, batch, flow
from pipeline_fakes import MemoryLog

from flowjoin._api_server.config import ApiServerConfig, ApiServerLimits
from flowjoin._api_server.process import open_api_server
from flowjoin._config.endpoint import Endpoint

PATIENCE = 60.0
MANY = [batch([flow("10.0.0.1", f"10.0.1.{row}", port, 80) for row in range(64)]) for port in range(3)]


@asynccontextmanager
async def serving(
    figures: FakeFigures, *, log: MemoryLog | None = None, **limits: float
) -> AsyncIterator[tuple[str, int]]:
    config = ApiServerConfig(
        endpoint=Endpoint(host="127.0.0.1", port=0),
        limits=ApiServerLimits(**limits),  # type: ignore[arg-type]  # those of a test
    )
    log = log or MemoryLog()
    with trio.fail_after(PATIENCE):
        async with open_api_server(config, figures, log=log) as server, trio.open_nursery() as nursery:
            nursery.start_soon(server.run)
            (address,) = server.addresses
            yield address.host, address.port
            nursery.cancel_scope.cancel()
    assert log.events("error") == []


async def connect(address: tuple[str, int]) -> trio.SocketStream:
    return await trio.open_tcp_stream(*address)


async def read_to_the_end(stream: trio.SocketStream) -> bytes:
    return b"".join([bytes(piece) async for piece in stream])


async def ask(address: tuple[str, int], target: str, *, method: str = "GET", more: str = "") -> tuple[str, bytes]:
    """The head and the body of a whole reply."""
    async with await connect(address) as stream:
        request = f"{method} {target} HTTP/1.0\r\n{more}\r\n"
        await stream.send_all(request.encode())
        head, _, body = (await read_to_the_end(stream)).partition(b"\r\n\r\n")
    return head.decode(), body
