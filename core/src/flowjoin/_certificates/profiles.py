"""The three kinds of certificate that flowjoin makes: of an authority, of a server, of a client (RFC 5280).

Pure but for randomness: keys come from the operating system's generator inside the library. Making a key takes a
tenth of a second and more, so callers that serve others do it in a thread.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = [
    "BACKDATED",
    "VALIDITY",
    "Pair",
    "can_issue",
    "make_authority",
    "make_client",
    "make_server",
    "subject_alternative_name",
]

VALIDITY: Final = datetime.timedelta(days=365)
BACKDATED: Final = datetime.timedelta(hours=1)  # for clocks that are slow
_KEY_BITS: Final = 2048
_SERIAL_OCTETS: Final = 16
_MAX_COMMON_NAME: Final = 64  # RFC 5280 appendix A.1: ub-common-name

Entropy = Callable[[int], bytes]
# An authority need not be of our making: who has one puts it where ours is kept.
IssuingKey: TypeAlias = (
    rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
)
_ISSUING: Final = (
    rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


def make_authority(
    name: str,
    now: datetime.datetime,
    *,
    validity: datetime.timedelta = VALIDITY,
    entropy: Entropy = os.urandom,
) -> Pair:
    """A certificate authority that nobody stands above."""
    key = _new_key()
    builder = _builder(name, key, now, validity, entropy).issuer_name(_name(name))
    # keyCertSign for what it issues; digitalSignature and both purposes as Antrea's own have them.
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, SHA256()), key)


def make_server(
    authority: Pair,
    name: str,
    now: datetime.datetime,
    *,
    names: Sequence[str],
    validity: datetime.timedelta = VALIDITY,
    entropy: Entropy = os.urandom,
) -> Pair:
    """A certificate for a server of these DNS names and addresses.

    Raises:
        ValueError: one of the names is neither; the text says which.
    """
    alternatives = x509.SubjectAlternativeName([subject_alternative_name(each) for each in names])
    return _issue(authority, name, now, validity, entropy, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)


def make_client(
    authority: Pair,
    name: str,
    now: datetime.datetime,
    *,
    validity: datetime.timedelta = VALIDITY,
    entropy: Entropy = os.urandom,
) -> Pair:
    """A certificate for a client."""
    return _issue(authority, name, now, validity, entropy, ExtendedKeyUsageOID.CLIENT_AUTH, None)


def can_issue(key: PrivateKeyTypes) -> bool:
    """Whether certificates can be signed with it."""
    return isinstance(key, _ISSUING)


def subject_alternative_name(text: str) -> x509.GeneralName:
    """An address where it is one, else a DNS name.

    Raises:
        ValueError: it is neither.
    """
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    labels = text.removeprefix("*.").rstrip(".").split(".")
    if len(text) > 253 or not all(_is_label(label) for label in labels):
        raise ValueError(f'"{text[:100]}" is neither an address nor a DNS name')
    return x509.DNSName(text)


def _is_label(label: str) -> bool:
    allowed = label.isascii() and label.replace("-", "").replace("_", "").isalnum()
    return allowed and len(label) <= 63 and not label.startswith("-") and not label.endswith("-")


def _issue(
    authority: Pair,
    name: str,
    now: datetime.datetime,
    validity: datetime.timedelta,
    entropy: Entropy,
    purpose: x509.ObjectIdentifier,
    alternatives: x509.SubjectAlternativeName | None,
) -> Pair:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = load_pem_private_key(authority.key, password=None)
    assert isinstance(issuer_key, _ISSUING), "no other is taken for an authority"
    key = _new_key()
    builder = _builder(name, key, now, validity, entropy).issuer_name(issuer.subject)
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    builder = (
        builder.add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    # EdDSA has its own digest (RFC 8410 section 3).
    is_edwards = isinstance(issuer_key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey)
    return _pair(builder.sign(issuer_key, None if is_edwards else SHA256()), key)


def _builder(
    name: str, key: rsa.RSAPrivateKey, now: datetime.datetime, validity: datetime.timedelta, entropy: Entropy
) -> x509.CertificateBuilder:
    begins = now - BACKDATED
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(int.from_bytes(entropy(_SERIAL_OCTETS)) or 1)
        .not_valid_before(begins)
        .not_valid_after(begins + validity)
    )


def _name(common_name: str) -> x509.Name:
    if not 0 < len(common_name) <= _MAX_COMMON_NAME:
        raise ValueError(f'"{common_name[:100]}" must have 1 to {_MAX_COMMON_NAME} characters')
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)


def _pair(certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> Pair:
    # PKCS #1, RSA PRIVATE KEY: what Antrea's agents are used to
    octets = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return Pair(certificate=certificate.public_bytes(Encoding.PEM), key=octets)
