"""The keys under ``exporters: [{type: clickhouse, …}]``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from flowjoin.api import Bounds, Duration, Key, Secret
from flowjoin_clickhouse._url import Destination, EmbeddedDestination, parse_database_url

__all__ = ["ClickHouseConfig", "SchemaConfig", "TlsConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS towards the server; the URL says whether there is any."""

    ca: Annotated[Path | None, "PEM file of the authorities to trust; default: the system's"] = None
    insecure_skip_verify: Annotated[bool, "accept any certificate"] = False
    server_name: Annotated[str, "the name to verify; empty: the host of databaseURL"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConfig:
    """What ``createSchema`` makes."""

    ttl: Annotated[Duration, Bounds(0), "rows are deleted so long after their insertion; 0 keeps them"] = Duration(
        2_592_000.0
    )
    partition_by: Annotated[Literal["day", "month", "none"], "of flowEndSeconds"] = "day"
    views: Annotated[bool, "Antrea's three materialised views, and one with a row a minute for dashboards"] = True
    deduplication_window: Annotated[
        int, Bounds(0), "inserts that the table and each view remember, so that a repeated one is none"
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
        parse_database_url(self.database_url, self.http_port)
        for key, name in (("database", self.database), ("table", self.table)):
            if not name or "\0" in name:
                raise ValueError(f'"{key}" must name one')

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
