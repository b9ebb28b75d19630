"""Clients that are slow, silent, gone or hostile: none of them harms another."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

import pytest
import trio
from api_fakes import FakeFigures
from http_serving import MANY, PATIENCE, ask, connect, read_to_the_end, serving
from waiting import until


async def test_a_client_that_stops_reading_is_cut_off_and_its_place_given_on() -> None:
    figures = FakeFigures(MANY)
    figures.is_endless = True
    async with serving(figures, scans=1, send_seconds=0.2) as address:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with slow:
            slow.connect(address)
            slow.sendall(b"GET /flowrecords HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: bool(figures.scans))
            head, _ = await ask(address, "/flowrecords")
            assert head.startswith("HTTP/1.1 503")
            figures.is_endless = False
            head = ""
            while not head.startswith("HTTP/1.1 200"):
                await trio.sleep(0.02)
                head, _ = await ask(address, "/flowrecords")


async def test_a_client_that_stops_reading_does_not_hold_the_end_back() -> None:
    figures = FakeFigures(MANY)
    figures.is_endless = True
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with slow:
        async with serving(figures, send_seconds=3600) as address:
            slow.connect(address)
            slow.sendall(b"GET /flowrecords HTTP/1.1\r\nHost: localhost\r\n\r\n")
            scans = -1
            while scans != len(figures.scans):  # until it is stuck
                scans = len(figures.scans)
                await trio.sleep(0.1)
            assert scans > 0


async def test_a_reply_that_is_cut_by_the_end_is_not_taken_for_a_whole_one() -> None:
    figures = FakeFigures(MANY)
    figures.is_endless = True
    async with serving(figures) as address:
        stream = await connect(address)
        await stream.send_all(b"GET /flowrecords HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await stream.receive_some(1)
    reply = b""
    try:
        while piece := await stream.receive_some(65536):
            reply += piece
    except trio.BrokenResourceError:
        pass
    await stream.aclose()
    assert not reply.endswith(b"0\r\n\r\n")


async def test_a_client_that_leaves_ends_its_reply() -> None:
    figures = FakeFigures(MANY)
    figures.is_endless = True
    async with serving(figures, scans=1) as address:
        stream = await connect(address)
        await stream.send_all(b"GET /flowrecords HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await stream.receive_some(100)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()  # with a reset
        figures.is_endless = False
        head = ""
        while not head.startswith("HTTP/1.1 200"):
            head, _ = await ask(address, "/flowrecords")


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ", b"\x16\x03\x01\x02"]
)
async def test_a_client_that_never_asks_is_hung_up_on(sent: bytes) -> None:
    async with serving(FakeFigures(), idle_seconds=0.2) as address, await connect(address) as stream:
        if sent:
            await stream.send_all(sent)
        await read_to_the_end(stream)  # ends


async def test_a_client_that_asks_and_closes_its_half_gets_no_error_and_harms_nobody() -> None:
    async with serving(FakeFigures(MANY)) as address:
        async with await connect(address) as stream:
            await stream.send_all(b"GET /flowrecords HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await stream.send_eof()
            await read_to_the_end(stream)
        assert (await ask(address, "/livez"))[1] == b"ok\n"


async def test_silent_connections_make_room_for_a_probe_those_first_that_were_silent_longest() -> None:
    figures = FakeFigures()
    async with serving(figures, connections=3, idle_seconds=PATIENCE) as address:
        silent = [await connect(address) for _ in range(3)]
        assert (await ask(address, "/livez"))[1] == b"ok\n"
        assert await silent[0].receive_some() == b""
        await silent[0].aclose()
        assert figures.cuts == {"silent": 1}
        for stream in silent[1:]:
            await stream.send_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" in await stream.receive_some()
            await stream.aclose()


async def test_who_is_being_answered_is_not_made_to_leave_and_the_next_one_waits() -> None:
    figures = FakeFigures(MANY)
    async with serving(figures, connections=2, idle_seconds=PATIENCE, send_seconds=0.5) as address:
        slow = [await connect(address) for _ in range(2)]
        for stream in slow:
            await stream.send_all(b"GET /flowrecords HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" in await stream.receive_some()
        assert (await ask(address, "/livez"))[1] == b"ok\n"
        assert figures.cuts["silent"] == 0
        assert figures.cuts["slow"] >= 1
        for stream in slow:
            await stream.aclose()


async def test_thousands_of_silent_connections_keep_no_probe_out() -> None:
    figures = FakeFigures()
    async with serving(figures, connections=8, idle_seconds=PATIENCE) as address:
        silent: list[trio.SocketStream] = []
        for _ in range(10):
            for _ in range(100):
                silent.append(await connect(address))
            assert (await ask(address, "/livez"))[1] == b"ok\n"
        assert figures.cuts["silent"] >= 900
        for stream in silent:
            await stream.aclose()


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /" + "x" * 40_000 + " HTTP/1.1\r\nHost: localhost\r\n\r\n", b"431"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + "x" * 40_000 + "\r\n\r\n", b"431"),
        ("nonsense\r\n\r\n", b"400"),
        ("GET /livez HTTP/1.1\r\n\r\n", b"400"),  # no Host
        ("GET http://evil.example/livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        ("GET /%ff%00%0d%0a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"404"),
        ("GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", b"400"),
        ("GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n", b"400"),
        ("GET /livez HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", b"403"),
    ],
)
async def test_what_is_no_proper_request_is_refused(request_text: str, status: bytes) -> None:
    async with serving(FakeFigures(), idle_seconds=1) as address, await connect(address) as stream:
        with trio.move_on_after(1):
            with suppress(trio.BrokenResourceError):  # it did not want to hear the rest
                await stream.send_all(request_text.encode())
        assert (await stream.receive_some(12)).split()[1] == status


@pytest.mark.parametrize("target", ["/livez", "/flowrecords", "/healthz"])
async def test_a_body_of_any_size_is_not_kept_and_blocks_nobody(target: str) -> None:
    async with serving(FakeFigures(MANY)) as address:
        for method in ("POST", "GET"):
            async with await connect(address) as stream:
                await stream.send_all(
                    f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000\r\n\r\n".encode()
                )
                try:
                    for _ in range(300):
                        await stream.send_all(bytes(65536))
                except trio.BrokenResourceError:
                    pass  # it has answered, and closed
        assert (await ask(address, "/livez"))[1] == b"ok\n"


@pytest.mark.parametrize("version", ["websocket", "h2c"])
async def test_other_protocols_are_refused(version: str) -> None:
    async with serving(FakeFigures(), idle_seconds=0.3) as address, await connect(address) as stream:
        await stream.send_all(
            b"GET /flowrecords HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
            b"Upgrade: " + version.encode() + b"\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        reply = await read_to_the_end(stream)
        assert b"10.0.0.1" not in reply
        assert b"200" not in reply.split(b"\r\n")[0]
