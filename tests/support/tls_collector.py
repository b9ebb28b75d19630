"""A TLS Collecting Process on loopback, and clients of it."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import certificates
import pytest
import trio

from flowjoin._certificates.files import TlsFiles, read_files, server_tls
from flowjoin._collector.process import open_collector

__all__ = ["alert_of", "collecting", "connect", "statistics_of", "tls_files"]


@pytest.fixture
def tls_files(tmp_path: Any) -> TlsFiles:
    """Certificate, key and authorities, in files that a test may replace."""
    found = certificates.server_files(tmp_path)
    return TlsFiles(certificate=found.certificate, key=found.key, client_ca=found.client_ca, path="collectors[0].tls")


@asynccontextmanager
async def collecting(config: Any, intake: Any, files: TlsFiles) -> AsyncIterator[Any]:
    """It runs."""
    tls = server_tls(files, read_files(files), time.time())
    async with (
        open_collector(config, **intake.arguments, tls=certificates.FixedTls(tls)) as group,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(group.run)
        yield group
        nursery.cancel_scope.cancel()


async def connect(group: Any, context: ssl.SSLContext) -> Any:
    """A connection over which hands were shaken."""
    (address,) = group.addresses
    stream = await trio.open_ssl_over_tcp_stream(address.host, address.port, ssl_context=context)
    try:
        await stream.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return stream


async def alert_of(group: Any, context: ssl.SSLContext) -> str | None:
    """What the collector answers a client that it refuses."""
    with trio.fail_after(30), pytest.raises(trio.BrokenResourceError) as caught:
        async with await connect(group, context) as stream:
            await stream.receive_some(1)
    assert isinstance(caught.value.__cause__, ssl.SSLError)
    return caught.value.__cause__.reason


def statistics_of(group: Any) -> Any:
    (statistics,) = group.statistics()
    return statistics
