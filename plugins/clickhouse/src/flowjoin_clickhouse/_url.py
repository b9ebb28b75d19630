"""Where ``databaseURL`` leads; pure.

Antrea's URLs name ClickHouse's native protocol. This exporter speaks HTTP, so ``tcp`` and ``tls`` become ``http`` and
``https`` of the same host: the standard ports have their counterparts, any other needs ``httpPort``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

__all__ = ["Destination", "EmbeddedDestination", "HttpDestination", "parse_database_url"]

_HTTP_PORTS: Final = {"tcp": 8123, "http": 8123, "tls": 8443, "https": 8443}
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
    except ValueError as exc:
        raise ValueError(f"failed to parse ClickHouse database URL: {exc}: {url!r}") from None
    if not parts.scheme or "://" not in url:
        hint = "write tcp://HOST:9000, http://HOST:8123, https://HOST:8443 or chdb:///PATH"
        raise ValueError(f"failed to parse ClickHouse database URL: {url!r} has no scheme; {hint}")
    if parts.scheme == "chdb":
        return _embedded(url, parts)
    if parts.scheme not in _HTTP_PORTS:
        raise ValueError(f"connection over {parts.scheme} transport protocol is not supported")
    if parts.path or parts.query or parts.fragment or parts.username is not None or parts.password is not None:
        # the URL is not repeated as it is: what stands before the @ is a password
        shown = url if "@" not in url else f"{parts.scheme}://***@{url.rpartition('@')[2]}"
        raise ValueError(
            f"invalid ClickHouse database URL '{shown}': path, query string or user info should not be set"
        )
    if not parts.hostname:
        raise ValueError(f"failed to parse ClickHouse database URL: {url!r} has no host")
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
        raise ValueError(f"invalid ClickHouse database URL '{url}': write chdb:///PATH or chdb://memory")
    if parts.netloc == "memory":
        return EmbeddedDestination(path=None)
    if not parts.path.strip("/"):
        raise ValueError(f"invalid ClickHouse database URL '{url}': name a directory of its own, as chdb:///PATH")
    return EmbeddedDestination(path=parts.path)
