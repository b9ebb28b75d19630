"""Where the collector is, where that is looked up: a Service's address, and the certificates for it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
from ipfix_collector import Collector

from flowjoin.api import (
    ClientCredentials,
    ClientCredentialsLookup,
    ConfigError,
    Duration,
    PluginError,
    RetryableExportError,
    Service,
    ServiceLookup,
    ServicePort,
)
from flowjoin.testing import RecordingContext, numbered_flows
from flowjoin_ipfix import IpfixConfig, TlsConfig
from flowjoin_ipfix._destination import Destination
from flowjoin_ipfix._exporter import open_ipfix
from flowjoin_ipfix._observation_domain import observation_domain_of_node

Start = Callable[..., Awaitable[Collector]]


class Cluster:
    """Look-ups that a test writes."""

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] | None = ("127.0.0.1",)
        self.credentials: ClientCredentials | PluginError = PluginError("the look-up is not open", plugin="kubernetes")
        self.asked = 0

    def service_by_address(
        self, address: str, port: int, protocol_identifier: int, at: float | None = None
    ) -> tuple[Service, ServicePort] | None:
        return None

    def service_by_name(self, namespace: str, name: str, at: float | None = None) -> Service | None:
        if (namespace, name) != ("ns", "svc") or self.addresses is None:
            return None
        return Service(namespace=namespace, name=name, cluster_addresses=self.addresses)

    async def client_credentials(self) -> ClientCredentials:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        if isinstance(self.credentials, PluginError):
            raise self.credentials
        return self.credentials


def context(cluster: Cluster) -> RecordingContext:
    return RecordingContext(lookups={ServiceLookup: cluster, ClientCredentialsLookup: cluster})


async def test_a_service_is_its_cluster_address_at_each_connect(start: Start, nursery: trio.Nursery) -> None:
    collector = await start()
    cluster = Cluster()
    config = IpfixConfig(address=f"ns/svc:{collector.port}", resend_interval=Duration(0))
    with trio.fail_after(60):
        async with open_ipfix(config, context(cluster)) as exporter:
            await exporter.export(numbered_flows(2))
            for addresses, problem in (
                (None, "tcp ns/svc:.*: failed to resolve Service: ns/svc"),
                ((), "ClusterIP is not available for Service: ns/svc"),
            ):
                async with collector.down(nursery):
                    pass
                cluster.addresses = addresses
                with suppress(RetryableExportError):  # it may say first that the connection is gone
                    await exporter.export(numbered_flows(1))
                with pytest.raises(RetryableExportError, match=problem):
                    await exporter.export(numbered_flows(1))
            cluster.addresses = ("127.0.0.1", "::1")
            await exporter.export(numbered_flows(3, first=7))
            await collector.count()
    assert [record["sourceTransportPort"] for record in collector.records][-3:] == [1031, 1032, 1033]


async def test_without_a_look_up_a_service_is_its_dns_name() -> None:
    recording = RecordingContext()
    destination = Destination(IpfixConfig(address="ns/svc:7"), recording)
    assert str((await destination.target()).address) == "svc.ns.svc:7"
    assert recording.events == ["service_by_dns"]


async def test_certificates_are_asked_for_at_each_connect_and_for_the_services_name(
    start: Start, certificates: Any
) -> None:
    collector = await start(tls=certificates.context(is_mutual=True))
    cluster = Cluster()
    pem = certificates.client.read_text()
    tls = TlsConfig(from_lookup=True, server_name="collector.example")
    config = IpfixConfig(address=f"ns/svc:{collector.port}", protocol="tls", tls=tls, connect_timeout=Duration(30))
    with trio.fail_after(60):
        async with open_ipfix(config, context(cluster)) as exporter:
            with pytest.raises(RetryableExportError, match="the look-up is not open"):
                await exporter.export(numbered_flows(1))
            for nonsense in ("nonsense", "", "größe"):
                cluster.credentials = ClientCredentials(ca=nonsense, certificate=pem, key=pem)
                with pytest.raises(RetryableExportError, match=r"tls\.ca: what was looked up cannot be used"):
                    await exporter.export(numbered_flows(1))
            ca = certificates.ca.read_text()
            cluster.credentials = ClientCredentials(ca=ca, certificate="nonsense", key="")
            with pytest.raises(RetryableExportError, match=r"tls\.certificate: what was looked up cannot be used"):
                await exporter.export(numbered_flows(1))
            cluster.credentials = ClientCredentials(ca=ca, certificate=pem, key="")
            await exporter.export(numbered_flows(1))
            await collector.count()
    assert cluster.asked == 6
    plain = Destination(IpfixConfig(address="ns/svc", protocol="tls", tls=TlsConfig()), context(cluster))
    assert (await plain.target()).server_name == "svc.ns.svc"


def test_certificates_that_nothing_provides_are_refused_at_start() -> None:
    config = IpfixConfig(address="h", protocol="tls", tls=TlsConfig(from_lookup=True))
    with pytest.raises(ConfigError, match="nothing under lookups provides certificates") as caught:
        Destination(config, RecordingContext())
    assert caught.value.path == "tls.fromLookup"


def test_the_observation_domain_of_an_agent_is_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "kind-worker")
    assert observation_domain_of_node() == 801257890
    monkeypatch.delenv("NODE_NAME")
    mine = observation_domain_of_node()
    monkeypatch.setenv("NODE_NAME", os.uname().nodename)
    assert observation_domain_of_node() == mine


async def test_what_an_agents_exporter_sends_is_of_its_nodes_domain(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "kind-worker")
    collector = await start()
    recording = RecordingContext()
    with trio.fail_after(60):
        async with open_ipfix(IpfixConfig(address=collector.address, template="agent"), recording):
            pass
    assert [dict(line.facts) for line in recording.log.lines if line.event == "observation_domain"] == [
        {"id": 801257890}
    ]
