"""The TLS side of a collector, from files or a look-up; both may change while we run."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowjoin.api import ClientCredentials
from flowjoin_ipfix._config import TlsConfig

__all__ = ["client_context"]

_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


def client_context(config: TlsConfig, credentials: ClientCredentials | None = None) -> ssl.SSLContext:
    """A context that verifies the collector and shows our certificate; reads files.

    Args:
        credentials: what stands in place of files.

    Raises:
        ValueError: a file cannot be read or is not what it should be; the sentence names it.
    """
    if config.ca is not None:
        _readable("tls.ca", config.ca)
    try:
        context = ssl.create_default_context(cafile=config.ca, cadata=credentials.ca if credentials else None)
    except ssl.SSLError as exc:
        place = "what was looked up" if credentials else config.ca
        raise ValueError(f"tls.ca: {place} cannot be used: it holds no certificate in PEM") from exc
    context.minimum_version = _VERSIONS[config.min_version]
    if config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credentials is not None:
        with _in_memory(f"{credentials.certificate}\n{credentials.key}") as path:
            _load_own(context, path, path)
    elif config.certificate is not None and config.key is not None:
        _readable("tls.certificate", config.certificate)
        _readable("tls.key", config.key)
        _load_own(context, config.certificate, config.key)
    return context


@contextmanager
def _in_memory(text: str) -> Iterator[Path]:
    """A file for the ssl module, which takes a certificate from nothing else; a key does not come to a disk by it."""
    octets = text.encode("ascii", "replace")
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("flowjoin-tls", os.MFD_CLOEXEC)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(octets)
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile(prefix="flowjoin-tls-") as file:  # mode 0600
            file.write(octets)
            file.flush()
            yield Path(file.name)


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
