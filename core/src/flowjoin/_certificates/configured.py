"""What a configuration says about TLS, and whether the files it names can be used."""

from __future__ import annotations

from collections.abc import Iterator

from flowjoin._certificates.files import TlsFiles, read_files, server_tls
from flowjoin._certificates.profiles import subject_alternative_name
from flowjoin._certificates.server_context import VERSIONS
from flowjoin._config.load import LoadedConfig, Notice
from flowjoin._config.model import CollectorTls, Config
from flowjoin._model.errors import ConfigError

__all__ = ["check_files", "collector_files"]


def collector_files(tls: CollectorTls, index: int) -> TlsFiles:
    """The files of a collector."""
    return TlsFiles(
        certificate=tls.certificate,
        key=tls.key,
        client_ca=tls.client_ca,
        minimum_version=VERSIONS[tls.min_version],
        path=f"collectors[{index}].tls",
    )


def check_files(loaded: LoadedConfig, now: float) -> tuple[Notice, ...]:
    """Read every file that TLS needs, and say what the operator should know.

    Args:
        loaded: the configuration.
        now: seconds since the Unix epoch.

    Raises:
        ConfigError: one cannot be used.
    """
    if any(collector.protocol == "tls" and collector.tls is None for collector in loaded.config.collectors):
        _check_address(loaded)
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
