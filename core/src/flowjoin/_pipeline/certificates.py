"""Where the TLS of a run comes from: files, or an authority of our own that a cluster or the state directory keeps."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import trio

from flowjoin._certificates.authority import Authority, DirectoryStore, open_authority
from flowjoin._certificates.configured import api_ciphers, api_files, api_minimum_version, collector_files
from flowjoin._certificates.directory import CertificateDirectory
from flowjoin._certificates.files import TlsSource
from flowjoin._certificates.process import open_file_tls
from flowjoin._certificates.profiles import subject_alternative_name
from flowjoin._certificates.self_signed import open_self_signed
from flowjoin._config.model import ApiServer, Collector
from flowjoin._model.errors import ConfigError
from flowjoin._pipeline.assembly import Pipeline
from flowjoin._pipeline.health import Component, HealthTable
from flowjoin._pipeline.lookups import Lookups
from flowjoin.api._cluster import CertificateStore
from flowjoin.api._types import Logger

__all__ = ["open_api_tls", "open_collector_tls", "open_own_authority"]

_NO_PLACE = (
    "tls needs certificates, and there is no state directory to keep our own in; "
    "write stateDirectory, or collectors: [{protocol: tls, tls: {certificate: FILE, key: FILE, clientCA: FILE}}]"
)


@asynccontextmanager
async def open_own_authority(pipeline: Pipeline, namespace: str) -> AsyncIterator[Authority | None]:
    """The authority, where a collector needs it: kept by the first look-up that provides a store, else on the disk.

    Raises:
        ConfigError: there is no place to keep it.
    """
    config = pipeline.config
    if all(collector.protocol != "tls" or collector.tls is not None for collector in config.collectors):
        yield None
        return
    names = [f"flow-aggregator.{namespace}.svc"]
    if config.flow_aggregator_address:
        names.append(config.flow_aggregator_address)
    slot = next((slot for slot in pipeline.lookups if CertificateStore in slot.provides), None)
    directory = pipeline.lane_maker.instances.state.directory
    store: CertificateStore
    if slot is not None:
        store = Lookups(pipeline.lookups).get(CertificateStore)  # type: ignore[type-abstract]  # a protocol's class
    elif directory is not None:
        store = DirectoryStore(CertificateDirectory(directory / "certificates"))
        names += ["localhost", "127.0.0.1", "::1", *_own_name()]
        pipeline.log.info("certificates_in_directory", path=str(directory / "certificates"))
    else:
        raise ConfigError(_NO_PLACE, path="aggregatorTransportProtocol")
    component = pipeline.health.add("core", "certificates")
    async with open_authority(
        store,
        names=list(dict.fromkeys(names)),
        log=pipeline.logs.logger(component="core", name="certificates"),
        report=partial(_tell, component),
        begin=trio.lowlevel.checkpoint if slot is None else slot.wait_tried,
    ) as authority:
        yield authority


@asynccontextmanager
async def open_collector_tls(
    pipeline: Pipeline, collector: Collector, index: int, authority: Authority | None, log: Logger
) -> AsyncIterator[TlsSource | None]:
    """The TLS of a collector; None for one without.

    Raises:
        ConfigError: its files cannot be used.
    """
    if collector.protocol != "tls":
        yield None
    elif collector.tls is None:
        yield authority
    else:
        component = pipeline.health.add("collectors", f"tls {collector.address}")
        files = collector_files(collector.tls, index)
        async with open_file_tls(files, log=log, report=partial(_tell, component)) as tls:
            yield tls


@asynccontextmanager
async def open_api_tls(settings: ApiServer, health: HealthTable, log: Logger) -> AsyncIterator[TlsSource | None]:
    """The TLS of the HTTP server; None where it has none.

    Raises:
        ConfigError: its files or ciphers cannot be used.
    """
    files = api_files(settings)
    if files is not None:
        component = health.add("core", "api_certificate")
        async with open_file_tls(files, log=log, report=partial(_tell, component)) as tls:
            yield tls
    elif settings.tls == "selfSigned":
        names = list(dict.fromkeys(["localhost", "127.0.0.1", "::1", *_own_name()]))
        opening = open_self_signed(
            names, minimum_version=api_minimum_version(settings), ciphers=api_ciphers(settings), log=log
        )
        async with AsyncExitStack() as stack:
            try:
                made = await stack.enter_async_context(opening)
            except ValueError as exc:
                raise ConfigError(str(exc), path="apiServer.tlsCipherSuites") from exc
            yield made
    else:
        yield None


def _own_name() -> list[str]:
    name = socket.gethostname()
    try:
        subject_alternative_name(name)
    except ValueError:
        return []
    return [name]


def _tell(component: Component, problem: Exception | None) -> None:
    if problem is None:
        component.recovered()
    else:
        component.failed(problem)
