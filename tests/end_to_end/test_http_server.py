"""The HTTP server on real sockets, before a stand-in for the pipeline: its replies and its addresses."""

from __future__ import annotations

import json
import socket

import pytest
import trio
from api_fakes import FakeFigures
from http_serving import MANY, PATIENCE, ask, connect, read_to_the_end, serving
from pipeline_fakes import MemoryLog
from waiting import until

from flowjoin._api_server.config import ApiServerConfig
from flowjoin._api_server.process import open_api_server
from flowjoin._config.endpoint import Endpoint
from flowjoin._config.model import ApiServer
from flowjoin._model.errors import BindError
from flowjoin._pipeline.api_server import serve_api
from flowjoin._pipeline.health import HealthTable


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
