"""When a certificate is made anew, and what it is called; pure. The rules are Antrea's, but for fast clocks."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flowjoin._certificates.profiles import Pair, can_issue

__all__ = ["RENEWED_BEFORE", "authority_problem", "client_problem", "name_of", "pair_of"]

RENEWED_BEFORE: Final = datetime.timedelta(days=90)
_OURS: Final = "flow-aggregator-"
# A clock that shows an earlier day, as of a machine that has none of its own, cannot say what is of the future.
_EARLIEST: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def pair_of(data: Mapping[str, bytes] | None) -> Pair | None:
    """Certificate and key of a stored object; None where one is missing or empty."""
    if data is None or not data.get("tls.crt") or not data.get("tls.key"):
        return None
    return Pair(certificate=data["tls.crt"], key=data["tls.key"])


def authority_problem(
    held: Pair | None, now: datetime.datetime, *, renewed_before: datetime.timedelta = RENEWED_BEFORE
) -> str | None:
    """Why the authority must be made anew; None while it need not."""
    problem, certificate = _common(held, now, renewed_before)
    if certificate is None:
        return problem
    try:
        is_authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    if not is_authority:
        return "it is no authority"
    assert held is not None, "it has a certificate"
    return None if can_issue(load_pem_private_key(held.key, password=None)) else "its key can issue nothing"


def client_problem(held: Pair | None, authority: Pair, now: datetime.datetime) -> str | None:
    """Why the client's certificate must be made anew; None while it need not."""
    problem, certificate = _common(held, now, RENEWED_BEFORE)
    if certificate is None:
        return problem
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    except (ValueError, TypeError, InvalidSignature):
        return "it is not of the present authority"
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return "it is not for clients"
    return None if ExtendedKeyUsageOID.CLIENT_AUTH in usage else "it is not for clients"


def name_of(kind: str, now: datetime.datetime) -> str:
    """The common name of a new certificate: ``flow-aggregator-ca@1790000000``."""
    return f"{_OURS}{kind}@{int(now.timestamp())}"


def _common(
    held: Pair | None, now: datetime.datetime, renewed_before: datetime.timedelta
) -> tuple[str | None, x509.Certificate | None]:
    """What is wrong, or the certificate."""
    if held is None:
        return "there is none", None
    try:
        certificate = x509.load_pem_x509_certificate(held.certificate)
        key = load_pem_private_key(held.key, password=None)
    except (ValueError, TypeError):
        return "it cannot be read", None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        return "its key is another's", None
    if certificate.not_valid_after_utc - now < renewed_before:
        return f"it ends on {certificate.not_valid_after_utc:%Y-%m-%d}", None
    begins = certificate.not_valid_before_utc
    if _EARLIEST < now < begins and _is_ours(certificate):
        return f"it is not valid before {begins:%Y-%m-%dT%H:%M:%SZ}, for a clock was fast when it was made", None
    return None, certificate


def _is_ours(certificate: x509.Certificate) -> bool:
    """Whether it has a name that ``name_of`` gives; others' are theirs to put right."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return any(str(name.value).startswith(_OURS) and "@" in str(name.value) for name in names)
