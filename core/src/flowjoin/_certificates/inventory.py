"""What certificates lie in a directory, and what is wrong with each; blocking."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flowjoin._certificates.material import MaterialError, TlsMaterial, examine

__all__ = ["Held", "read_directory"]

_MAX_OCTETS: Final = 1024 * 1024
_SOON: Final = datetime.timedelta(days=30)
_HARDLY: Final = datetime.timedelta(days=1)  # what is made just after its authority, for as long


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One certificate.

    Attributes:
        kind: ``authority``, ``server``, ``client``, ``server and client``, or empty.
        name: its common name.
        names: alternative names.
        ends: when, RFC 3339; empty where it cannot be read.
        problem: empty where there is none.
        remark: what will be wrong one day, where nothing is now.
    """

    file: str
    kind: str = ""
    name: str = ""
    names: tuple[str, ...] = ()
    ends: str = ""
    days_left: int = 0
    problem: str = ""
    remark: str = ""


def read_directory(directory: Path, now: datetime.datetime) -> tuple[Held, ...]:
    """Every ``*.crt``, by name.

    Raises:
        OSError: the directory, or a file in it, cannot be read.
    """
    paths = sorted(path for path in directory.iterdir() if path.suffix == ".crt" and path.is_file())
    authority = _certificate(directory / "ca.crt") if (directory / "ca.crt") in paths else None
    return tuple(_held(path, authority, now) for path in paths)


def _certificate(path: Path) -> x509.Certificate | None:
    with path.open("rb") as file:
        try:
            return x509.load_pem_x509_certificate(file.read(_MAX_OCTETS))
        except ValueError:
            return None


def _held(path: Path, authority: x509.Certificate | None, now: datetime.datetime) -> Held:
    certificate = _certificate(path)
    if certificate is None:
        return Held(file=path.name, problem="holds no certificate that can be read")
    ends = certificate.not_valid_after_utc
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return Held(
        file=path.name,
        kind=_kind(certificate),
        name=str(names[0].value) if names else "",
        names=_names(certificate),
        ends=f"{ends:%Y-%m-%dT%H:%M:%SZ}",
        days_left=(ends - now).days,
        problem=_problem(path, certificate, authority, now),
        remark=_remark(certificate, authority, now),
    )


def _remark(certificate: x509.Certificate, authority: x509.Certificate | None, now: datetime.datetime) -> str:
    ends = certificate.not_valid_after_utc
    if authority is not None and ends - authority.not_valid_after_utc > _HARDLY:
        return f"outlives its authority, and is taken until {authority.not_valid_after_utc:%Y-%m-%d}"
    return "ends soon" if ends - now < _SOON else ""


def _problem(
    path: Path, certificate: x509.Certificate, authority: x509.Certificate | None, now: datetime.datetime
) -> str:
    if now >= certificate.not_valid_after_utc:
        return "has expired"
    if now < certificate.not_valid_before_utc:
        return "is not valid yet"
    if authority is not None:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            return "is not of the authority in ca.crt"
    key = path.with_suffix(".key")
    if not key.exists():
        return ""
    if key.stat().st_mode & 0o077:
        return f"{key.name} can be read by others than its owner; chmod 600 it"
    try:
        examine(TlsMaterial(certificate=path.read_bytes(), key=key.read_bytes()), now)
    except MaterialError as exc:
        return f"{key.name if exc.part == 'key' else path.name} {exc.problem}"
    return ""


def _kind(certificate: x509.Certificate) -> str:
    try:
        if certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return "authority"
    except x509.ExtensionNotFound:
        pass
    try:
        usage = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return ""
    kinds = {ExtendedKeyUsageOID.SERVER_AUTH: "server", ExtendedKeyUsageOID.CLIENT_AUTH: "client"}
    return " and ".join(name for purpose, name in kinds.items() if purpose in usage)


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names)
