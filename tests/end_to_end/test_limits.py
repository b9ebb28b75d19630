"""Every key under ``limits`` of a configuration reaches the part that it limits."""

from __future__ import annotations

import dataclasses
import io
import json
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import trio
from counting_plugin import CountingPlugins, assembled, bound, kernel_of
from hand_made import AGENT, S1, data_set, message, template_set
from kernel_harness import session
from pipeline_fakes import batch_of

from flowjoin._config.endpoint import Endpoint
from flowjoin._config.model import Limits
from flowjoin._kernel.interface import Kernel
from flowjoin._pipeline.assembly import Pipeline
from flowjoin._pipeline.process import Stop, run_pipeline
from flowjoin._pipeline.state_directory import open_state
from flowjoin._telemetry.logs import Logs
from flowjoin.api import ExporterType, PluginContractError

READY = S1 | {"flowType": 3}
TEMPLATE = message(template_set(AGENT))


def kernel_with(limits: str) -> Kernel:
    text = f"aggregatorTransportProtocol: None\nlimits: {{{limits}}}\nexporters: [{{type: counting}}]\n"
    return kernel_of(bound(text, CountingPlugins()))


def ingest(kernel: Kernel, *messages: bytes, now: float = 0.0, peer: str = "192.0.2.1") -> None:
    kernel.ingest(messages, [session(peer)] * len(messages), now)


def test_flows() -> None:
    kernel = kernel_with("flows: 2")
    ingest(kernel, TEMPLATE, message(data_set(AGENT, *(READY | {"sourceTransportPort": port} for port in range(3)))))
    assert kernel.statistics().flows_held == 2
    assert kernel.statistics().flows_evicted == 1


def test_string_bytes() -> None:
    kernel = kernel_with("stringBytes: 1MiB")
    ingest(kernel, TEMPLATE)
    for port in range(1100):
        name = f"{port:04d}" * 250
        ingest(kernel, message(data_set(AGENT, READY | {"sourceTransportPort": port, "sourcePodName": name})))
    assert 0 < kernel.statistics().strings_dropped < 100


def test_sessions() -> None:
    kernel = kernel_with("sessions: 1")
    ingest(kernel, TEMPLATE)
    assert kernel.statistics().reasons == {}
    ingest(kernel, TEMPLATE, peer="192.0.2.2")
    assert kernel.statistics().reasons == {"session_limit": 1}


def test_session_idle() -> None:
    kernel = kernel_with("sessionIdle: 7s")
    ingest(kernel, TEMPLATE)
    assert list(kernel.tick(6.9)) == []
    assert list(kernel.tick(7.0)) == [session()]


def test_templates_per_session() -> None:
    kernel = kernel_with("templatesPerSession: 1")
    ingest(kernel, TEMPLATE, message(template_set(AGENT, 257)))
    assert kernel.statistics().reasons == {"template_limit": 1}


def test_fields_per_template() -> None:
    kernel = kernel_with("fieldsPerTemplate: 42")
    ingest(kernel, message(template_set(AGENT[:42])), TEMPLATE)
    statistics = kernel.statistics()
    assert (statistics.templates, statistics.malformed_templates) == (1, 1)


@pytest.mark.parametrize(("lifetime", "lives"), [("10s", False), ("1h", True), ("0s", True)])
def test_template_lifetime(lifetime: str, lives: bool) -> None:
    kernel = kernel_with(f"templateLifetime: {lifetime}, sessionIdle: 2h")
    ingest(kernel, TEMPLATE)
    kernel.tick(3000.0)
    ingest(kernel, message(data_set(AGENT, READY)), now=3000.0)
    assert kernel.statistics().records_created == lives


@pytest.mark.parametrize(("octets", "held"), [("0", 0), ("1MiB", 1)])
def test_held_bytes(octets: str, held: int) -> None:
    kernel = kernel_with(f"heldBytes: {octets}")
    ingest(kernel, message(data_set(AGENT, READY)), TEMPLATE)
    assert kernel.statistics().sets_held == kernel.statistics().records_created == held


class Running:
    """A pipeline that collects over a protocol."""

    def __init__(self, directory: Path, protocol: str, limits: str) -> None:
        text = f"limits: {{{limits}}}\nexporters: [{{type: counting}}]\nshutdownGracePeriod: 1s\n"
        text += f"collectors: [{{protocol: {protocol}, address: '127.0.0.1:0'}}]\n"
        self._bound = bound(text, CountingPlugins())
        self._directory = directory
        self._said = io.StringIO()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Pipeline, Endpoint]]:
        stop = Stop()
        logs = Logs(self._said, log_format="json", level="info", clock=trio.current_time)

        async def run(*, task_status: trio.TaskStatus[Endpoint]) -> None:
            async def companion(found: Sequence[Endpoint]) -> None:
                await trio.lowlevel.checkpoint()
                task_status.started(found[0])

            await run_pipeline(pipeline, self._bound.config, stop, companions=[companion])

        with open_state(self._directory / "state") as state:
            pipeline = assembled(self._bound, kernel_of(self._bound), state, logs)
            async with trio.open_nursery() as nursery:
                address = await nursery.start(run)
                yield pipeline, address
                stop.wish()

    def lines(self, event: str) -> list[dict[str, object]]:
        return [line for line in map(json.loads, self._said.getvalue().splitlines()) if line["event"] == event]


async def test_receive_buffer(tmp_path: Path) -> None:
    running = Running(tmp_path, "udp", "receiveBuffer: 8KiB")
    async with running.open():
        pass
    assert [line["asked_octets"] for line in running.lines("receive_buffer")] == [8192]


async def test_sessions_of_a_tcp_collector(tmp_path: Path) -> None:
    async with Running(tmp_path, "tcp", "sessions: 1").open() as (pipeline, address):
        async with await trio.open_tcp_stream(address.host, address.port) as first:
            await first.send_all(struct.pack(">HHIII", 10, 16, 0, 0, 0))
            async with await trio.open_tcp_stream(address.host, address.port) as second:
                assert await second.receive_some() == b""  # refused
        (statistics,) = pipeline.books().collectors
        assert statistics.refused == {"session_limit": 1}


async def test_session_idle_of_a_tcp_collector(tmp_path: Path, autojump_clock: object) -> None:
    async with Running(tmp_path, "tcp", "sessionIdle: 7s").open() as (_, address):
        begun = trio.current_time()
        async with await trio.open_tcp_stream(address.host, address.port) as stream:
            assert await stream.receive_some() == b""
        assert 7 <= trio.current_time() - begun < 9


def test_lane_bytes(tmp_path: Path) -> None:
    text = "aggregatorTransportProtocol: None\nlimits: {laneBytes: 64KiB}\nexporters: [{type: counting}]\n"
    configured = bound(text, CountingPlugins())

    async def fill() -> int:
        with open_state(tmp_path / "state") as state:
            (lane,) = assembled(configured, kernel_of(configured), state, Logs(io.StringIO())).lanes
            while not lane.is_full:
                lane.offer(batch_of(*range(100)), may_drop=False)
            return lane.books().held

    held = trio.run(fill)
    octets = batch_of(*range(held)).octets
    assert octets * 1.5 > 65536
    assert octets < 2 * 65536


class PatientPlugins(CountingPlugins):
    """Of a type that wants so many seconds."""

    def __init__(self, wanted: Any) -> None:
        super().__init__()
        self._wanted = wanted

    def exporter_type(self, name: str) -> ExporterType:
        return dataclasses.replace(super().exporter_type(name), patience=lambda _settings: self._wanted)


def patience_of(plugins: CountingPlugins) -> float:
    text = "aggregatorTransportProtocol: None\nlimits: {hang: 7s}\nexporters: [{type: counting, spool: none}]\n"
    configured = bound(text, plugins)
    with open_state(None) as state:
        pipeline = assembled(configured, kernel_of(configured), state, Logs(io.StringIO()))
        (component,) = (row for row in pipeline.health.components if row.kind == "exporters")
        return component.patience.seconds


def test_hang() -> None:
    assert patience_of(CountingPlugins()) == 7
    assert patience_of(PatientPlugins(3)) == 7
    assert patience_of(PatientPlugins(90.5)) == 90.5
    assert patience_of(PatientPlugins(inf)) == inf


@pytest.mark.parametrize("wanted", [nan, -1, "soon", None])
def test_a_patience_that_is_no_time_is_the_plugins_error(wanted: object) -> None:
    with pytest.raises(PluginContractError, match=r"its patience gave .*, not seconds"):
        patience_of(PatientPlugins(wanted))


def test_no_limit_is_forgotten_here() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert set(Limits.__dataclass_fields__) - {"stall"} <= tested
