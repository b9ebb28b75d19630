"""TLS of a server that nobody was told about: an authority of its own, made in memory and forgotten."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from flowjoin._certificates.files import ServerTls
from flowjoin._certificates.material import TlsMaterial, examine
from flowjoin._certificates.profiles import make_authority, make_server
from flowjoin._certificates.server_context import server_context

__all__ = ["SelfSigned", "self_signed"]


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """A ``TlsSource`` that never changes."""

    current: ServerTls

    async def wait_ready(self) -> None:
        """It is."""


def self_signed(names: Sequence[str], now: float, *, minimum_version: ssl.TLSVersion, ciphers: str) -> SelfSigned:
    """Make it; takes some tenths of a second.

    Raises:
        ValueError: no cipher of that name.
    """
    when = datetime.datetime.fromtimestamp(now, datetime.UTC)
    authority = make_authority("flowjoin-self-signed", when)
    pair = make_server(authority, "flowjoin", when, names=names)
    material = TlsMaterial(certificate=pair.certificate + authority.certificate, key=pair.key)
    context = server_context(material, minimum_version=minimum_version, ciphers=ciphers)
    return SelfSigned(ServerTls(context=context, expires=examine(material, when).expires))
