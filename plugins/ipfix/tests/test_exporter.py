"""The exporter and a collector: connections made, lost and made again, over loopback."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio
import trio.testing
from ipfix_exporting import V4, V6, Start, exporter_ready, numbers, opened, ports

from flowjoin.api import Duration, RetryableExportError
from flowjoin.testing import RecordingContext, numbered_flows, plain_flows, standard_flow
from flowjoin_ipfix import IpfixConfig
from flowjoin_ipfix._exporter import open_ipfix


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


async def test_an_idle_connection_is_probed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = await start()
    async with opened(IpfixConfig(address=collector.address)) as exporter:
        await exporter.export(numbered_flows(1))
        used = exporter._open.connection._socket
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
