"""The TLS side of a collector, from files that may change while we run."""

from __future__ import annotations

import ssl
from pathlib import Path

from flowjoin_ipfix._config import TlsConfig

__all__ = ["client_context"]

_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """A context that verifies the collector and shows our certificate; reads files.

    Raises:
        ValueError: a file cannot be read or is not what it should be; the sentence names it.
    """
    if config.ca is not None:
        _readable("tls.ca", config.ca)
    try:
        context = ssl.create_default_context(cafile=config.ca)
    except ssl.SSLError as exc:
        raise ValueError(f"tls.ca: {config.ca} cannot be used: it holds no certificate in PEM") from exc
    context.minimum_version = _VERSIONS[config.min_version]
    if config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.certificate is not None and config.key is not None:
        _readable("tls.certificate", config.certificate)
        _readable("tls.key", config.key)
        _load_own(context, config.certificate, config.key)
    return context


def _load_own(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    is_encrypted = False

    def password() -> str:  # without such a function the library would ask for one at the terminal
        nonlocal is_encrypted
        is_encrypted = True
        return ""

    try:
        context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as exc:
        if is_encrypted:
            raise ValueError(f"tls.key: {key} cannot be used: it is encrypted; write it without a password") from exc
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"tls.key: {key} cannot be used: it is not the key of {certificate}") from exc
        raise ValueError(
            f"tls.certificate: {certificate} with {key} cannot be used: one of them is not the PEM that belongs there"
        ) from exc


def _readable(key: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as exc:
        raise ValueError(f"{key}: {path} cannot be used: {exc.strerror or exc}") from exc
