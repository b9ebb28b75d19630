"""Peers on real TCP connections send faster than rows can leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hand_made
import pytest
import trio
from counting_plugin import CountingPlugins, assembled, bound, kernel_of
from hand_made import data_set, message, template_set

from flowjoin._config.endpoint import Endpoint
from flowjoin._kernel import flow_table, proxy, python_kernel
from flowjoin._pipeline.process import Outcome, Stop, run_pipeline
from flowjoin._pipeline.state_directory import open_state
from flowjoin._telemetry.logs import Logs

pytestmark = pytest.mark.slow

CONNECTIONS, MESSAGES, RECORDS = 24, 8, 50
SENT = CONNECTIONS * MESSAGES * RECORDS
NAMES = [name for name in hand_made.AGENT if hand_made.FIELDS[name][2]] + ["sourcePodName"]


def _messages(connection: int) -> bytes:
    """New flows only, each ready at once."""
    octets = message(template_set(NAMES))
    for number in range(MESSAGES):
        records = [
            hand_made.S1
            | {"flowType": 3, "sourceTransportPort": number * RECORDS + at, "proxySnatPort": connection}
            | {"sourceIPv4Address": f"10.0.1.{connection}"}
            for at in range(RECORDS)
        ]
        octets += message(data_set(NAMES, *records))
    return octets


@pytest.mark.parametrize("mode", ["Aggregate", "Proxy"])
async def test_nothing_is_refused_and_memory_is_bounded(tmp_path: Path, monkeypatch: Any, mode: str) -> None:
    monkeypatch.setattr(flow_table, "MAXIMUM_DEPARTED", 2_000)
    monkeypatch.setattr(proxy, "MAXIMUM_DEPARTED", 2_000)
    monkeypatch.setattr(python_kernel, "DUE_ROWS", 200)
    monkeypatch.setattr(proxy, "DUE_ROWS", 200)
    plugins = CountingPlugins()
    text = f"mode: {mode}\nlimits: {{flows: 100}}\nexporters: [{{type: counting}}]\n"
    text += "collectors: [{protocol: tcp, address: '127.0.0.1:0'}]\n"
    configured = bound(text, plugins)
    stop = Stop()
    outcomes: list[Outcome] = []

    async def send(address: Endpoint, connection: int) -> None:
        async with await trio.open_tcp_stream(address.host, address.port) as stream:
            await stream.send_all(_messages(connection))
            await stream.send_eof()
            assert await stream.receive_some() == b""  # closed, when everything was read

    async def companion(addresses: Any) -> None:
        (address,) = addresses
        async with trio.open_nursery() as nursery:
            for connection in range(CONNECTIONS):
                nursery.start_soon(send, address, connection)
        stop.wish()

    with open_state(tmp_path / "state") as state, trio.fail_after(60), (tmp_path / "log").open("w") as log:
        logs = Logs(log, log_format="json", level="info", clock=trio.current_time)
        pipeline = assembled(configured, kernel_of(configured), state, logs)
        outcomes.append(await run_pipeline(pipeline, configured.config, stop, companions=[companion]))

    (outcome,) = outcomes
    statistics = outcome.books.kernel
    assert statistics.records_rejected == {}
    assert statistics.records_received == SENT
    assert outcome.books.imbalances() == ()
    assert plugins.exporter.rows == outcome.books.rows == SENT
