"""TLS of a server, from PEM octets in memory.

The ssl module reads certificate and key from a file alone. They are given to it in one that lies in memory, so that
what was examined is what is used, and a key that was never on a disk does not come there.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from flowjoin._certificates.material import MaterialError, TlsMaterial

__all__ = ["VERSIONS", "check_ciphers", "server_context"]

VERSIONS: Final = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


def server_context(
    material: TlsMaterial,
    *,
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
    ciphers: str = "",
    may_be_nobody: bool = False,
) -> ssl.SSLContext:
    """What handshakes are made with.

    Args:
        material: examined.
        minimum_version: the oldest version that is spoken.
        ciphers: of TLS 1.2, in OpenSSL's words; empty leaves the library's choice.
        may_be_nobody: let clients in without a certificate too; one that is shown must be good.

    Raises:
        MaterialError: OpenSSL does not take it.
        ValueError: no cipher of that name.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = minimum_version
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # TLS 1.3 sends session tickets after the handshake. An exporting process that only writes never reads them, and
    # when it closes with octets unread its system resets the connection: what it sent last would be lost.
    context.num_tickets = 0
    _set_ciphers(context, ciphers)
    try:
        with _as_file(material.certificate + b"\n" + material.key) as path:
            # Without a password function the library would ask for one at the terminal.
            context.load_cert_chain(path, password=lambda: "")
    except (ssl.SSLError, OSError) as exc:
        raise MaterialError("certificate", f"is not taken by OpenSSL: {_words(exc)}") from exc
    if material.client_ca is not None:
        try:
            context.load_verify_locations(cadata=material.client_ca.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as exc:
            raise MaterialError("client_ca", f"is not taken by OpenSSL: {_words(exc)}") from exc
        # What the operator trusts need not be the top of its chain: cert-manager's Secrets hold the issuer alone.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # In a server OpenSSL asks for a certificate that is good for a client (extended key usage).
        context.verify_mode = ssl.CERT_OPTIONAL if may_be_nobody else ssl.CERT_REQUIRED
    return context


def check_ciphers(ciphers: str) -> None:
    """See to it that there are some of these names.

    Raises:
        ValueError: there are none.
    """
    _set_ciphers(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ciphers)


def _set_ciphers(context: ssl.SSLContext, ciphers: str) -> None:
    if not ciphers:
        return
    try:
        context.set_ciphers(ciphers)
    except ssl.SSLError as exc:
        problem = f'OpenSSL has no cipher in "{ciphers[:100]}"; write one such as ECDHE-RSA-AES128-GCM-SHA256'
        raise ValueError(problem) from exc


def _words(exc: Exception) -> str:
    reason = exc.reason if isinstance(exc, ssl.SSLError) else None
    return reason.lower().replace("_", " ") if reason else str(exc)


@contextmanager
def _as_file(octets: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("flowjoin-tls", os.MFD_CLOEXEC)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(octets)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile(prefix="flowjoin-tls-") as file:  # mode 0600
            file.write(octets)
            file.flush()
            yield file.name
