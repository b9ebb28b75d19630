"""The exporter and a collector: connections made, lost and made again, over loopback."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from ipfix_collector import Collector

from flowjoin.api import (
    AddressFamily,
    ConfigError,
    Duration,
    FlowBatch,
    FlowOrigin,
    FlowSchema,
    Octets,
    PermanentExportError,
    RetryableExportError,
)
from flowjoin.testing import RecordingContext, numbered_flows, plain_flows, standard_flow
from flowjoin.wire import SequenceGap, default_registry
from flowjoin_ipfix import IpfixConfig, TlsConfig, flowjoin_exporter_types
from flowjoin_ipfix._datagram import DatagramConnection
from flowjoin_ipfix._exporter import open_ipfix

Start = Callable[..., Awaitable[Collector]]
V4, V6 = AddressFamily.IPV4, AddressFamily.IPV6
PATIENCE = 60.0  # the machine may be busy
UNUSUAL = (
    "bgpSourceAsNumber",
    "bgpDestinationAsNumber",
    "vlanId",
    "ingressInterface",
    "egressInterface",
    "minimumTTL",
    "maximumTTL",
    "ipTTL",
    "fragmentFlags",
    "tcpWindowSize",
    "tcpUrgentPointer",
    "ipClassOfService",
    "sourceIPv4PrefixLength",
    "destinationIPv4PrefixLength",
    "bgpNextAdjacentAsNumber",
    "bgpPrevAdjacentAsNumber",
    "flowLabelIPv6",
    "igmpType",
    "mplsTopLabelType",
    "samplingInterval",
    "engineType",
    "engineId",
)


def ports(collector: Collector) -> list[object]:
    return [record["sourceTransportPort"] for record in collector.records]


def numbers(first: int, count: int) -> list[object]:
    return [1024 + number for number in range(first, first + count)]


@asynccontextmanager
async def opened(config: IpfixConfig, context: RecordingContext | None = None) -> AsyncIterator[Any]:
    with trio.fail_after(PATIENCE):
        async with open_ipfix(config, context or RecordingContext(name="ipfix")) as exporter:
            yield exporter


def facts_of(context: RecordingContext, event: str) -> dict[str, object]:
    [line] = [line for line in context.log.lines if line.event == event]
    return dict(line.facts)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_templates_go_first_and_rows_of_both_families_follow_theirs(
    start: Start, protocol: str, host: str
) -> None:
    collector = await start(protocol=protocol, host=host)
    async with opened(IpfixConfig(address=collector.address, protocol=protocol)) as exporter:  # type: ignore[arg-type]
        for batch in (numbered_flows(3, V6), standard_flow(V4), plain_flows(2, V6), standard_flow(V6)):
            await exporter.export(batch)
        await collector.count()
    [session] = collector.sessions
    assert session.templates == [256, 257, 259]
    assert session.kinds["SequenceGap"] == 0
    records = session.records
    assert [record.get("throughput") for record in records] == [15902813472] * 4 + [None] * 2 + [15902813472]
    assert records[0]["sourceIPv6Address"] == "2001:db8::1:0"
    assert records[3]["destinationIPv4Address"] == "10.10.0.80"


async def test_templates_go_once_over_a_connection_and_again_over_the_next(start: Start, nursery: trio.Nursery) -> None:
    collector = await start()
    async with opened(IpfixConfig(address=collector.address, resend_interval=Duration(0))) as exporter:
        for _ in range(5):
            await exporter.export(numbered_flows(2))
        async with collector.down(nursery):
            pass
        await exporter_ready(exporter, numbered_flows(2, first=7))
        await collector.count()
    assert [session.templates for session in collector.sessions] == [[256, 257], [256, 257]]
    assert [session.kinds["SequenceGap"] for session in collector.sessions] == [0, 0]
    assert ports(collector) == numbers(0, 2) * 5 + numbers(7, 2)


async def exporter_ready(exporter: Any, batch: Any) -> int:
    """Exports until it goes through, as a lane does; gives how often it did not."""
    failures = 0
    while True:
        try:
            await exporter.export(batch)
        except RetryableExportError:
            failures += 1
            await trio.sleep(0.01)
        else:
            return failures


async def test_templates_come_again_over_udp_by_the_clock(autojump_clock: trio.testing.MockClock) -> None:
    sent: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        address = f"127.0.0.1:{receiver.getsockname()[1]}"
        config = IpfixConfig(address=address, protocol="udp", template_refresh_timeout=Duration(600))
        async with open_ipfix(config, RecordingContext(name="ipfix")) as exporter:
            await exporter.export(plain_flows(1))
            await trio.sleep(1801)
        while True:
            try:
                sent.append(receiver.recv(65535))
            except BlockingIOError:
                break
    set_ids = [int.from_bytes(message[16:18], "big") for message in sent]
    templates = [int.from_bytes(message[20:22], "big") for message in sent if message[16:18] == b"\0\2"]
    assert set_ids == [2, 2, 2, 258] + [2] * 9
    assert templates == [256, 257, 258] * 4
    # A Template is no Data Record: after one row the sequence stays at 1.
    assert {int.from_bytes(message[8:12], "big") for message in sent[4:]} == {1}


async def test_a_refused_datagram_is_tried_again_and_the_exporter_lives_on(start: Start, nursery: trio.Nursery) -> None:
    collector = await start(protocol="udp")
    context = RecordingContext(name="ipfix")
    async with opened(IpfixConfig(address=collector.address, protocol="udp"), context) as exporter:
        await exporter.export(numbered_flows(2))
        async with collector.down(nursery):
            for _ in range(3):
                with pytest.raises(RetryableExportError, match="nobody listens at udp"):
                    await exporter.export(numbered_flows(3, first=2))
        await exporter.export(numbered_flows(3, first=2))
        await collector.count()
    assert ports(collector) == numbers(0, 5)
    assert [session.templates for session in collector.sessions] == [[256, 257], [256, 257]]
    assert context.counters["connections_lost"].value == 3
    assert "delivery_is_best_effort" in context.events


async def test_a_refresh_that_meets_a_refusal_leaves_the_next_batch_a_new_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    context = RecordingContext(name="ipfix")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        host, port = receiver.getsockname()
        config = IpfixConfig(address=f"{host}:{port}", protocol="udp")
        async with open_ipfix(config, context) as exporter:
            await exporter.export(numbered_flows(1))
            receiver.close()
            await trio.sleep(3000)
            assert context.events.count("connection_lost") == 1
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
                again.bind((host, port))
                await exporter.export(numbered_flows(1))
    assert context.counters["connections"].value == 2


async def test_an_address_nobody_may_send_to_is_told() -> None:
    async with opened(IpfixConfig(address="255.255.255.255", protocol="udp")) as exporter:
        with pytest.raises(RetryableExportError, match=r"cannot connect to udp 255.*: Permission denied"):
            await exporter.export(numbered_flows(1))


async def test_a_name_with_two_addresses_is_tried_at_both(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = await start(protocol="udp")

    class TwoAddresses(trio.abc.HostnameResolver):
        async def getaddrinfo(self, host: Any, port: Any, family: int = 0, *rest: Any, **more: Any) -> Any:
            kind = (socket.SOCK_DGRAM, socket.IPPROTO_UDP, "")
            return [
                (socket.AF_INET6, *kind, ("::1", port, 0, 0)),
                (socket.AF_INET, *kind, ("127.0.0.1", port)),
            ]

        async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
            raise NotImplementedError

    trio.socket.set_custom_hostname_resolver(TwoAddresses())
    config = IpfixConfig(address=f"collector.example:{collector.port}", protocol="udp")
    async with opened(config) as exporter:
        assert await exporter_ready(exporter, numbered_flows(1)) == 1
        await collector.count()
    assert ports(collector) == numbers(0, 1)


async def test_a_connection_of_a_port_to_itself_is_no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    with trio.socket.socket() as port:
        await port.bind(("127.0.0.1", 0))
        host, number = port.getsockname()

        async def chosen_by_the_system(*_: object) -> trio.SocketStream:
            await port.connect((host, number))
            return trio.SocketStream(port)

        monkeypatch.setattr(trio, "open_tcp_stream", chosen_by_the_system)
        async with opened(IpfixConfig(address=f"{host}:{number}")) as exporter:
            with pytest.raises(
                RetryableExportError, match=f": cannot connect to {host}:{number}: nobody listens there$"
            ):
                await exporter.export(numbered_flows(1))


async def test_a_collector_that_is_away_is_told_in_the_systems_words() -> None:
    with socket.socket() as bound:  # and nobody listens on it
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        async with opened(IpfixConfig(address=address)) as exporter:
            with pytest.raises(RetryableExportError, match=rf": cannot connect to {address}: Connection refused$"):
                await exporter.export(numbered_flows(1))


async def test_a_name_nobody_knows_is_told_and_tried_again() -> None:
    class Nobody(trio.abc.HostnameResolver):
        async def getaddrinfo(self, *_: Any, **__: Any) -> Any:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
            raise NotImplementedError

    trio.socket.set_custom_hostname_resolver(Nobody())
    for protocol in ("tcp", "udp"):
        async with opened(IpfixConfig(address="collector.example", protocol=protocol)) as exporter:  # type: ignore[arg-type]
            with pytest.raises(RetryableExportError, match="Name or service not known"):
                await exporter.export(numbered_flows(1))


async def test_rows_the_collectors_system_took_and_it_never_read_are_sent_again(spawn: Any) -> None:
    collector = spawn()
    context = RecordingContext(name="ipfix")
    async with opened(IpfixConfig(address=collector.address), context) as exporter:
        await exporter.export(numbered_flows(10))
        collector.kill()
        collector.restart()  # what it had read is forgotten, as at any collector that keeps flows in memory
        await exporter_ready(exporter, numbered_flows(5, first=10))
        assert len(collector.delivered()) == 15
    assert context.counters["rows_resent"].value == 10
    assert context.counters["rows_delivered"].value == 25
    assert facts_of(context, "rows_sent_again") == {"rows": 10}


async def test_rows_older_than_the_interval_are_not_sent_again(
    start: Start, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1.0
    collector = await start()
    context = RecordingContext(name="ipfix")
    config = IpfixConfig(address=collector.address, resend_interval=Duration(20))
    async with opened(config, context) as exporter:
        await exporter.export(numbered_flows(3))
        mock_clock.jump(21)
        await exporter.export(numbered_flows(4, first=3))
        async with collector.down(nursery):
            await trio.testing.wait_all_tasks_blocked()
        await exporter_ready(exporter, numbered_flows(5, first=7))
        await collector.count()
    first, second = collector.sessions
    assert [record["sourceTransportPort"] for record in first.records] == numbers(0, 7)
    assert [record["sourceTransportPort"] for record in second.records] == numbers(3, 9)
    assert second.kinds["SequenceGap"] == 0


async def test_what_does_not_fit_into_the_resend_buffer_is_told(start: Start) -> None:
    collector = await start()
    context = RecordingContext(name="ipfix")
    config = IpfixConfig(address=collector.address, resend_buffer=Octets(1000))
    async with opened(config, context) as exporter:
        await exporter.export(numbered_flows(4))
    assert context.counters["rows_not_kept"].value == 4
    assert facts_of(context, "resend_buffer_full") == {"octets": 1000}


async def test_a_collector_that_closed_is_noticed_before_rows_count_as_delivered(
    start: Start, nursery: trio.Nursery
) -> None:
    """It closes after it has accepted, without reading: its system acknowledges all the same."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"

    async def accept_and_close(stream: trio.SocketStream) -> None:
        await stream.aclose()

    await nursery.start(trio.serve_listeners, accept_and_close, listeners)
    async with opened(IpfixConfig(address=address)) as exporter:

        async def export_some() -> None:
            for _ in range(3):  # at latest when the connection's end has come in
                await exporter.export(numbered_flows(200))
                await trio.testing.wait_all_tasks_blocked(0.01)

        with pytest.raises(RetryableExportError, match=r"closed the connection|connection broke"):
            await export_some()
    nursery.cancel_scope.cancel()


async def test_a_slow_collector_gets_everything_once(start: Start) -> None:
    collector = await start()
    collector.reading = trio.Event()
    rows = 40_000  # more than both systems' buffers hold
    async with opened(IpfixConfig(address=collector.address)) as exporter, trio.open_nursery() as exporting:
        done = trio.Event()

        async def export() -> None:
            for first in range(0, rows, 4000):
                await exporter.export(numbered_flows(4000, first=first))
            done.set()

        exporting.start_soon(export)
        with trio.move_on_after(0.5):
            await done.wait()
        assert not done.is_set()
        collector.reading.set()
        await done.wait()
        assert await collector.count() == rows
    [session] = collector.sessions
    assert not any(isinstance(event, SequenceGap) for event in session.events)


async def test_a_server_that_never_shakes_hands_is_given_up_in_time(nursery: trio.Nursery, certificates: Any) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def say_nothing(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    nursery.start_soon(trio.serve_listeners, say_nothing, listeners)
    config = IpfixConfig(
        address=f"127.0.0.1:{listeners[0].socket.getsockname()[1]}",
        protocol="tls",
        tls=TlsConfig(ca=certificates.ca),
        connect_timeout=Duration(0.3),
    )
    async with opened(config) as exporter:
        with pytest.raises(RetryableExportError, match=r"no connection within 0\.3 s"):
            await exporter.export(numbered_flows(1))
    nursery.cancel_scope.cancel()


async def test_an_idle_connection_is_probed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = await start()
    async with opened(IpfixConfig(address=collector.address)) as exporter:
        await exporter.export(numbered_flows(1))
        used = exporter._open.connection._socket
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10


async def test_counters_that_nobody_counted_are_zero_to_an_agents_collector_said_once_and_counted(start: Start) -> None:
    collector = await start()
    context = RecordingContext(name="ipfix")
    counted = numbered_flows(1).schema
    schema = FlowSchema(
        origin=FlowOrigin.SOURCE,
        family=counted.family,
        elements=tuple(element for element in counted.elements if not element.name.endswith("Count")),
        registry=counted.registry,
    )
    batch = FlowBatch.from_columns(schema, {"sourceTransportPort": [1, 2, 3]})
    async with opened(IpfixConfig(address=collector.address, template="agent"), context) as exporter:
        for _ in range(2):
            await exporter.export(batch)
        await collector.count()
    [session] = collector.sessions
    assert {record["packetTotalCount"] for record in session.records} == {0}
    assert context.counters["rows_uncounted"].value == 6
    assert context.events.count("counters_sent_as_zero") == 1


async def test_columns_that_come_while_connected_get_a_template_of_their_own(start: Start) -> None:
    """``recordContents.elements`` was changed, and changed back."""
    collector = await start()
    usual = numbered_flows(3)
    wider = numbered_flows(3, first=3).with_columns({"bgpSourceAsNumber": [64496, 64497, 64498]})
    async with opened(IpfixConfig(address=collector.address, include_extra_elements=True)) as exporter:
        for batch in (usual, wider, numbered_flows(2, first=6), wider):
            await exporter.export(batch)
        await collector.count()
    [session] = collector.sessions
    assert session.templates == [256, 257, 260]
    assert session.kinds["SequenceGap"] == 0
    assert ports(collector) == numbers(0, 8) + numbers(3, 3)
    assert [record.get("bgpSourceAsNumber") for record in session.records] == [
        *[None] * 3, 64496, 64497, 64498, None, None, 64496, 64497, 64498
    ]  # fmt: skip


async def test_a_collector_that_takes_nothing_is_left(start: Start) -> None:
    collector = await start()
    collector.reading = trio.Event()
    config = IpfixConfig(address=collector.address, send_timeout=Duration(0.3))
    async with opened(config) as exporter:

        async def export_much() -> None:
            for first in range(0, 200_000, 4000):
                await exporter.export(numbered_flows(4000, first=first))

        with pytest.raises(RetryableExportError, match=r"took nothing for 0\.3 s"):
            await export_much()
        collector.reading.set()
        await exporter_ready(exporter, numbered_flows(1))


async def test_a_connection_that_nobody_accepts_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async def never(*_: Any, **__: Any) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(trio, "open_tcp_stream", never)
    async with open_ipfix(IpfixConfig(address="192.0.2.1"), RecordingContext()) as exporter:
        with pytest.raises(RetryableExportError, match="no connection within 10 s"):
            await exporter.export(numbered_flows(1))


async def test_the_collector_must_be_who_the_certificate_says(start: Start, certificates: Any) -> None:
    collector = await start(tls=certificates.context())
    good = IpfixConfig(address=collector.address, protocol="tls", tls=TlsConfig(ca=certificates.ca))
    assert good.tls is not None
    async with opened(good) as exporter:
        await exporter.export(numbered_flows(3))
    named = replace(good, tls=replace(good.tls, server_name="collector.example", min_version="VersionTLS13"))
    async with opened(named) as exporter:
        await exporter.export(numbered_flows(3, first=3))
    assert await collector.count() == 6
    for tls, problem in (
        (replace(good.tls, server_name="other.example"), "Hostname mismatch"),
        (TlsConfig(), "self-signed certificate|unable to get local issuer"),
    ):
        async with opened(replace(good, tls=tls)) as exporter:
            with pytest.raises(RetryableExportError, match=f"certificate is refused: .*({problem})"):
                await exporter.export(numbered_flows(1))


async def test_a_stranger_with_the_right_names_is_refused_unless_told_otherwise(
    start: Start, certificates: Any
) -> None:
    collector = await start(tls=certificates.context(is_stranger=True))
    config = IpfixConfig(address=collector.address, protocol="tls", tls=TlsConfig(ca=certificates.ca))
    async with opened(config) as exporter:
        with pytest.raises(RetryableExportError, match="certificate is refused"):
            await exporter.export(numbered_flows(1))
    context = RecordingContext()
    async with opened(replace(config, tls=TlsConfig(insecure_skip_verify=True)), context) as exporter:
        await exporter.export(numbered_flows(1))
    assert "collector_not_verified" in context.events
    assert await collector.count() == 1


async def test_the_collectors_old_tls_is_refused(start: Start, certificates: Any) -> None:
    old = certificates.context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    collector = await start(tls=old)
    config = IpfixConfig(address=collector.address, protocol="tls", tls=TlsConfig(ca=certificates.ca))
    async with opened(config) as exporter:
        await exporter.export(numbered_flows(1))
    tls = TlsConfig(ca=certificates.ca, min_version="VersionTLS13")
    async with opened(replace(config, tls=tls)) as exporter:
        with pytest.raises(RetryableExportError, match="TLS"):
            await exporter.export(numbered_flows(1))


async def test_a_collector_that_wants_a_certificate_gets_it_or_the_batch_comes_again(
    start: Start, certificates: Any
) -> None:
    """A TLS 1.3 server refuses after the client's handshake is done: rows must not count as delivered by then."""
    collector = await start(tls=certificates.context(is_mutual=True))
    without = TlsConfig(ca=certificates.ca)
    config = IpfixConfig(address=collector.address, protocol="tls", tls=without)
    context = RecordingContext()
    async with opened(config, context) as exporter:
        for _ in range(2):
            with pytest.raises(RetryableExportError, match=r"(?i)certificate required|broke|closed"):
                await exporter.export(numbered_flows(1))
    assert context.counters["rows_delivered"].value == 0
    tls = replace(without, certificate=certificates.client, key=certificates.client)
    async with opened(replace(config, tls=tls)) as exporter:
        await exporter.export(numbered_flows(2))
    assert await collector.count() == 2


async def test_files_of_tls_are_read_at_each_connect(
    start: Start, nursery: trio.Nursery, certificates: Any, tmp_path: Any
) -> None:
    collector = await start(tls=certificates.context(is_mutual=True))
    ca = tmp_path / "ca.pem"
    ca.write_bytes(certificates.ca.read_bytes())
    tls = TlsConfig(ca=ca, certificate=certificates.client, key=certificates.client)
    config = IpfixConfig(address=collector.address, protocol="tls", tls=tls, resend_interval=Duration(0))
    async with opened(config) as exporter:
        await exporter.export(numbered_flows(1))
        ca.rename(tmp_path / "away.pem")
        async with collector.down(nursery):
            pass
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            with pytest.raises(RetryableExportError):
                await exporter.export(numbered_flows(1, first=1))
        with pytest.raises(RetryableExportError, match=r"tls\.ca: .*No such file"):
            await exporter.export(numbered_flows(1, first=1))
        (tmp_path / "away.pem").rename(ca)
        await exporter.export(numbered_flows(1, first=1))
        await collector.count()
    assert ports(collector) == numbers(0, 2)


async def test_files_that_cannot_be_used_are_refused_at_start_and_by_check(certificates: Any, tmp_path: Path) -> None:
    (exporter_type,) = flowjoin_exporter_types()
    assert exporter_type.check is not None
    for tls, path in (
        (TlsConfig(ca=tmp_path / "missing.pem"), "tls.ca"),
        (TlsConfig(certificate=certificates.ca, key=certificates.client), "tls.key"),
    ):
        config = IpfixConfig(address="127.0.0.1", protocol="tls", tls=tls)
        with pytest.raises(ConfigError, match=" cannot be used: ") as refused:
            exporter_type.check(config, default_registry())
        assert refused.value.path == path
        with pytest.raises(ConfigError, match=" cannot be used: ") as refused:
            async with open_ipfix(config, RecordingContext()):
                pass
        assert refused.value.path == path


async def test_messages_never_exceed_the_configured_size(start: Start) -> None:
    for protocol in ("tcp", "udp"):
        collector = await start(protocol=protocol)
        config = IpfixConfig(address=collector.address, protocol=protocol, max_ipfix_msg_size=2000)  # type: ignore[arg-type]
        long = standard_flow(V6, sourcePodLabels="x" * 1000, destinationPodLabels="y" * 1000)
        async with opened(config) as exporter:
            await exporter.export(numbered_flows(50))
            with pytest.raises(PermanentExportError, match="over the limit of 1980") as refused:
                await exporter.export(long)
            await exporter.export(numbered_flows(1))
            await collector.count()
        assert refused.value.rows == (0,)
        [session] = collector.sessions
        assert 1400 < max(map(len, session.messages)) <= 2000
        assert session.rows == 51


@pytest.mark.parametrize(("host", "packed", "path"), [("127.0.0.1", 1472, 8972), ("::1", 1452, 8952)])
async def test_over_udp_messages_fit_ethernet_and_a_long_row_the_path(
    start: Start, host: str, packed: int, path: int
) -> None:
    """Loopback carries 65536 octets, and collectors have other buffers."""
    collector = await start(protocol="udp", host=host)
    context = RecordingContext()
    async with opened(IpfixConfig(address=collector.address, protocol="udp"), context) as exporter:
        await exporter.export(numbered_flows(100))
        await exporter.export(standard_flow(sourcePodLabels="x" * 5000))
        with pytest.raises(PermanentExportError):
            await exporter.export(standard_flow(sourcePodLabels="x" * 9000))
        await collector.count()
    sizes = [len(message) for message in collector.sessions[0].messages]
    assert facts_of(context, "connected")["limit"] == path
    assert packed - 800 < max(sizes[:-1]) <= packed < 5000 < sizes[-1] <= path


async def test_over_a_narrow_path_templates_go_in_fragments_and_rows_do_not(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DatagramConnection, "limit", property(lambda _self: 552 - 28))
    collector = await start(protocol="udp")
    context = RecordingContext()
    async with opened(IpfixConfig(address=collector.address, protocol="udp"), context) as exporter:
        with pytest.raises(PermanentExportError):
            await exporter.export(standard_flow())
        empty = standard_flow(**{
            name: "" for name in standard_flow().schema.names if isinstance(standard_flow().column(name)[0], str)
            and "IP" not in name
        })  # fmt: skip
        await exporter.export(empty)
        await collector.count()
    assert facts_of(context, "template_over_path") == {"octets": 536, "path": 524}
    assert [len(message) for message in collector.sessions[0].messages] == [536, 536, 16 + 4 + 311 + 10]


async def test_a_size_no_template_fits_into_is_refused_at_start_and_by_check() -> None:
    (exporter_type,) = flowjoin_exporter_types()
    assert exporter_type.check is not None
    config = IpfixConfig(address="127.0.0.1", max_ipfix_msg_size=527)
    problem = "octets and fits into no Message of 527; write at least"
    with pytest.raises(ConfigError, match=f"has 536 {problem} 536, or 0") as refused:
        async with open_ipfix(config, RecordingContext()):
            pass
    assert refused.value.path == "maxIPFIXMsgSize"
    with pytest.raises(ConfigError, match=f"has 528 {problem} 528, or 0") as refused:
        exporter_type.check(config, default_registry())
    assert refused.value.path == "maxIPFIXMsgSize"
    for fitting in ({"max_ipfix_msg_size": 528}, {"record_format": "JSON"}, {"include_extra_elements": True}):
        exporter_type.check(replace(config, **fitting), default_registry())


async def test_a_template_that_grows_over_the_size_refuses_its_rows_and_nothing_else(start: Start) -> None:
    collector = await start()
    settings = {"include_k8s_names": False, "max_ipfix_msg_size": 512, "include_extra_elements": True}
    async with opened(IpfixConfig(address=collector.address, **settings)) as exporter:
        with pytest.raises(PermanentExportError, match=r"Template 256 does not fit into a Message of 512 octets"):
            await exporter.export(standard_flow().with_columns({name: [1] for name in UNUSUAL}))
        await exporter.export(plain_flows(2))
        assert await collector.count() == 2
    [session] = collector.sessions
    assert session.templates == [257, 258]
    assert max(map(len, session.messages)) <= 512


async def test_a_schema_too_many_refuses_its_rows(start: Start) -> None:
    collector = await start()
    async with opened(IpfixConfig(address=collector.address)) as exporter:
        await exporter.export(plain_flows(1))
        exporter._book._next_id = 65536
        with pytest.raises(PermanentExportError, match="65536"):
            await exporter.export(plain_flows(1).with_columns({"bgpNextAdjacentAsNumber": [1]}))


async def test_the_observation_domain_is_configured_or_made_of_the_clusters_uuid(start: Start) -> None:
    collector = await start()
    context = RecordingContext(cluster_uuid="11111111-2222-4333-8444-555555555555")
    for number, expected in ((0xABCD, 0xABCD), (0, 0), (None, 289624949)):
        async with opened(IpfixConfig(address=collector.address, observation_domain_id=number), context) as exporter:
            await exporter.export(numbered_flows(1))
            await collector.count()
        assert {struct.unpack(">I", message[12:16])[0] for message in collector.sessions[-1].messages} == {expected}


async def test_json_is_one_object_a_line_with_sorted_keys(start: Start) -> None:
    collector = await start(is_json=True)
    batch = standard_flow(sourcePodLabels='{"a":"<&>\u2028"}')
    async with opened(IpfixConfig(address=collector.address, record_format="JSON")) as exporter:
        await exporter.export(batch)
        await exporter.export(plain_flows(1))
        await collector.count()
    joined, plain = collector.sessions[0].lines
    assert rb'"sourcePodLabels":"{\"a\":\"\u003c\u0026\u003e\u2028\"}"' in joined
    record = json.loads(joined)
    assert list(record) == ["@timestamp", "ipfix"]
    assert list(record["ipfix"]) == sorted(record["ipfix"])
    assert len(record["ipfix"]) == 70
    assert record["ipfix"]["octetTotalCount"] == 30472817041
    assert record["ipfix"]["flowEndSeconds"] == 1637706973
    assert record["ipfix"]["proxySnatIPv4"] == "10.10.3.10"
    assert json.loads(plain)["ipfix"]["ingressInterface"] == 2


async def test_json_uuids_are_written_as_people_write_them(start: Start) -> None:
    collector = await start(is_json=True, protocol="udp")
    config = IpfixConfig(address=collector.address, protocol="udp", record_format="JSON", include_k8s_uids=True)
    uuid = bytes.fromhex("11111111222243338444555555555555")
    async with opened(config) as exporter:
        await exporter.export(standard_flow().with_columns({"sourcePodUUID": [uuid]}))
        await collector.count()
    [line] = collector.sessions[0].lines
    record = json.loads(line)["ipfix"]
    assert record["sourcePodUUID"] == "11111111-2222-4333-8444-555555555555"
    assert record["egressUUID"] == "00000000-0000-0000-0000-000000000000"
    assert line.endswith(b"\n")


async def test_elements_that_are_not_sent_are_named_once(start: Start) -> None:
    collector = await start()
    context = RecordingContext()
    batch = numbered_flows(1).with_columns({"bgpSourceAsNumber": [64496]})
    async with opened(IpfixConfig(address=collector.address), context) as exporter:
        await exporter.export(batch)
        await exporter.export(batch)
    assert facts_of(context, "elements_not_sent")["elements"] == "bgpSourceAsNumber"


async def test_switches_that_change_nothing_are_told() -> None:
    context = RecordingContext(compatibility="antrea-2.3")
    async with open_ipfix(IpfixConfig(address="127.0.0.1", include_k8s_uids=True), context):
        pass
    assert "switches_without_effect" in context.events


async def test_books_balance_when_the_collector_dies_again_and_again(spawn: Any) -> None:
    """kill -9 between and during batches: what the collectors read of each life, the buffer fills up."""
    collector = spawn()
    seen: Counter[str] = Counter()
    context = RecordingContext()
    async with opened(IpfixConfig(address=collector.address), context) as exporter:
        for life in range(3):
            await exporter_ready(exporter, numbered_flows(500, first=500 * life))
            seen["rows"] += 500
            collector.kill()
            collector.restart()
        await exporter_ready(exporter, numbered_flows(1, first=1500))
        # All of it happened within resendInterval: the last collector has every row.
        assert len(collector.delivered()) == seen["rows"] + 1


@pytest.mark.slow
async def test_nothing_is_lost_when_the_collector_is_killed_while_rows_are_on_their_way(spawn: Any) -> None:
    collector = spawn()
    context = RecordingContext()
    config = IpfixConfig(address=collector.address, resend_interval=Duration(60))
    batches, rows = 12, 400
    report, done = trio.open_memory_channel[int](batches)

    async with opened(config, context) as exporter, trio.open_nursery() as exporting:

        async def export_all() -> None:
            async with report:
                for number in range(batches):
                    await exporter_ready(exporter, numbered_flows(rows, first=rows * number))
                    await report.send(number)

        exporting.start_soon(export_all)
        async for number in done:
            if number in (2, 5, 8):
                collector.kill()  # wherever the next batch is now
                await trio.sleep(0.02)  # it meets a refusal, too
                await trio.to_thread.run_sync(collector.restart)
        assert int(collector.say("distinct")) == batches * rows
    delivered = context.counters["rows_delivered"].value - context.counters["rows_resent"].value
    assert delivered == batches * rows
    assert context.counters["rows_resent"].value >= 3 * 3 * rows
