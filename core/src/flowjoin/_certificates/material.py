"""What a TLS server shows and trusts, as PEM octets; what is wrong with it, as sentences. Pure.

A fault is what no handshake could survive: it is refused. A remark is what some peers will mind, or all of them
from a certain day on: that must not keep a process from starting which has other work, and files are read again.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

__all__ = ["Examined", "MaterialError", "Part", "TlsMaterial", "examine"]

Part: TypeAlias = Literal["certificate", "key", "client_ca"]

_SOON: Final = datetime.timedelta(days=7)
_LABEL: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """PEM octets.

    Attributes:
        certificate: the server's own, then the chain above it.
        key: of the first certificate, not encrypted.
        client_ca: authorities whose certificates clients must show; None asks clients for none.
    """

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What is known about material that can be used.

    Attributes:
        expires: when the first thing expires without which a handshake fails; seconds since the Unix epoch.
        remarks: what the operator should know: the part, and a sentence that follows its file's name.
    """

    expires: float
    remarks: tuple[tuple[Part, str], ...] = ()


class MaterialError(Exception):
    """The material cannot be used.

    Attributes:
        part: the one at fault.
        problem: a sentence that follows its file's name.
    """

    def __init__(self, part: Part, problem: str) -> None:
        super().__init__(f"{part} {problem}")
        self.part = part
        self.problem = problem


def examine(material: TlsMaterial, now: datetime.datetime) -> Examined:
    """Read everything and see whether it fits together.

    Raises:
        MaterialError: no handshake could succeed.
    """
    chain = _certificates(material.certificate, "certificate")
    own = chain[0]
    if _public_octets(_key(material.key)) != _public_octets(own):
        raise MaterialError("key", "does not belong to the certificate; in a chain the server's own one comes first")
    remarks = [("certificate", remark) for remark in _validity(own, now)]
    remarks += [("certificate", remark) for remark in _purpose(own)]
    authorities = [] if material.client_ca is None else _certificates(material.client_ca, "client_ca")
    latest = max(authorities, key=lambda each: each.not_valid_after_utc, default=None)
    ends = [own.not_valid_after_utc]
    if latest is not None:
        remarks += [("client_ca", remark) for remark in _validity(latest, now)]
        ends.append(latest.not_valid_after_utc)
    return Examined(expires=min(ends).timestamp(), remarks=tuple(remarks))  # type: ignore[arg-type]  # mypy widens the part


def _certificates(octets: bytes, part: Part) -> list[x509.Certificate]:
    labels = [label.decode() for label in _LABEL.findall(octets)]
    if "CERTIFICATE" not in labels:
        found = f"a {labels[0].lower()}" if labels else "no PEM"
        raise MaterialError(part, f"holds {found} and no certificate; give one that begins BEGIN CERTIFICATE")
    try:
        return x509.load_pem_x509_certificates(octets)
    except ValueError as exc:
        raise MaterialError(part, "holds a certificate that cannot be read; it is cut or changed") from exc


def _key(octets: bytes) -> PrivateKeyTypes:
    labels = [label.decode() for label in _LABEL.findall(octets)]
    if not any(label.endswith("PRIVATE KEY") for label in labels):
        found = f"a {labels[0].lower()}" if labels else "no PEM"
        raise MaterialError("key", f"holds {found} and no private key; give one that begins BEGIN PRIVATE KEY")
    try:
        return load_pem_private_key(octets, password=None)
    except TypeError as exc:  # what the library raises for an encrypted one
        problem = (
            "is encrypted, and nobody is there to type its password; write it again with openssl pkey -in OLD -out NEW"
        )
        raise MaterialError("key", problem) from exc
    except ValueError as exc:
        raise MaterialError("key", "holds a private key that cannot be read; it is cut or changed") from exc
    except Exception as exc:
        raise MaterialError("key", f"holds a private key of a kind that TLS does not use ({exc})") from exc


def _public_octets(holder: PrivateKeyTypes | x509.Certificate) -> bytes:
    return holder.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _validity(certificate: x509.Certificate, now: datetime.datetime) -> Iterator[str]:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now >= ends:
        yield f"expired on {_date(ends)}, and who verifies it refuses it; put a new one in its place"
    elif now < begins:
        yield f"is not valid before {_date(begins)}; look at this machine's clock, or wait"
    elif ends - now < _SOON:
        yield f"expires on {_date(ends)}; put a new one in its place before"


def _purpose(certificate: x509.Certificate) -> Iterator[str]:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(usage):
        yield "is not for servers (extended key usage), and who verifies it refuses it; make one with serverAuth"


def _date(when: datetime.datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"
