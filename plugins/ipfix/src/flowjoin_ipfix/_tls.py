"""The TLS side of a collector, from files that may change while we run, or from what a look-up gives."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowjoin.api import ClientCredentials, ConfigError, tls
from flowjoin_ipfix._config import TlsConfig

__all__ = ["client_context"]

_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


def client_context(config: TlsConfig, credentials: ClientCredentials | None = None) -> ssl.SSLContext:
    """A context that verifies the collector and shows our certificate; reads files.

    Args:
        credentials: what stands in place of files.

    Raises:
        ConfigError: a file cannot be read or is not what it should be; nor is what stands in its place.
    """
    if credentials is None:
        context = tls.client_context(ca=config.ca, certificate=config.certificate, key=config.key)
    else:
        context = _context_of(credentials)
    context.minimum_version = _VERSIONS[config.min_version]
    if config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _context_of(credentials: ClientCredentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:  # an empty text is an error here too, and no reason to trust the system's authorities
        context.load_verify_locations(cadata=credentials.ca.encode("ascii", "replace").decode("ascii"))
    except (ssl.SSLError, ValueError) as exc:
        problem = "what was looked up cannot be used: it holds no certificate"
        raise ConfigError(problem, path="tls.ca") from exc
    with _in_memory(f"{credentials.certificate}\n{credentials.key}") as path:
        try:
            # A password is given so that OpenSSL does not ask for one at the terminal.
            context.load_cert_chain(path, password="")
        except ssl.SSLError as exc:
            problem = "what was looked up cannot be used: there is no certificate with its unencrypted key"
            raise ConfigError(problem, path="tls.certificate") from exc
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
