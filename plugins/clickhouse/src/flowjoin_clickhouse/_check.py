"""What can be known to be wrong before anything connects: names of elements, the engine, files."""

from __future__ import annotations

import importlib.util
import ssl
from pathlib import Path

from flowjoin.api import ConfigError, ElementRegistry
from flowjoin.api.lines import refuse_unknown_elements
from flowjoin.api.tls import client_context
from flowjoin_clickhouse._config import ClickHouseConfig, TlsConfig
from flowjoin_clickhouse._url import EmbeddedDestination

__all__ = ["check", "refuse_bad_files", "refuse_missing_engine"]


def check(config: ClickHouseConfig, registry: ElementRegistry) -> None:
    """See to all of it.

    Raises:
        ConfigError: an element is unknown, the embedded engine is missing or has no directory, or a file of ``tls``
            is not what it should be.
    """
    refuse_unknown_elements(config.elements, registry)
    refuse_missing_engine(config)
    destination = config.destination
    if isinstance(destination, EmbeddedDestination):
        if destination.path is not None and Path(destination.path).exists() and not Path(destination.path).is_dir():
            raise ConfigError(f"{destination} names a file; write chdb:///PATH of a directory", path="databaseURL")
    elif destination.is_tls:
        refuse_bad_files(config.tls)


def refuse_missing_engine(config: ClickHouseConfig) -> None:
    """See to it that the embedded engine is installed where the URL asks for it.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(config.destination, EmbeddedDestination) and importlib.util.find_spec("chdb") is None:
        problem = "chdb:// needs the embedded engine: pip install 'flowjoin-clickhouse[embedded]'"
        raise ConfigError(problem, path="databaseURL")


def refuse_bad_files(tls: TlsConfig) -> None:
    """See to it that each file is there, and holds what it should.

    Raises:
        ConfigError: one does not.
    """
    try:
        client_context(ca=tls.ca, certificate=tls.certificate, key=tls.key)
    except ConfigError as exc:
        if exc.path != "tls.ca":
            raise
        is_read = isinstance(exc.__cause__, ssl.SSLError)
        problem = "failed to add the custom CA certificate" if is_read else "error when reading custom CA certificate"
        raise ConfigError(f"{problem}: {exc.problem}", path=exc.path) from exc  # as Antrea says it
