"""The TLS side of a collector, from files that may change while we run."""

from __future__ import annotations

import ssl

from flowjoin.api import ElementRegistry, tls
from flowjoin_ipfix._config import IpfixConfig, TlsConfig

__all__ = ["check", "client_context"]

_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """A context that verifies the collector and shows our certificate; reads files.

    Raises:
        ConfigError: a file cannot be read or is not what it should be.
    """
    context = tls.client_context(ca=config.ca, certificate=config.certificate, key=config.key)
    context.minimum_version = _VERSIONS[config.min_version]
    if config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def check(config: IpfixConfig, _registry: ElementRegistry) -> None:
    """What can be known before anything connects.

    Raises:
        ConfigError: a file of ``tls`` is not what it should be.
    """
    if config.protocol == "tls":
        client_context(config.tls or TlsConfig())
