"""Each fault of a collector, and the rows that went in and came out: the table of the plugin's reference page."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio
import trio.testing
from ipfix_collector import Collector

from flowjoin.api import Duration, FlowBatch, PermanentExportError, RetryableExportError
from flowjoin.testing import RecordingContext, numbered_flows, standard_flow
from flowjoin_ipfix import IpfixConfig, TlsConfig
from flowjoin_ipfix._exporter import open_ipfix
from flowjoin_ipfix._stream import StreamConnection

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "exporters" / "ipfix.md"
PATIENCE = 90.0  # the machine may be busy
ROWS = 120  # in each fault, of 20 a batch
MANY = 16_000  # rows; more than the buffers of both systems hold
LINGER_NONE = struct.pack("ii", 1, 0)  # close with RST


@dataclass
class Bench:
    """An exporter, driven as a lane drives it.

    Attributes:
        dead: rows that were refused for good.
        retries: exports that failed and came again.
    """

    nursery: trio.Nursery
    certificates: Any
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    collectors: list[Collector] = field(default_factory=list)
    context: RecordingContext = field(default_factory=lambda: RecordingContext(name="ipfix"))
    config: IpfixConfig = field(
        default_factory=lambda: IpfixConfig(address="127.0.0.1:1", resend_interval=Duration(60))
    )
    given: int = 0
    dead: int = 0
    retries: int = 0

    async def collector(self, **settings: Any) -> Collector:
        collector = Collector(**settings)
        await self.nursery.start(collector.run)
        self.collectors.append(collector)
        self.config = replace(self.config, address=collector.address)
        return collector

    @asynccontextmanager
    async def opened(self, **keys: Any) -> AsyncIterator[Any]:
        self.config = replace(self.config, **keys)
        async with open_ipfix(self.config, self.context) as exporter:
            yield exporter

    async def give(self, exporter: Any, rows: int = 20, batch: FlowBatch | None = None, tries: int = 100_000) -> None:
        """Export the next rows until they are settled, or so often."""
        if batch is None:
            batch = numbered_flows(rows, first=self.given)
        self.given += len(batch)
        await self.again(exporter, batch, tries)

    async def again(self, exporter: Any, batch: FlowBatch, tries: int = 100_000) -> None:
        for _ in range(tries):
            try:
                await exporter.export(batch)
            except RetryableExportError:
                self.retries += 1
                await trio.sleep(0.01)
            except PermanentExportError as exc:
                self.dead += len(batch) if exc.rows is None else len(exc.rows)
                return
            else:
                return

    async def received(self) -> list[object]:
        for collector in self.collectors:
            await collector.count()
        return [record["octetTotalCount"] // 1000 for each in self.collectors for record in each.records]  # type: ignore[operator]  # a number


Fault: TypeAlias = Callable[[Bench], Awaitable[None]]
FAULTS: dict[str, Fault] = {}
DOUBLES = {
    "closed in order",
    "reset",
    "accepts and closes at once",
    "takes nothing",
    "vanishes without a word",
    "cancelled in a batch",
}


def fault(name: str) -> Callable[[Fault], Fault]:
    def remember(function: Fault) -> Fault:
        FAULTS[name] = function
        return function

    return remember


@fault("absent at start")
async def absent(bench: Bench) -> None:
    collector = await bench.collector()
    await collector.stop()
    async with bench.opened() as exporter:
        await bench.give(exporter, tries=3)
        assert bench.retries == 3
        await bench.nursery.start(collector.run)
        await bench.again(exporter, numbered_flows(20))
        for _ in range(5):
            await bench.give(exporter)


@fault("closed in order")
async def closed(bench: Bench) -> None:
    collector = await bench.collector()
    async with bench.opened() as exporter:
        for number in range(6):
            if number in (2, 4):
                async with collector.down(bench.nursery):
                    pass
            await bench.give(exporter)


@fault("reset")
async def reset(bench: Bench) -> None:
    """It has read nothing of what its system took."""
    listener = socket.create_server(("127.0.0.1", 0))
    bench.config = replace(bench.config, address=f"127.0.0.1:{listener.getsockname()[1]}")
    async with bench.opened() as exporter:
        await bench.give(exporter)
        await bench.give(exporter)
        taken, _ = listener.accept()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
        port = listener.getsockname()[1]
        listener.close()
        taken.close()
        await bench.collector(port=port)
        for _ in range(4):
            await bench.give(exporter)
    assert bench.context.counters["rows_resent"].value == 40


@fault("accepts and closes at once")
async def a_front_without_a_collector(bench: Bench) -> None:
    """As a load balancer does whose collectors are away: its system may take rows, and goes on to close."""
    collector = await bench.collector()
    async with bench.opened() as exporter:
        await bench.give(exporter)
        await collector.stop()
        collector.sessions.clear()  # killed: what it had read is gone
        listeners = await trio.open_tcp_listeners(collector.port, host="127.0.0.1")

        async def close(stream: trio.SocketStream) -> None:
            await stream.aclose()

        async with trio.open_nursery() as front:
            front.start_soon(trio.serve_listeners, close, listeners)
            for _ in range(4):
                await bench.give(exporter, tries=3)
            front.cancel_scope.cancel()
        await bench.nursery.start(collector.run)
        for number in range(1, 5):
            await bench.again(exporter, numbered_flows(20, first=20 * number))
        await bench.give(exporter)


@fault("takes nothing")
async def takes_nothing(bench: Bench) -> None:
    """Its receive buffer is full; what could not be sent goes to the next connection."""
    collector = await bench.collector()
    async with bench.opened(send_timeout=Duration(1.0)) as exporter:
        await bench.give(exporter)
        await collector.count()
        collector.reading = trio.Event()
        full = numbered_flows(MANY, first=20)
        bench.given += len(full)
        with pytest.raises(RetryableExportError, match="took nothing for 1 s"):
            await exporter.export(full)
        collector.reading.set()
        await bench.again(exporter, full)
        await bench.give(exporter)


@fault("vanishes without a word")
async def vanishes(bench: Bench) -> None:
    """Its machine lost power: nothing is acknowledged, nothing refused."""
    collector = await bench.collector()
    async with bench.opened(send_timeout=Duration(0.5)) as exporter:
        await bench.give(exporter)
        await collector.count()
        with bench.monkeypatch.context() as gone:
            gone.setattr(StreamConnection, "_unacknowledged", lambda _self: 1)
            batch = numbered_flows(20, first=20)
            bench.given += 20
            with pytest.raises(RetryableExportError, match=r"took nothing for 0\.5 s"):
                await exporter.export(batch)
        await bench.again(exporter, batch)
        for _ in range(4):
            await bench.give(exporter)


@fault("a certificate that is not trusted")
async def not_trusted(bench: Bench) -> None:
    ca = bench.folder / "ca.pem"
    ca.write_bytes(bench.certificates.other_ca.read_bytes())
    await bench.collector(tls=bench.certificates.context())
    async with bench.opened(protocol="tls", tls=TlsConfig(ca=ca)) as exporter:
        await bench.give(exporter, tries=2)
        assert bench.retries == 2
        ca.write_bytes(bench.certificates.ca.read_bytes())  # read again at each connect
        await bench.again(exporter, numbered_flows(20))
        for _ in range(5):
            await bench.give(exporter)


@fault("an expired certificate")
async def expired(bench: Bench) -> None:
    collector = await bench.collector(tls=bench.certificates.context(is_expired=True))
    async with bench.opened(protocol="tls", tls=TlsConfig(ca=bench.certificates.ca)) as exporter:
        batch = numbered_flows(20)
        bench.given += 20
        with pytest.raises(RetryableExportError, match="certificate is refused: certificate has expired"):
            await exporter.export(batch)
        await collector.stop()
        collector.tls = bench.certificates.context()
        await bench.nursery.start(collector.run)
        await bench.again(exporter, batch)
        for _ in range(5):
            await bench.give(exporter)


@fault("a name with a dead address first")
async def dead_address_first(bench: Bench) -> None:
    collector = await bench.collector()
    resolve(("::1", collector.port, 0, 0), ("127.0.0.1", collector.port))
    async with bench.opened(address=f"collector.example:{collector.port}") as exporter:
        for _ in range(6):
            await bench.give(exporter)
    assert bench.retries == 0


@fault("a name that does not resolve")
async def no_such_name(bench: Bench) -> None:
    collector = await bench.collector()
    resolve()
    async with bench.opened(address=f"collector.example:{collector.port}") as exporter:
        await bench.give(exporter, tries=2)
        assert bench.retries == 2
        resolve(("127.0.0.1", collector.port))
        await bench.again(exporter, numbered_flows(20))
        for _ in range(5):
            await bench.give(exporter)


@fault("nobody listens at a UDP port")
async def refused(bench: Bench) -> None:
    collector = await bench.collector(protocol="udp")
    async with bench.opened(protocol="udp") as exporter:
        await bench.give(exporter)
        async with collector.down(bench.nursery):
            batch = numbered_flows(20, first=20)
            bench.given += 20
            await bench.again(exporter, batch, tries=3)
            assert bench.retries == 3
        await bench.again(exporter, batch)
        for _ in range(4):
            await bench.give(exporter)


@fault("rows that fit into no Message")
async def too_long(bench: Bench) -> None:
    """One has a string longer than a field can be, the other fields that are too long together."""
    await bench.collector()
    async with bench.opened() as exporter:
        for _ in range(6):
            await bench.give(exporter)
        await bench.give(exporter, batch=standard_flow(sourcePodLabels="x" * 65_536))
        await bench.give(exporter, batch=standard_flow(sourcePodLabels="x" * 40_000, destinationPodLabels="y" * 40_000))
    assert bench.dead == 2


@fault("cancelled in a batch")
async def cancelled(bench: Bench) -> None:
    """A reload, or the end of the grace time: the next exporter gets the batch."""
    collector = await bench.collector()
    batch = numbered_flows(MANY)
    bench.given = len(batch)
    collector.reading = trio.Event()
    async with bench.opened() as exporter:
        with trio.move_on_after(0.3) as scope:
            await exporter.export(batch)
    assert scope.cancelled_caught
    collector.reading.set()
    async with bench.opened() as exporter:
        await bench.again(exporter, batch)


def resolve(*places: tuple[Any, ...]) -> None:
    """Let every name lead to these, in this trio."""

    class Resolver(trio.abc.HostnameResolver):
        async def getaddrinfo(self, *_: Any, **__: Any) -> Any:
            if not places:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            families = [socket.AF_INET6 if ":" in place[0] else socket.AF_INET for place in places]
            kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
            return [(family, *kind, place) for family, place in zip(families, places, strict=True)]

        async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
            raise NotImplementedError

    trio.socket.set_custom_hostname_resolver(Resolver())


@pytest.mark.parametrize("name", FAULTS)
async def test_rows_in_are_rows_out(
    name: str, nursery: trio.Nursery, certificates: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(nursery, certificates, tmp_path, monkeypatch)
    with trio.fail_after(PATIENCE):
        await FAULTS[name](bench)
        received = await bench.received()
        while len(set(received)) < bench.given - bench.dead:
            await trio.sleep(0.01)  # a busy machine has not carried it all yet
            received = await bench.received()
    assert set(received) == set(range(bench.given - bench.dead))
    if name not in DOUBLES:
        assert len(received) == bench.given - bench.dead


def test_the_page_has_a_line_for_each_fault() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page[page.index("## Faults") : page.index("## Metrics")]
    lines = re.findall(r"^\| ([^|]+) \|[^|]+\| ([^|]+) \|$", table, re.MULTILINE)[1:]
    assert [name for name, _ in lines if name != "---"] == [*FAULTS, "killed with rows unread"]
