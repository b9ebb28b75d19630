"""Certificates in a directory: the store where there is no cluster. Blocking; its callers use threads.

``ca.crt`` and ``ca.key`` are the authority, ``client.crt`` and ``client.key`` what exporting processes show. Keys have
mode 0600, and a file changes at once or not at all. One process writes at a time, which the state directory's lock sees
to.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flowjoin._certificates.profiles import Pair
from flowjoin.api._cluster import CertificateObject, StoredCertificate

__all__ = ["CertificateDirectory", "write_pair"]

_FILES: Final = {
    CertificateObject.AUTHORITY: {"tls.crt": "ca.crt", "tls.key": "ca.key"},
    CertificateObject.CLIENT: {"tls.crt": "client.crt", "tls.key": "client.key"},
    CertificateObject.AUTHORITY_CERTIFICATE: {"ca.crt": "ca.crt"},
}


class CertificateDirectory:
    """Made when something is written."""

    def __init__(self, path: Path) -> None:
        """Nothing is read or made yet."""
        self.path = path

    def get(self, name: CertificateObject) -> StoredCertificate | None:
        """The object; None when one of its files is not there.

        Raises:
            OSError: it cannot be read.
        """
        try:
            data = {key: (self.path / file).read_bytes() for key, file in _FILES[name].items()}
        except FileNotFoundError:
            return None
        return StoredCertificate(data=data, version=_version(data))

    def put(self, name: CertificateObject, data: Mapping[str, bytes], replaces: str | None) -> bool:
        """Write an object; False when it is no longer what was read.

        Raises:
            OSError: it cannot be written.
        """
        there = self.get(name)
        if (None if there is None else there.version) != replaces:
            return False
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        for key, file in _FILES[name].items():
            _write(self.path / file, data[key])
        return True


def write_pair(certificate: Path, pair: Pair, *, is_renewal: bool = False) -> None:
    """Write ``name.crt`` and ``name.key``.

    Raises:
        FileExistsError: one is there, and it is no renewal.
        OSError: they cannot be written.
    """
    key = certificate.with_suffix(".key")
    for path in (certificate, key):
        if path.exists() and not is_renewal:
            raise FileExistsError(17, "is there already", str(path))
    _write(key, pair.key)
    _write(certificate, pair.certificate)


def _write(path: Path, octets: bytes) -> None:
    mode = 0o600 if path.suffix == ".key" else 0o644
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(octets)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _version(data: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for key in sorted(data):
        digest.update(hashlib.sha256(data[key]).digest())
    return digest.hexdigest()
