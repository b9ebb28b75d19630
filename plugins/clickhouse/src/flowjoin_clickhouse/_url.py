"""Where ``databaseURL`` leads; pure.

Antrea's URLs name ClickHouse's native protocol. This exporter speaks HTTP, so ``tcp`` and ``tls`` become ``http`` and
``https`` of the same host: the standard ports have their counterparts, any other needs ``httpPort``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

__all__ = ["Destination", "EmbeddedDestination", "HttpDestination", "parse_database_url"]

_HTTP_PORTS: Final = {"tcp": 8123, "http": 8123, "tls": 8443, "https": 8443}
_HOST: Final = re.compile(r"[^\s\x00-\x1f\x7f\\]{1,253}")
_NATIVE_PORTS: Final = {"tcp": 9000, "tls": 9440}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpDestination:
    """A server's HTTP interface.

    Attributes:
        host: name or address, IPv6 without brackets.
        warning: what the operator should know about how the URL was understood; empty without.
    """

    host: str
    port: int
    is_tls: bool
    warning: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedDestination:
    """The engine inside this process.

    Attributes:
        path: its directory; None keeps everything in memory.
    """

    path: str | None

    def __str__(self) -> str:
        return f"chdb://{self.path or 'memory'}"


Destination: TypeAlias = HttpDestination | EmbeddedDestination


def parse_database_url(url: str, http_port: int | None = None) -> Destination:
    """Where the URL leads.

    Args:
        url: ``tcp``, ``tls``, ``http`` or ``https`` with host and port, ``chdb:///path`` or ``chdb://memory``.
        http_port: the HTTP port of a server that ``tcp`` or ``tls`` names; None takes the standard one.

    Raises:
        ValueError: it leads nowhere.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        hint = "write tcp://HOST:9000 with a port of 1 to 65535"
        raise ValueError(f"failed to parse ClickHouse database URL: {_shown(url)!r}; {hint}") from None
    if not parts.scheme or "://" not in url:
        hint = "write tcp://HOST:9000, http://HOST:8123, https://HOST:8443 or chdb:///PATH"
        raise ValueError(f"failed to parse ClickHouse database URL: {_shown(url)!r} has no scheme; {hint}")
    if parts.scheme == "chdb":
        return _embedded(url, parts)
    if parts.scheme not in _HTTP_PORTS:
        hint = "write tcp, tls, http, https or chdb"
        raise ValueError(f"connection over {parts.scheme} transport protocol is not supported; {hint}")
    if parts.path or parts.query or parts.fragment or parts.username is not None or parts.password is not None:
        problem = "path, query string or user info should not be set; write username, password and database beside it"
        raise ValueError(f"invalid ClickHouse database URL '{_shown(url)}': {problem}")
    if not parts.hostname or not _HOST.fullmatch(parts.hostname) or port == 0:
        hint = f"write {parts.scheme}://HOST:{_NATIVE_PORTS.get(parts.scheme) or _HTTP_PORTS[parts.scheme]}"
        raise ValueError(f"failed to parse ClickHouse database URL: {_shown(url)!r} has no host, or port 0; {hint}")
    if http_port not in (None, port) and parts.scheme not in _NATIVE_PORTS:
        raise ValueError(f"httpPort is for tcp and tls URLs; write {parts.scheme}://{parts.hostname}:{http_port}")
    is_tls = parts.scheme in ("tls", "https")
    standard = _HTTP_PORTS[parts.scheme]
    if parts.scheme not in _NATIVE_PORTS:
        return HttpDestination(host=parts.hostname, port=standard if port is None else port, is_tls=is_tls)
    destination = HttpDestination(host=parts.hostname, port=http_port or standard, is_tls=is_tls)
    warning = f"{url} names ClickHouse's native protocol; rows go to its HTTP interface at {destination}"
    if http_port is None and port not in (None, _NATIVE_PORTS[parts.scheme]):
        warning += "; if that is another port, write it as httpPort"
    return HttpDestination(host=destination.host, port=destination.port, is_tls=is_tls, warning=warning)


def _embedded(url: str, parts: SplitResult) -> EmbeddedDestination:
    if parts.query or parts.fragment or parts.netloc not in ("", "memory") or (parts.netloc and parts.path.strip("/")):
        raise ValueError(f"invalid ClickHouse database URL '{_shown(url)}': write chdb:///PATH or chdb://memory")
    if parts.netloc == "memory":
        return EmbeddedDestination(path=None)
    if not parts.path.strip("/"):
        raise ValueError(
            f"invalid ClickHouse database URL '{_shown(url)}': name a directory of its own, as chdb:///PATH"
        )
    return EmbeddedDestination(path=parts.path)


def _shown(url: str) -> str:
    """Without what may be a password: before an @, or in a query as of the native protocol's URLs."""
    scheme, slashes, rest = url[:200].partition("://") if "://" in url else ("", "", url[:200])
    if "@" in url and ("?" in url or "@" in scheme):
        return f"{scheme}{slashes}***" if scheme.isalnum() else "***"
    if "@" in url:
        return f"{scheme}{slashes}***@{url.rpartition('@')[2][:200]}"
    plain, question, _ = rest.partition("?")
    return f"{scheme}{slashes}{plain}?***" if question else scheme + slashes + plain
