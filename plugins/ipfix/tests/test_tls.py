"""Who the collector is, and who we are, over TLS."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from ipfix_exporting import Start, numbers, opened, ports

from flowjoin.api import ConfigError, Duration, RetryableExportError
from flowjoin.testing import RecordingContext, numbered_flows
from flowjoin.wire import default_registry
from flowjoin_ipfix import IpfixConfig, TlsConfig, flowjoin_exporter_types
from flowjoin_ipfix._exporter import open_ipfix


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
