"""The HTTP server on real sockets, before a stand-in for the pipeline: clients of every kind."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from api_fakes import FakeFigures, batch, flow
from pipeline_fakes import MemoryLog
from waiting import until

from flowjoin._api_server.config import ApiServerConfig, ApiServerLimits
from flowjoin._api_server.process import open_api_server
from flowjoin._config.endpoint import Endpoint
from flowjoin._config.model import ApiServer
from flowjoin._model.errors import BindError
from flowjoin._pipeline.api_server import serve_api
from flowjoin._pipeline.flow_feeds import FlowFeeds
from flowjoin._pipeline.health import HealthTable

PATIENCE = 60.0
MANY = [batch([flow("10.0.0.1", f"10.0.1.{row}", port, 80) for row in range(64)]) for port in range(3)]
SLICE_OCTETS = 64 * 1000


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


async def test_other_requests_are_answered_while_a_reply_goes_on() -> None:
    figures = FakeFigures(MANY)
    figures.is_endless = True
    async with serving(figures) as address, await connect(address) as stream:
        await stream.send_all(b"GET /flowrecords HTTP/1.1\r\nHost: localhost\r\n\r\n")
        before = 0
        for _ in range(3):
            await stream.receive_some(1000)
            head, body = await ask(address, "/livez")
            assert head.startswith("HTTP/1.1 200")
            assert body == b"ok\n"
            assert len(figures.scans) >= before
            before = len(figures.scans)


async def test_connections_are_kept_for_the_next_request() -> None:
    async with serving(FakeFigures()) as address, await connect(address) as stream:
        for _ in range(3):
            await stream.send_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            reply = b""
            while not reply.endswith(b"ok\n"):
                reply += await stream.receive_some(1000)


async def test_requests_that_come_together_are_answered_in_order() -> None:
    async with serving(FakeFigures(MANY)) as address, await connect(address) as stream:
        targets = ("/livez", "/flowrecords", "/recordmetrics", "/nowhere")
        requests = [f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n" for target in targets]
        await stream.send_all("".join([*requests, "GET /livez HTTP/1.0\r\n\r\n"]).encode())
        replies = await read_to_the_end(stream)
        assert [line[9:12] for line in replies.split(b"\n") if line.startswith(b"HTTP/")] == [
            b"200", b"200", b"200", b"404", b"200",
        ]  # fmt: skip


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


async def test_a_bug_behind_a_request_is_500_and_a_log_line_and_harms_nobody_else() -> None:
    log = MemoryLog()
    figures = FakeFigures(MANY)

    def fail() -> None:
        raise ZeroDivisionError

    figures.on_scan = fail
    figures.record_metrics = fail  # type: ignore[method-assign,assignment]  # broken on purpose
    config = ApiServerConfig(endpoint=Endpoint(host="127.0.0.1", port=0))
    with trio.fail_after(PATIENCE):
        async with open_api_server(config, figures, log=log) as server, trio.open_nursery() as nursery:
            nursery.start_soon(server.run)
            (endpoint,) = server.addresses
            address = (endpoint.host, endpoint.port)
            assert (await ask(address, "/recordmetrics"))[0].startswith("HTTP/1.1 500")
            async with await connect(address) as stream:
                await stream.send_all(b"GET /flowrecords HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert not (await read_to_the_end(stream)).endswith(b"0\r\n\r\n")  # cut
            assert (await ask(address, "/livez"))[1] == b"ok\n"
            nursery.cancel_scope.cancel()
    assert log.events("error") == ["api_request_failed", "api_request_failed"]


async def test_an_address_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = Endpoint(host="127.0.0.1", port=taken.getsockname()[1])
        with pytest.raises(BindError, match=f"apiServer.address: {endpoint} is in use"):
            async with open_api_server(ApiServerConfig(endpoint=endpoint), FakeFigures(), log=MemoryLog()):
                pytest.fail("it opened")


async def test_a_default_address_in_use_is_told_and_tried_again_until_it_is_free() -> None:
    log = MemoryLog()
    health = HealthTable(lambda: 0.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        class Settings(ApiServer):
            @property
            def endpoint(self) -> Endpoint:
                return Endpoint(host="127.0.0.1", port=port)

        async with trio.open_nursery() as nursery:
            with trio.fail_after(PATIENCE):
                await nursery.start(serve_api, Settings(), FakeFigures(), health, log)
                assert log.events("error") == ["api_unavailable"]
                (row,) = health.snapshot()
                assert row.component == "core/api"
                assert row.state.value == "degraded"
                assert "is in use" in row.problem
                taken.close()
                await until(lambda: "api_ready" in log.events())
                assert health.snapshot()[0].state.value == "ok"
                assert (await ask(("127.0.0.1", port), "/livez"))[1] == b"ok\n"
            nursery.cancel_scope.cancel()


async def test_an_address_that_was_asked_for_and_is_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ApiServer(address=Endpoint(host="127.0.0.1", port=taken.getsockname()[1]))
        with pytest.raises(BindError):
            await serve_api(settings, FakeFigures(), HealthTable(lambda: 0.0), MemoryLog())


async def test_switched_off_nothing_listens() -> None:
    async with trio.open_nursery() as nursery:
        health = HealthTable(lambda: 0.0)
        await nursery.start(serve_api, ApiServer(address="none"), FakeFigures(), health, MemoryLog())
    assert health.snapshot() == ()


async def test_a_name_of_this_machine_listens_on_all_its_addresses() -> None:
    config = ApiServerConfig(endpoint=Endpoint(host="localhost", port=0))
    async with open_api_server(config, FakeFigures(), log=MemoryLog()) as server:
        assert server.addresses
        assert all(address.is_loopback and address.port for address in server.addresses)


async def test_all_flows_come_whole_over_many_slices() -> None:
    figures = FakeFigures(MANY * 20)
    async with serving(figures) as address:
        _, body = await ask(address, "/flowrecords")
    assert len(json.loads(body)) == 64 * 60


async def test_of_several_long_replies_one_makes_a_slice_in_a_turn_of_the_loop() -> None:
    figures = FakeFigures(MANY)
    figures.is_endless = True
    turns: list[int] = []

    async def read_on(address: tuple[str, int]) -> None:
        async with await connect(address) as stream:
            await stream.send_all(b"GET /flowrecords HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await read_to_the_end(stream)

    async def count_turns() -> None:
        while True:
            before = len(figures.scans)
            await trio.lowlevel.checkpoint()
            turns.append(len(figures.scans) - before)

    async with serving(figures) as address, trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(read_on, address)
        await until(lambda: len(figures.scans) > 20)
        nursery.start_soon(count_turns)
        await until(lambda: len(figures.scans) > 200)
        nursery.cancel_scope.cancel()
    assert sum(turns) > 100
    assert max(turns) <= 2  # ours may lie between two of theirs


async def events_of(stream: trio.SocketStream, count: int) -> bytes:
    """What has come when there are so many events."""
    text = b""
    while text.count(b"data: ") < count:
        text += await stream.receive_some()
    return text


async def test_exported_flows_that_match_are_events_as_they_come() -> None:
    figures = FakeFigures()
    async with serving(figures) as address, await connect(address) as stream:
        await stream.send_all(b"GET /flowstream?dstip=10.0.1.7 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: len(figures.feeds) == 1)
        for each in MANY:
            figures.feeds.offer(each)
        text = await events_of(stream, 3)
        assert b"content-type: text/event-stream" in text
        assert text.count(b'"destinationIPv4Address":"10.0.1.7"') == text.count(b"data: ") == 3
        assert (await ask(address, "/livez"))[1] == b"ok\n"


async def test_a_stream_without_flows_says_that_it_lives_and_ends_in_time() -> None:
    figures = FakeFigures()
    async with (
        serving(figures, heartbeat_seconds=0.01, stream_seconds=0.2) as address,
        await connect(address) as stream,
    ):
        await stream.send_all(b"GET /flowstream HTTP/1.0\r\n\r\n")
        text = await read_to_the_end(stream)
        assert b": nothing yet\n\n" in text
        assert b"data: " not in text


async def test_a_slow_reader_is_told_what_it_did_not_get() -> None:
    figures = FakeFigures()
    figures.feeds = FlowFeeds(rows=64)
    async with serving(figures) as address, await connect(address) as stream:
        await stream.send_all(b"GET /flowstream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: len(figures.feeds) == 1)
        for each in MANY:  # all at once: nobody reads meanwhile
            figures.feeds.offer(each)
        assert b'event: dropped\ndata: {"rows": 128}\n\n' in await events_of(stream, 65)
        assert figures.feeds.dropped == 128


async def test_those_who_watch_are_bounded_and_leaving_gives_the_place_back() -> None:
    figures = FakeFigures()
    async with serving(figures, streams=1, heartbeat_seconds=0.01) as address:
        async with await connect(address) as stream:
            await stream.send_all(b"GET /flowstream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: len(figures.feeds) == 1)
            head, _ = await ask(address, "/flowstream")
            assert head.startswith("HTTP/1.1 503")
            assert (await ask(address, "/flowstream?proto=x"))[0].startswith("HTTP/1.1 404")
            assert (await ask(address, "/flowstream", method="HEAD"))[0].startswith("HTTP/1.1 200")
        await until(lambda: len(figures.feeds) == 0)
