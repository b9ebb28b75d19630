"""The keys under ``exporters: [{type: clickhouse, …}]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from flowjoin.api import Bounds, ConfigError, Duration, Key, Secret
from flowjoin_clickhouse._url import Destination, EmbeddedDestination, HttpDestination, parse_database_url

__all__ = ["ClickHouseConfig", "SchemaConfig", "TlsConfig", "patience"]

_SILENCES: Final = 10  # of ``timeout``
_SERVER_NAME: Final = re.compile(r"[^\s/@:\x00-\x1f\x7f]{1,253}|[0-9a-fA-F:]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_NAME: Final = 128  # octets; escaped three to one, with "_again_…", it must be a file's name
_LONGEST_TTL: Final = 50 * 365 * 86400  # a DateTime ends in 2106: a later end would be one long ago, and delete rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS towards the server; the URL says whether there is any."""

    ca: Annotated[Path | None, "PEM file of the authorities to trust; default: the system's"] = None
    insecure_skip_verify: Annotated[bool, "accept any certificate"] = False
    server_name: Annotated[str, "the name to verify; empty: the host of databaseURL"] = ""
    certificate: Annotated[Path | None, "our certificate, PEM; without password it is what the user is known by"] = None
    key: Annotated[Path | None, "its key, PEM; default: in the same file"] = None

    def __post_init__(self) -> None:
        if self.server_name and not _SERVER_NAME.fullmatch(self.server_name):
            problem = f"{self.server_name[:80]!r} is no name; write one such as ch.example"
            raise ConfigError(problem, path="serverName")
        if self.key is not None and self.certificate is None:
            raise ConfigError("is given without tls.certificate; name the certificate's PEM file too", path="key")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConfig:
    """What ``createSchema`` makes."""

    ttl: Annotated[
        Duration, Bounds(0, _LONGEST_TTL), "rows are deleted so long after their insertion; 0 keeps them"
    ] = Duration(2_592_000.0)
    partition_by: Annotated[Literal["day", "month", "none"], "of flowEndSeconds"] = "day"
    views: Annotated[bool, "Antrea's three materialised views, and one with a row a minute for dashboards"] = True
    deduplication_window: Annotated[
        int, Bounds(0, 1_000_000), "inserts that the table and each view remember, so that a repeated one is none"
    ] = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickHouseConfig:
    """Which table rows go to, and how."""

    database_url: Annotated[str, Key("databaseURL"), "tcp, tls, http or https URL; chdb:///PATH; chdb://memory"]
    http_port: Annotated[int | None, Bounds(1, 65535), "the HTTP port of a server that a tcp or tls URL names"] = None
    database: Annotated[str, "the database"] = "default"
    table: Annotated[str, "the table"] = "flows"
    username: Annotated[Secret | None, "default: the user default"] = None
    password: Annotated[Secret | None, "default: none"] = None
    tls: Annotated[TlsConfig, "TLS towards the server"] = TlsConfig()
    compress: Annotated[bool, "LZ4 on the way to the server"] = True
    commit_interval: Annotated[Duration, Bounds(0), "how long rows gather before they are inserted"] = Duration(8.0)
    max_rows: Annotated[int, Bounds(1, 1_000_000), "rows of one insert, however short the time"] = 50_000
    connect_timeout: Annotated[Duration, Bounds(1, 3600), "how long a connection may take"] = Duration(10.0)
    timeout: Annotated[Duration, Bounds(1, 86400), "how long the server may be silent during an insert"] = Duration(
        60.0
    )
    create_schema: Annotated[
        bool | None, "make the database, the table, its views and missing columns; default: only for chdb"
    ] = None
    schema: Annotated[SchemaConfig, "what createSchema makes"] = SchemaConfig()
    elements: Annotated[tuple[str, ...], "Information Elements that are columns beside Antrea's"] = ()

    def __post_init__(self) -> None:
        try:
            destination = self.destination
        except ValueError as exc:
            raise ConfigError(str(exc), path="databaseURL") from exc
        for key, name in (("database", self.database), ("table", self.table)):
            if not name or len(name.encode()) > _LONGEST_NAME or _CONTROL.search(name):
                problem = f"{name[:80]!r} is no name; write one such as flows, of 1 to {_LONGEST_NAME} octets"
                raise ConfigError(problem, path=key)
        if self.tls.certificate is not None and not (isinstance(destination, HttpDestination) and destination.is_tls):
            problem = f"is for a TLS connection, and {destination} is none; write https://HOST:8443"
            raise ConfigError(problem, path="tls.certificate")

    @property
    def destination(self) -> Destination:
        """Where the URL leads."""
        return parse_database_url(self.database_url, self.http_port)

    @property
    def may_create(self) -> bool:
        """Whether what is missing is made."""
        if self.create_schema is None:
            return isinstance(self.destination, EmbeddedDestination)
        return self.create_schema


def patience(config: ClickHouseConfig) -> float:
    """For one request: a server that tells of its progress, and so is never silent, may work on it for a while."""
    return config.connect_timeout + _SILENCES * config.timeout
