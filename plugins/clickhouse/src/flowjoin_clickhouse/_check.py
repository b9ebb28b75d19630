"""What can be known to be wrong before anything connects: names of elements, the engine, files."""

from __future__ import annotations

import importlib.util
import ssl
from pathlib import Path

from flowjoin.api import ConfigError, ElementRegistry
from flowjoin_clickhouse._columns import refuse_unknown_elements
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
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca is not None:
        try:
            context.load_verify_locations(tls.ca)
        except ssl.SSLError as exc:
            problem = f"failed to add the custom CA certificate: {tls.ca} is no PEM file of certificates"
            raise ConfigError(problem, path="tls.ca") from exc
        except OSError as exc:
            problem = f"error when reading custom CA certificate: {tls.ca}: {exc.strerror}; name a PEM file"
            raise ConfigError(problem, path="tls.ca") from exc
    if tls.certificate is None:
        return
    try:
        # A password is given so that OpenSSL does not ask for one at the terminal.
        context.load_cert_chain(tls.certificate, tls.key, password="")
    except (ssl.SSLError, ValueError) as exc:
        files = tls.certificate if tls.key is None else f"{tls.certificate} and {tls.key}"
        problem = f"{files} hold no certificate with its unencrypted key; give both as PEM"
        raise ConfigError(problem, path="tls.certificate") from exc
    except OSError as exc:
        is_there = tls.certificate.is_file()
        file, path = (tls.key, "tls.key") if is_there and tls.key is not None else (tls.certificate, "tls.certificate")
        raise ConfigError(f"{file} cannot be read: {exc.strerror}; name a PEM file", path=path) from exc
