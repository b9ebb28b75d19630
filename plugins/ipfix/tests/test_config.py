"""Settings are read as operators write them, and refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowjoin._config.binder import bind_settings
from flowjoin._config.load import load_config
from flowjoin.api import ConfigError
from flowjoin_ipfix import IpfixConfig, TlsConfig
from flowjoin_ipfix._config import parse_address
from flowjoin_ipfix._observation_domain import fnv1, observation_domain_of


def bound(text: str) -> IpfixConfig:
    [entry] = load_config(f"aggregatorTransportProtocol: none\n{text}", "f.yaml").config.exporters
    settings = bind_settings(entry.settings, IpfixConfig)
    assert isinstance(settings, IpfixConfig)
    return settings


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("collector.example", "collector.example", 4739),
        ("collector.example:9995", "collector.example", 9995),
        ("192.0.2.1:4739", "192.0.2.1", 4739),
        ("[2001:db8::5]:4740", "2001:db8::5", 4740),
        ("[2001:db8::5]", "2001:db8::5", 4739),
    ],
)
def test_an_address_is_a_host_and_perhaps_a_port(text: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert (address.host, address.port) == (host, port)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", ":4739", "host:", "host:0", "host:65536", "host:x", "2001:db8::5", "[2001:db8::5", "[host]:1", "a b:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^address: "):
        parse_address(text)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"protocol": "udp", "tls": TlsConfig()}, r"DTLS.*not supported yet; use protocol: tls"),
        ({"tls": TlsConfig()}, "write protocol: tls"),
        ({"max_ipfix_msg_size": 511}, "at least 512, not 511"),
    ],
)
def test_what_cannot_be_together_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        IpfixConfig(address="collector", **settings)


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(ValueError, match="together"):
        TlsConfig(certificate=Path("client.pem"))


def test_antreas_section_is_bound_key_by_key() -> None:
    settings = bound(
        """
flowCollector:
  enable: true
  address: "[2001:db8::5]:4740:tcp"
  observationDomainID: 7
  recordFormat: JSON
  templateRefreshTimeout: 30.9s
  maxIPFIXMsgSize: 1420
  tls: {enable: true, caSecretName: a, clientSecretName: b, minVersion: VersionTLS13}
  includeK8sNames: false
  includeK8sUIDs: true
"""
    )
    directory = Path("/etc/flow-aggregator/certs/flow-collector")
    assert settings == IpfixConfig(
        address="[2001:db8::5]:4740",
        protocol="tls",
        tls=TlsConfig(
            ca=directory / "ca.crt",
            certificate=directory / "tls.crt",
            key=directory / "tls.key",
            server_name="2001:db8::5",
            min_version="VersionTLS13",
        ),
        record_format="JSON",
        include_k8s_names=False,
        include_k8s_uids=True,
        observation_domain_id=7,
        template_refresh_timeout=30.0,  # type: ignore[arg-type]
        max_ipfix_msg_size=1420,
    )


def test_antreas_section_has_antreas_defaults() -> None:
    settings = bound("flowCollector: {enable: true, address: collector}")
    assert settings == IpfixConfig(address="collector:4739")


def test_proxy_mode_means_the_proxys_template() -> None:
    settings = bound("mode: Proxy\nflowCollector: {enable: true, address: collector}")
    assert settings.template == "proxy"


def test_antreas_dtls_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"flowCollector: tls over udp \(DTLS\) is not supported yet"):
        bound("flowCollector: {enable: true, address: 'collector:4739:udp', tls: {enable: true}}")


@pytest.mark.parametrize(("octets", "expected"), [(b"", 2166136261), (b"a", 84696446), (b"node1", 3957252814)])
def test_the_hash_is_fnv_1(octets: bytes, expected: int) -> None:
    assert fnv1(octets) == expected


@pytest.mark.parametrize(
    ("uuid", "expected"),
    [
        ("00000000-0000-4000-8000-000000000000", 3863466821),
        ("11111111-2222-4333-8444-555555555555", 289624949),
    ],
)
def test_the_observation_domain_comes_of_the_uuids_octets(uuid: str, expected: int) -> None:
    assert observation_domain_of(uuid) == expected
