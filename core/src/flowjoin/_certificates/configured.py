"""What a configuration says about TLS, and whether the files it names can be used."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from flowjoin._certificates.files import TlsFiles, read_files, server_tls
from flowjoin._certificates.profiles import subject_alternative_name
from flowjoin._certificates.server_context import VERSIONS, check_ciphers
from flowjoin._config.load import LoadedConfig, Notice
from flowjoin._config.model import ApiServer, ApiServerTls, CollectorTls, Config
from flowjoin._model.errors import ConfigError

__all__ = ["api_ciphers", "api_files", "api_minimum_version", "check_files", "collector_files"]


def collector_files(tls: CollectorTls, index: int) -> TlsFiles:
    """The files of a collector."""
    return TlsFiles(
        certificate=tls.certificate,
        key=tls.key,
        client_ca=tls.client_ca,
        minimum_version=VERSIONS[tls.min_version],
        path=f"collectors[{index}].tls",
    )


def api_files(settings: ApiServer) -> TlsFiles | None:
    """The files of the HTTP server; None where it has none."""
    if not isinstance(settings.tls, ApiServerTls):
        return None
    return TlsFiles(
        certificate=settings.tls.certificate,
        key=settings.tls.key,
        client_ca=settings.tls.client_ca,
        minimum_version=api_minimum_version(settings),
        ciphers=api_ciphers(settings),
        may_be_nobody=True,
        path="apiServer.tls",
    )


def api_minimum_version(settings: ApiServer) -> ssl.TLSVersion:
    """The oldest version of TLS that the HTTP server speaks."""
    return VERSIONS.get(settings.tls_min_version, ssl.TLSVersion.TLSv1_2)


def api_ciphers(settings: ApiServer) -> str:
    """The ciphers of the HTTP server in OpenSSL's words."""
    names = [name.strip() for name in settings.tls_cipher_suites.split(",")]
    return ":".join(_openssl_name(name) for name in names if name)


def _openssl_name(name: str) -> str:
    """``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`` (Go, RFC 5246) is ``ECDHE-RSA-AES128-GCM-SHA256`` there."""
    exchange, has_both, rest = name.removeprefix("TLS_").partition("_WITH_")
    if not has_both:
        return name
    rest = rest.replace("AES_128_", "AES128_").replace("AES_256_", "AES256_").replace("_CBC_", "_")
    if rest.startswith("CHACHA20_POLY1305"):
        rest = "CHACHA20_POLY1305"
    return (rest if exchange == "RSA" else f"{exchange}_{rest}").replace("_", "-")


def check_files(loaded: LoadedConfig, now: float) -> tuple[Notice, ...]:
    """Read every file that TLS needs, try the names of ciphers, and say what the operator should know.

    Args:
        loaded: the configuration.
        now: seconds since the Unix epoch.

    Raises:
        ConfigError: one cannot be used.
    """
    if any(collector.protocol == "tls" and collector.tls is None for collector in loaded.config.collectors):
        _check_address(loaded)
    api = loaded.config.api_server
    try:
        if api.tls != "none" and api.endpoint is not None:
            check_ciphers(api_ciphers(api))
    except ValueError as exc:
        raise loaded.located(ConfigError(str(exc), path="apiServer.tlsCipherSuites")) from exc
    notices = []
    for files in _files(loaded.config):
        try:
            tls = server_tls(files, read_files(files), now)
        except ConfigError as exc:
            raise loaded.located(exc) from exc
        for path, problem in tls.remarks:
            place = loaded.located(ConfigError(problem, path=path))
            notices.append(Notice(severity="warning", problem=problem, path=path, line=place.line, source=place.source))
    return tuple(notices)


def _check_address(loaded: LoadedConfig) -> None:
    address = loaded.config.flow_aggregator_address
    try:
        if address:
            subject_alternative_name(address)
    except ValueError as exc:
        raise loaded.located(ConfigError(str(exc), path="flowAggregatorAddress")) from exc


def _files(config: Config) -> Iterator[TlsFiles]:
    for index, collector in enumerate(config.collectors):
        if collector.tls is not None:
            yield collector_files(collector.tls, index)
    api = api_files(config.api_server)
    if api is not None and config.api_server.endpoint is not None:
        yield api
