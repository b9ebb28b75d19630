"""The TLS side of a collector, from files that may change while we run."""

from __future__ import annotations

import ssl

from flowjoin_ipfix._config import TlsConfig

__all__ = ["client_context"]

_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """A context that verifies the collector and shows our certificate; reads files.

    Raises:
        ValueError: a file cannot be read or is not what it should be; the sentence names it.
    """
    try:
        context = ssl.create_default_context(cafile=config.ca)
    except (OSError, ssl.SSLError) as exc:
        raise ValueError(f"tls.ca: {config.ca} cannot be used: {_words(exc)}") from exc
    context.minimum_version = _VERSIONS[config.min_version]
    if config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.certificate is not None:
        try:
            # Without a password function the library would ask for one at the terminal.
            context.load_cert_chain(config.certificate, config.key, password=lambda: "")
        except (OSError, ssl.SSLError) as exc:
            raise ValueError(
                f"tls.certificate and tls.key: {config.certificate} with {config.key} cannot be used: {_words(exc)}"
            ) from exc
    return context


def _words(exc: OSError) -> str:
    if isinstance(exc, ssl.SSLError):
        return exc.reason or "it holds no PEM of the kind that belongs there"
    return exc.strerror or str(exc)
