"""A slow collector is not taken for one that hangs."""

from __future__ import annotations

import socket

import pytest
import trio

from flowjoin.api import Duration
from flowjoin_ipfix import IpfixConfig, flowjoin_exporter_types
from flowjoin_ipfix._stream import StreamConnection


@pytest.mark.parametrize(("connect", "send"), [(10.0, 60.0), (1.0, 3600.0)])
def test_its_patience_is_longer_than_its_own_time_outs(connect: float, send: float) -> None:
    config = IpfixConfig(address="192.0.2.1", connect_timeout=Duration(connect), send_timeout=Duration(send))
    assert flowjoin_exporter_types()[0].patience(config) > connect + send


async def test_each_piece_that_the_collector_takes_is_progress() -> None:
    steps: list[None] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        raw = await trio.open_tcp_stream(*listening.getsockname())
        accepted, _ = listening.accept()
    connection = StreamConnection(raw, raw, send_timeout=30, progressed=lambda: steps.append(None))
    with accepted, trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(connection.watch)
            nursery.start_soon(trio.to_thread.run_sync, _read, accepted, 4 * 64 * 1024 + 1)
            await connection.send(bytes(4 * 64 * 1024 + 1))
            assert len(steps) == 5
            await connection.wait_delivered()
            await connection.aclose()
            nursery.cancel_scope.cancel()


def _read(accepted: socket.socket, octets: int) -> None:
    while octets:
        octets -= len(accepted.recv(65536))
