"""The configuration as frozen values: every key but those of Antrea's sink sections and of plugins.

The documentation of each key is the string beside its type; docs/reference/configuration.md and the
JSON Schema are made from it. LIVE marks what a reload may change in a running process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from flowjoin._config.endpoint import Endpoint
from flowjoin._config.fields import LIVE, Settings
from flowjoin._model.errors import ConfigError
from flowjoin._model.information_element import (
    DataType,
    ElementId,
    EnterpriseNumber,
    InformationElement,
    MergeRule,
)
from flowjoin.api._settings import Bounds, Duration, Key, Octets, Secret

__all__ = [
    "ApiServer",
    "ApiServerTls",
    "Checkpoint",
    "Collector",
    "CollectorProtocol",
    "CollectorTls",
    "Config",
    "ElementDefinition",
    "ExporterEntry",
    "FlowStreamService",
    "Limits",
    "Log",
    "PluginEntry",
    "RecordContents",
    "Spool",
    "is_name",
]

CollectorProtocol: TypeAlias = Literal["udp", "tcp", "tls"]

DEFAULT_ENTERPRISE: Final = 32473  # RFC 5612: for elements that have no number of their own
_API_PORT: Final = 10348
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorTls:
    """TLS of a collector."""

    certificate: Annotated[Path, "the certificate, then the chain above it, PEM"]
    key: Annotated[Path, "its private key, PEM, not encrypted"]
    client_ca: Annotated[
        Path | None,
        Key("clientCA"),
        "authorities, PEM: exporters must show a certificate of one; absent: none is asked for",
    ] = None
    min_version: Annotated[Literal["VersionTLS12", "VersionTLS13"], "the oldest version that is spoken"] = (
        "VersionTLS12"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """A Collecting Process: one socket that hears original exporters."""

    protocol: Annotated[CollectorProtocol, "what IPFIX comes over"]
    address: Annotated[Endpoint, 'where it listens; "[::]" takes IPv4 too'] = Endpoint(host="::", port=4739)
    tls: Annotated[CollectorTls | None, "certificates, for protocol tls; absent: those of flowjoin's own authority"] = (
        None
    )
    reuse_port: Annotated[
        bool, "other flowjoins may listen there, too, and the system spreads senders over them (SO_REUSEPORT)"
    ] = False

    def __post_init__(self) -> None:
        if self.tls is not None and self.protocol != "tls":
            problem = f'is given and the protocol is {self.protocol}; write "protocol: tls" or leave it out'
            raise ConfigError(problem, path="tls")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spool:
    """The write-ahead spool of a lane."""

    max_size: Annotated[Octets, Bounds(1024 * 1024), "octets on disk; the oldest segment is dropped and counted"] = (
        Octets(1024 * 1024 * 1024)
    )
    max_age: Annotated[Duration, Bounds(1), "older segments are dropped and counted"] = Duration(86400.0)
    sync: Annotated[
        Literal["batch", "never"] | Duration, "when it reaches the disk: after each batch, each interval, or never"
    ] = Duration(1.0)

    def __post_init__(self) -> None:
        if isinstance(self.sync, float) and self.sync <= 0:
            raise ConfigError("must be longer than 0; write batch to sync after each batch", path="sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The flow table, kept over a restart."""

    interval: Annotated[Duration, Bounds(1), "how often it is written, beside at the end"] = Duration(300.0)
    max_age: Annotated[Duration, Bounds(1), "of an older one nothing is restored: its flows are over"] = Duration(900.0)

    def __post_init__(self) -> None:
        if self.max_age <= self.interval:
            problem = 'must be longer than "interval", or what a kill leaves is always too old'
            raise ConfigError(problem, path="maxAge")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginEntry:
    """A source, an enricher or a look-up; every other key is its plugin's."""

    type: Annotated[str, "the plugin"]
    name: Annotated[str, "of this instance, unique in its list, in logs and metrics; default: the type"] = ""
    settings: Settings

    def __post_init__(self) -> None:
        _default_name(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterEntry:
    """An exporter and its lane; every other key is its plugin's."""

    type: Annotated[str, "the plugin"]
    name: Annotated[str, "of this lane, unique, in logs, metrics and the spool's path; default: the type"] = ""
    spool: Annotated[Spool | Literal["none"], "the write-ahead spool; none keeps the lane in memory"] = Spool()
    settings: Settings

    def __post_init__(self) -> None:
        _default_name(self)


def is_name(text: str) -> bool:
    """Whether an exporter can have this name; it is also that of a directory."""
    return _NAME.fullmatch(text) is not None


def _default_name(entry: PluginEntry | ExporterEntry) -> None:
    if not entry.name:
        object.__setattr__(entry, "name", entry.type)
    for key, text in (("type", entry.type), ("name", entry.name)):
        if not _NAME.fullmatch(text):
            raise ConfigError(
                f'"{text[:80]}" must be 1 to 64 letters, digits, "_", "." or "-", a letter or digit first', path=key
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementDefinition:
    """An Information Element that no registry here has."""

    name: Annotated[str, "as it is called in every output"]
    id: Annotated[int, Bounds(1, 32767), "its number, without the enterprise bit"]
    type: Annotated[DataType, "abstract data type (RFC 7012)"]
    enterprise: Annotated[int, Bounds(0, 4294967295), "private enterprise number; 32473 where it has none"] = (
        DEFAULT_ENTERPRISE
    )
    merge_rule: Annotated[
        Literal["first", "latest", "max", "sum", "fill"], "how a later record's value meets the stored one"
    ] = "latest"

    _LISTS: ClassVar = (DataType.BASIC_LIST, DataType.SUB_TEMPLATE_LIST, DataType.SUB_TEMPLATE_MULTI_LIST)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,127}", self.name, re.ASCII):
            raise ConfigError(f'"{self.name[:80]}" must be a letter, then letters, digits or "_"', path="name")
        if self.type in self._LISTS:
            raise ConfigError(f"an element of a flow cannot be a list, and {self.type.value} is one", path="type")
        if self.merge_rule in ("max", "sum") and not isinstance(self.type.default, (int, float)):
            problem = f'{self.merge_rule} needs numbers, and "{self.type.value}" is none'
            raise ConfigError(problem, path="mergeRule")

    def to_element(self) -> InformationElement:
        """The element it defines."""
        return InformationElement(
            name=self.name,
            element_id=ElementId(self.id),
            enterprise_number=EnterpriseNumber(self.enterprise),
            data_type=self.type,
            merge_rule=MergeRule(self.merge_rule),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordContents:
    """What a flow record holds beyond the fixed elements."""

    pod_labels: Annotated[bool, "labels of Pods, where an enricher knows them", LIVE] = False
    elements: Annotated[
        tuple[str | ElementDefinition, ...], "more elements: names of registered ones, or definitions"
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on memory and patience."""

    flows: Annotated[
        int, Bounds(1, 2**31 - 1), "stored flows; beyond, ready flows leave early, then the oldest halves"
    ] = 1_000_000
    string_bytes: Annotated[Octets, Bounds(1024 * 1024), "distinct strings of stored flows"] = Octets(256 * 1024 * 1024)
    sessions: Annotated[int, Bounds(1, 2**31 - 1), "Transport Sessions of all collectors"] = 10_000
    session_idle: Annotated[Duration, Bounds(1), "a session silent for so long is forgotten"] = Duration(1800.0)
    templates_per_session: Annotated[int, Bounds(1, 2**31 - 1), "Templates of one session"] = 1024
    fields_per_template: Annotated[int, Bounds(1, 16383), "Field Specifiers of one Template"] = 1024
    template_lifetime: Annotated[
        Duration, Bounds(0), "a Template over UDP is forgotten unless refreshed; 0 keeps it"
    ] = Duration(5400.0)
    held_bytes: Annotated[Octets, Bounds(0), "data that waits for its Template, all sessions"] = Octets(
        16 * 1024 * 1024
    )
    receive_buffer: Annotated[Octets, Bounds(4096, 2**30), "SO_RCVBUF of a UDP collector"] = Octets(64 * 1024 * 1024)
    lane_bytes: Annotated[Octets, Bounds(65536), "batches one lane holds in memory; half: open ones"] = Octets(
        64 * 1024 * 1024
    )
    stall: Annotated[Duration, Bounds(1), "when nothing moves for so long the process ends with 1"] = Duration(30.0)
    hang: Annotated[
        Duration, Bounds(1), "a plugin whose open, export or close gets nowhere for so long is closed and opened anew"
    ] = Duration(300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerTls:
    """TLS of the HTTP server."""

    certificate: Annotated[Path, "the certificate, then the chain above it, PEM"]
    key: Annotated[Path, "its private key, PEM, not encrypted"]
    client_ca: Annotated[
        Path | None, Key("clientCA"), "authorities, PEM: who shows a certificate of one may read everything"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """The HTTP server."""

    api_port: Annotated[int, Bounds(0, 65535), "port on 127.0.0.1, 0 is the default; address wins"] = _API_PORT
    address: Annotated[
        Endpoint | Literal["none"] | None,
        "where it listens; others than this machine need tls and authentication; default 127.0.0.1 and apiPort",
    ] = None
    tls: Annotated[
        ApiServerTls | Literal["selfSigned", "none"],
        "HTTPS; selfSigned makes a certificate at each start, and another 90 days before its end",
    ] = "none"
    token: Annotated[Secret | None, "bearer token; who has it may read everything"] = None
    review_tokens: Annotated[
        bool, "ask the look-up that provides AccessReview, such as Kubernetes, about every other bearer token"
    ] = False
    open_metrics: Annotated[bool, "everybody may read /metrics, as everybody may the health paths"] = False
    tls_cipher_suites: Annotated[
        str, "of TLS 1.2, comma separated, by the names of Go or OpenSSL; empty leaves the library's choice"
    ] = ""
    tls_min_version: Annotated[
        str, "VersionTLS12 or VersionTLS13; VersionTLS10, VersionTLS11 and empty are VersionTLS12"
    ] = ""

    @property
    def is_authenticated(self) -> bool:
        """Whether clients must say who they are."""
        has_client_ca = isinstance(self.tls, ApiServerTls) and self.tls.client_ca is not None
        return self.token is not None or self.review_tokens or has_client_ca

    @property
    def endpoint(self) -> Endpoint | None:
        """Where it listens; None where it is switched off."""
        if self.address == "none":
            return None
        return self.address or Endpoint(host="127.0.0.1", port=self.api_port or _API_PORT)

    @property
    def is_asked_for(self) -> bool:
        """Whether the operator chose where it listens, so that it must."""
        return self.address is not None or self.api_port not in (0, _API_PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStreamService:
    """Antrea's gRPC stream of flows; read, not available."""

    enable: Annotated[bool, "not available in this version"] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The process's own log, on standard error."""

    level: Annotated[Literal["debug", "info", "warning", "error"], "the least severe event that is written"] = "info"
    format: Annotated[Literal["auto", "console", "json"], "auto is console on a terminal and json elsewhere"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything a run needs, plugins' own settings still unbound.

    ``exporters`` holds the enabled Antrea sections too, ``collectors`` what is really to be opened.
    """

    state_directory: Annotated[
        Path | None, "instance id, spools, remembered templates, checkpoint; default: $STATE_DIRECTORY or a usual place"
    ] = None
    checkpoint: Annotated[
        Checkpoint | Literal["none"], "keeps the flow table over a restart; none, and flows not exported yet are lost"
    ] = "none"
    shutdown_grace_period: Annotated[
        Duration,
        Bounds(0),
        "how long lanes may drain at the end; sources that have something left to tell have two fifths of it before",
        LIVE,
    ] = Duration(25.0)
    mode: Annotated[Literal["Aggregate", "Proxy"], "join the halves of flows, or pass records through"] = "Aggregate"
    compatibility: Annotated[
        Literal["antrea-2.7", "antrea-2.3"], "whose CSV columns, IPFIX templates and JSON keys are written"
    ] = "antrea-2.7"
    active_flow_record_timeout: Annotated[Duration, "a flow with new records is exported so often; at least 1s"] = (
        Duration(60.0)
    )
    inactive_flow_record_timeout: Annotated[
        Duration, "a flow silent for so long is exported and forgotten; at least 1s"
    ] = Duration(90.0)
    aggregator_transport_protocol: Annotated[
        str, "TLS, TCP, UDP or None, any letter case: the one collector on 4739 where collectors is not given"
    ] = "TLS"
    flow_aggregator_address: Annotated[str, "one more name or address in the server's certificate"] = ""
    collectors: Annotated[
        tuple[Collector, ...], "Collecting Processes; default: one by aggregatorTransportProtocol, none with sources"
    ] = ()
    sources: Annotated[tuple[PluginEntry, ...], "plugins that bring flows themselves"] = ()
    enrichers: Annotated[tuple[PluginEntry, ...], "plugins that add to flows, in this order"] = ()
    lookups: Annotated[tuple[PluginEntry, ...], "providers of look-ups; the first that provides one wins"] = ()
    exporters: Annotated[tuple[ExporterEntry, ...], "where flows go", LIVE] = ()
    record_contents: Annotated[RecordContents, "elements beyond the fixed ones"] = RecordContents()
    limits: Annotated[Limits, "bounds on memory and patience"] = Limits()
    api_server: Annotated[ApiServer, "the HTTP server"] = ApiServer()
    cluster_id: Annotated[str, Key("clusterID"), "value of the clusterId element; default: the cluster's UUID"] = ""
    record_buffer_size: Annotated[int, "Antrea's ring buffer; accepted, lanes have limits.laneBytes"] = 8192
    flow_stream_service: Annotated[FlowStreamService, "Antrea's gRPC stream"] = FlowStreamService()
    log: Annotated[Log, "the process's own log", LIVE] = Log()
    csv_quoting: Annotated[
        Literal["antrea", "rfc4180"], "of the exporters made from Antrea's sections: antrea escapes nothing", LIVE
    ] = "antrea"
