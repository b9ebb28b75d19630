"""The files of a TLS client: one reading of them, and one sentence for each way in which they are wrong.

For exporters and whoever else connects over TLS. A client library that takes names of files and no context is given
files that ``client_context`` took before it: its own words for a bad file name neither the key nor the file.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from flowjoin._model.errors import ConfigError

__all__ = ["client_context"]


def client_context(
    *, ca: Path | None = None, certificate: Path | None = None, key: Path | None = None, path: str = "tls"
) -> ssl.SSLContext:
    """A context that verifies the server, name and all, and shows our certificate; reads files, asks nobody anything.

    Args:
        ca: PEM file of the authorities to trust, instead of the system's.
        certificate: PEM file of our certificate and its chain.
        key: PEM file of its key; None where the certificate's file holds it.
        path: of the configuration's section, whose keys ``ca``, ``certificate`` and ``key`` these are; empty where they
            are the entry's own.

    Raises:
        ConfigError: a file cannot be read, or is not what belongs there.
    """
    prefix = f"{path}." if path else ""
    context = ssl.create_default_context() if ca is None else _trusting(ca, f"{prefix}ca")
    if certificate is not None:
        _load_own(context, certificate, key, prefix)
    return context


def _trusting(ca: Path, path: str) -> ssl.SSLContext:
    _refuse_unreadable(ca, path)
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as exc:
        raise _unusable(f"{ca}", _cause(exc, "it holds no certificate"), path) from exc


def _load_own(context: ssl.SSLContext, certificate: Path, key: Path | None, prefix: str) -> None:
    key_file, key_path = certificate, f"{prefix}certificate"
    _refuse_unreadable(certificate, key_path)
    if key is not None:
        key_file, key_path = key, f"{prefix}key"
        _refuse_unreadable(key, key_path)
    is_encrypted = False

    def password() -> str:  # without such a function the library would ask for one at the terminal
        nonlocal is_encrypted
        is_encrypted = True
        return ""

    try:
        context.load_cert_chain(certificate, key, password)
    except OSError as exc:
        if is_encrypted:
            raise _unusable(f"{key_file}", "its key is encrypted and must not be", key_path) from exc
        if isinstance(exc, ssl.SSLError) and exc.reason == "KEY_VALUES_MISMATCH":
            raise _unusable(f"{key_file}", f"its key is not that of {certificate}", key_path) from exc
        files = f"{certificate}" if key is None else f"{certificate} with {key}"
        raise _unusable(files, _cause(exc, "there is no certificate with its key"), f"{prefix}certificate") from exc


def _refuse_unreadable(file: Path, path: str) -> None:
    try:
        with file.open("rb") as opened:
            opened.read(1)
    except OSError as exc:
        raise _unusable(f"{file}", _cause(exc, ""), path) from exc
    except ValueError as exc:  # a name with a NUL
        raise _unusable(f"{file!r}", str(exc), path) from exc


def _cause(exc: OSError, of_content: str) -> str:
    """What the library says of a file's content is of no use to anybody: it is said here."""
    return of_content if isinstance(exc, ssl.SSLError) else exc.strerror or str(exc)


def _unusable(files: str, cause: str, path: str) -> ConfigError:
    return ConfigError(f"{files} cannot be used: {cause}; give a PEM file that flowjoin may read", path=path)
