"""The HTTP server over TLS on real sockets: with a token, with a certificate, with neither."""

from __future__ import annotations

import json
import ssl
import time
from contextlib import asynccontextmanager, suppress

import certificates
import pytest
import trio
from api_fakes import FakeFigures, batch, flow
from pipeline_fakes import MemoryLog

from flowjoin._api_server.access import AccessConfig
from flowjoin._api_server.config import ApiServerConfig, ApiServerLimits
from flowjoin._api_server.process import open_api_server
from flowjoin._certificates.files import TlsFiles, read_files, server_tls
from flowjoin._config.endpoint import Endpoint
from flowjoin.api import Secret

FLOWS = [batch([flow("10.0.0.1", "10.0.0.2", 8080, 3700)])]


@asynccontextmanager
async def serving(tmp_path, *, host="127.0.0.1", **limits):
    (tmp_path / "token").write_text("right", encoding="utf-8")
    found = certificates.server_files(tmp_path)
    files = TlsFiles(
        certificate=found.certificate,
        key=found.key,
        client_ca=found.client_ca,
        may_be_nobody=True,
        path="apiServer.tls",
    )
    config = ApiServerConfig(
        endpoint=Endpoint(host=host, port=0),
        access=AccessConfig(token=Secret("file", str(tmp_path / "token")), certificates=True),
        tls=certificates.FixedTls(server_tls(files, read_files(files), time.time())),
        limits=ApiServerLimits(**limits),
    )
    log = MemoryLog()
    with trio.fail_after(60):
        async with open_api_server(config, FakeFigures(FLOWS), log=log) as server, trio.open_nursery() as nursery:
            nursery.start_soon(server.run)
            yield server.addresses[0].port
            nursery.cancel_scope.cancel()
    assert log.events("error") == []


async def ask(port, context, target, *more):
    stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=context, https_compatible=True)
    async with stream:
        request = "\r\n".join([f"GET {target} HTTP/1.0", "Host: flows.example.org", *more, "", ""])
        await stream.send_all(request.encode())
        reply = b"".join([bytes(piece) async for piece in stream])
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_who_shows_the_token_or_a_certificate_reads_and_nobody_else(tmp_path):
    nobody = certificates.client_context(tmp_path, None)
    admin = certificates.client_context(tmp_path, certificates.client())
    async with serving(tmp_path) as port:
        status, body = await ask(port, nobody, "/flowrecords", "Authorization: Bearer right")
        assert (status, json.loads(body)[0]["sourceIPv4Address"]) == (200, "10.0.0.1")
        status, body = await ask(port, admin, "/flowrecords")
        assert (status, json.loads(body)[0]["sourceIPv4Address"]) == (200, "10.0.0.1")
        for more in ((), ("Authorization: Bearer wrong",)):
            status, body = await ask(port, nobody, "/flowrecords", *more)
            assert (status, json.loads(body)["code"]) == (401, 401)
        assert await ask(port, nobody, "/livez") == (200, b"ok\n")


@pytest.mark.parametrize(
    "pair",
    [lambda: certificates.client("other"), lambda: certificates.client(is_expired=True), certificates.server],
    ids=["of another authority", "expired", "a server's"],
)
async def test_a_certificate_that_is_shown_must_be_good(tmp_path, pair):
    context = certificates.client_context(tmp_path, pair())
    async with serving(tmp_path) as port:
        with suppress(trio.BrokenResourceError):
            stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=context, https_compatible=True)
            async with stream:
                await stream.send_all(b"GET /livez HTTP/1.0\r\n\r\n")
                assert await stream.receive_some() == b""
        assert (await ask(port, certificates.client_context(tmp_path, None), "/livez"))[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_others_may_reach_it_where_it_is_guarded(tmp_path, host):
    async with serving(tmp_path, host=host) as port:  # over IPv4 at "::" too: Pods' addresses are IPv4 in most clusters
        assert (await ask(port, certificates.client_context(tmp_path, None), "/readyz"))[0] == 200


async def test_who_speaks_no_tls_or_says_nothing_is_closed(tmp_path):
    async with serving(tmp_path, idle_seconds=0.5) as port:
        for octets in (b"GET / HTTP/1.0\r\n\r\n", b"", b"\x16\x03\x01"):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(octets)
                try:
                    while await stream.receive_some():
                        pass
                except trio.BrokenResourceError:
                    continue
        assert (await ask(port, certificates.client_context(tmp_path, None), "/livez"))[0] == 200


async def test_silent_connections_do_not_keep_others_out_for_long(tmp_path):
    async with serving(tmp_path, connections=8, idle_seconds=1.0) as port:
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(50)]
        assert (await ask(port, certificates.client_context(tmp_path, None), "/livez"))[0] == 200
        for stream in silent:
            await trio.aclose_forcefully(stream)


async def test_the_oldest_version_is_tls_1_2(tmp_path):
    context = certificates.client_context(tmp_path, None)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serving(tmp_path) as port:
        assert (await ask(port, context, "/livez"))[0] == 200
