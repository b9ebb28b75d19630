"""Settings are read as operators write them, and refused in one sentence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from flowjoin.__main__ import main
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
    "text",
    [
        "",
        ":4739",
        "host:",
        "host:0",
        "host:65536",
        "host:x",
        "2001:db8::5",
        "[2001:db8::5",
        "[host]:1",
        "a b:1",
        "a..b:1",
        f"{'x' * 64}.example",
        "4739",
        "me@host:1",
        "tcp://host:4739",
        "host:4739:udp",
        "ns/svc/x:4739",
        "Ns/svc",
        "/svc:4739",
        "ns/:4739",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        IpfixConfig(address=text)
    assert caught.value.path == "address"


@pytest.mark.parametrize("text", ["me:hunter2@host:4739", "tcp://me:hunter2@host", "me:hunter2@[::1]:4739"])
def test_no_error_repeats_what_may_be_a_password(text: str) -> None:
    with pytest.raises(
        ValueError, match=r'^an address has no user and no password; write text such as "collector:4739"$'
    ):
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
    with pytest.raises(ConfigError, match=problem):
        IpfixConfig(address="collector", **settings)


def test_a_name_that_no_certificate_can_have_is_refused() -> None:
    for name in (".example", "a b", "a..b"):
        with pytest.raises(ConfigError, match="is no name that a certificate can have"):
            TlsConfig(server_name=name)


REFUSED = [
    ("adress: host", "exporters[0].adress", 'did you mean "address"?'),
    ("address: host, protocol: TCP", "exporters[0].protocol", 'must be tcp, udp or tls, not "TCP"'),
    ("address: host, protocol: tls, tls: {caa: x}", "exporters[0].tls.caa", 'did you mean "ca"?'),
    ("address: host, protocol: tls, tls: {ca: []}", "exporters[0].tls.ca", "must be"),
    ("address: host, protocol: tls, tls: {certificate: []}", "exporters[0].tls.certificate", "must be"),
    ("address: host, protocol: tls, tls: {key: x}", "exporters[0].tls.key", "is given without tls.certificate"),
    ("address: host, protocol: tls, tls: {serverName: .x}", "exporters[0].tls.serverName", "no name"),
    ("address: host, protocol: tls, tls: {minVersion: TLS12}", "exporters[0].tls.minVersion", "VersionTLS12 or"),
    ("address: host, protocol: tls, tls: {insecureSkipVerify: 1}", "exporters[0].tls.insecureSkipVerify", "true"),
    ("address: host, protocol: tls, tls: {fromLookup: true, ca: x}", "exporters[0].tls.fromLookup", "stands in place"),
    ("address: host, protocol: tls, tls: yes", "exporters[0].tls", ""),
    ("address: host, tls: {}", "exporters[0].tls", "write protocol: tls"),
    ("address: host, recordFormat: json", "exporters[0].recordFormat", "must be IPFIX or JSON"),
    ("address: host, template: foo", "exporters[0].template", "must be aggregator, proxy or agent"),
    ("address: host, includeK8sNames: 1", "exporters[0].includeK8sNames", "true or false"),
    ("address: host, includeK8sUIDs: 1", "exporters[0].includeK8sUIDs", "true or false"),
    ("address: host, includeExtraElements: 1", "exporters[0].includeExtraElements", "true or false"),
    ("address: host, observationDomainID: 4294967296", "exporters[0].observationDomainID", "4294967295"),
    ("address: host, templateRefreshTimeout: 0s", "exporters[0].templateRefreshTimeout", "1s"),
    ("address: host, maxIPFIXMsgSize: 511", "exporters[0]", "at least 512, not 511"),
    ("address: host, maxIPFIXMsgSize: 70000", "exporters[0].maxIPFIXMsgSize", "65535"),
    ("address: host, resendInterval: 2h", "exporters[0].resendInterval", "1h"),
    ("address: host, resendBuffer: 5XB", "exporters[0].resendBuffer", ""),
    ("address: host, connectTimeout: 0s", "exporters[0].connectTimeout", "100ms"),
    ("address: host, sendTimeout: 1d", "exporters[0].sendTimeout", ""),
    ("protocol: tcp", "exporters[0]", "address"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "path", "problem"), REFUSED)
def test_check_refuses_each_key_in_one_sentence_with_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: str, path: str, problem: str
) -> None:
    file = tmp_path / "flowjoin.yaml"
    file.write_text(f"aggregatorTransportProtocol: none\nexporters: [{{type: ipfix, {keys}}}]\n")
    assert main(["check", "-c", str(file)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (sentence,) = said.err.splitlines()
    assert sentence.startswith(f"flowjoin: {file}:2: {path}")
    assert problem in sentence


def test_each_key_has_a_case_that_is_refused() -> None:
    for cls in (IpfixConfig, TlsConfig):
        for item in dataclasses.fields(cls):
            head, *rest = item.name.split("_")
            key = (head + "".join(word.capitalize() for word in rest)).lower()
            assert any(f"{key}:" in keys.lower() for keys, _, _ in REFUSED), key


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
    with pytest.raises(ConfigError, match=r"flowCollector\.tls: TLS over udp \(DTLS\) is not supported yet"):
        bound("flowCollector: {enable: true, address: 'collector:4739:udp', tls: {enable: true}}")


@pytest.mark.parametrize(
    ("octets", "expected"),
    [(b"", 2166136261), (b"a", 84696446), (b"node1", 3957252814), (b"k8s-node-control-plane", 2432262065)],
)
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
