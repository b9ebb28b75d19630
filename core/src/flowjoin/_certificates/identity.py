"""Who a client is, by the certificate that TLS has verified. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["identity_of"]

_MAX_IDENTITY: Final = 255


def identity_of(certificate: Mapping[str, Any] | None) -> str | None:
    """The name in a verified certificate: its first alternative name (RFC 7011 section 11.3), else the common name.

    Args:
        certificate: in the ssl module's words, whose values are of many types: hence Any.
    """
    if certificate is None:
        return None
    for kind in ("DNS", "URI", "IP Address", "email"):
        for found, name in certificate.get("subjectAltName", ()):
            if found == kind:
                return _text(name)
    for attributes in reversed(certificate.get("subject", ())):
        for found, name in attributes:
            if found == "commonName":
                return _text(name)
    return None


def _text(name: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in name[:_MAX_IDENTITY])
