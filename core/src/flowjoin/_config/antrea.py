"""Antrea's four sink sections as entries of ``exporters:``; with ``antrea_agent`` the one place that names plugins.

Strategy: an enabled section is bound like any other configuration, checked in Antrea's order and with
its sentences, and rewritten into the keys of the plugin that does the work. A disabled one is read for
``enable`` and unknown keys only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

from flowjoin._config.binder import Binder
from flowjoin._config.durations import format_duration
from flowjoin._config.fields import LIVE, Settings, fields_of
from flowjoin._config.flow_collector_address import FlowCollectorAddress, parse_flow_collector_address
from flowjoin._config.model import ExporterEntry, Spool
from flowjoin._config.nodes import MappingNode, is_empty, is_null
from flowjoin._config.plain import Plain, mapping_of
from flowjoin._model.errors import ConfigError
from flowjoin.api._settings import Bounds, Duration, Key

__all__ = [
    "NO_LABELS",
    "SECTIONS",
    "ClickHouse",
    "ClickHouseTls",
    "FlowCollector",
    "FlowCollectorTls",
    "FlowLogger",
    "S3Uploader",
    "Section",
    "sinks_present",
]

_CERTIFICATES: Final = "/etc/flow-aggregator/certs"  # where Antrea's Deployment mounts its Secrets
NO_LABELS: Final = (
    "no enricher is configured that could tell labels; write enrichers: [{type: kubernetes}], which "
    "pip install flowjoin-kubernetes brings"
)
_MIN_MESSAGE: Final = 512
_MAX_MESSAGE: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCollectorTls:
    """TLS towards the flow collector."""

    enable: Annotated[bool, "TLS over tcp; over udp it would be DTLS, which is refused for now"] = False
    ca_secret_name: Annotated[str, "non-empty: the CA is read from the mounted ca.crt; empty: the system's roots"] = ""
    server_name: Annotated[str, "the name to verify; empty: the host of address"] = ""
    client_secret_name: Annotated[str, "non-empty: tls.crt and tls.key are read from the mount"] = ""
    min_version: Annotated[str, "VersionTLS12 or VersionTLS13; empty is VersionTLS12"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCollector:
    """Flows as IPFIX or JSON to a collector: an exporter of type ipfix."""

    enable: Annotated[bool, "send to a flow collector", LIVE] = False
    address: Annotated[str, "host, then :port (4739), then :tcp or :udp (tcp)", LIVE] = ""
    observation_domain_id: Annotated[
        int | None, Key("observationDomainID"), Bounds(0, 4294967295), "default: from the cluster's UUID", LIVE
    ] = None
    record_format: Annotated[str, "IPFIX or JSON", LIVE] = "IPFIX"
    template_refresh_timeout: Annotated[Duration, "Templates over UDP are repeated so often", LIVE] = Duration(600.0)
    max_ipfix_msg_size: Annotated[int, Key("maxIPFIXMsgSize"), "octets of a Message; 0 is automatic", LIVE] = 0
    tls: Annotated[FlowCollectorTls, "TLS towards the collector", LIVE] = FlowCollectorTls()
    include_k8s_names: Annotated[bool, Key("includeK8sNames"), "name elements", LIVE] = True
    include_k8s_uids: Annotated[bool, Key("includeK8sUIDs"), "UUID elements", LIVE] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickHouseTls:
    """TLS towards ClickHouse."""

    insecure_skip_verify: Annotated[bool, "do not verify the server"] = False
    ca_cert: Annotated[bool, "verify with the mounted CA"] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickHouse:
    """Rows to a ClickHouse table: an exporter of type clickhouse."""

    enable: Annotated[bool, "insert into ClickHouse", LIVE] = False
    database: Annotated[str, "the database", LIVE] = "default"
    database_url: Annotated[str, Key("databaseURL"), "tcp, tls, http or https URL", LIVE] = (
        "tcp://clickhouse-clickhouse.flow-visibility.svc:9000"
    )
    http_port: Annotated[
        int | None, Bounds(1, 65535), "ours: the server's HTTP port, where a tcp or tls URL has no standard port", LIVE
    ] = None
    tls: Annotated[ClickHouseTls, "TLS towards ClickHouse", LIVE] = ClickHouseTls()
    debug: Annotated[bool, "accepted, without effect"] = False
    compress: Annotated[bool, "LZ4", LIVE] = True
    commit_interval: Annotated[Duration, "how long rows gather, at least 1s", LIVE] = Duration(8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Uploader:
    """CSV objects in a bucket: an exporter of type s3."""

    enable: Annotated[bool, "upload to S3", LIVE] = False
    bucket_name: Annotated[str, "the bucket", LIVE] = ""
    bucket_prefix: Annotated[str, "before each object's key", LIVE] = ""
    region: Annotated[str, "a hint; empty is found out", LIVE] = ""
    record_format: Annotated[str, "only CSV"] = "CSV"
    compress: Annotated[bool, "gzip", LIVE] = True
    max_records_per_file: Annotated[int, Bounds(0, 2**31 - 1), "records of an object; 0 is the default", LIVE] = 1000000
    upload_interval: Annotated[Duration, "how long records gather, at least 1s", LIVE] = Duration(60.0)


RuleAction: TypeAlias = Literal["None", "Allow", "Drop", "Reject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLoggerFilter:
    """One filter; a record is written when any filter matches."""

    ingress_network_policy_rule_actions: Annotated[tuple[str, ...], "any of None, Allow, Drop, Reject; empty: all"] = ()
    egress_network_policy_rule_actions: Annotated[tuple[str, ...], "any of None, Allow, Drop, Reject; empty: all"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLogger:
    """A local CSV file: an exporter of type log."""

    enable: Annotated[bool, "write the file", LIVE] = False
    path: Annotated[str, "the file; default: antrea-flows.log in the temporary directory", LIVE] = ""
    max_size: Annotated[int, Bounds(0, 2**31 - 1), "MiB before it is rotated; 0 is the default", LIVE] = 100
    max_backups: Annotated[int, Bounds(0, 2**31 - 1), "rotated files kept; 0 is 3 too", LIVE] = 3
    max_age: Annotated[int, Bounds(0, 2**31 - 1), "days rotated files are kept; 0: no limit", LIVE] = 0
    compress: Annotated[bool, "gzip rotated files", LIVE] = True
    record_format: Annotated[str, "only CSV"] = "CSV"
    filters: Annotated[tuple[FlowLoggerFilter, ...], "which records are written; empty: all", LIVE] = ()
    pretty_print: Annotated[bool, "names for the numbers of protocols, actions and policy types", LIVE] = True


SECTIONS: Final[Mapping[str, type[Any]]] = {
    "flowCollector": FlowCollector,
    "clickHouse": ClickHouse,
    "s3Uploader": S3Uploader,
    "flowLogger": FlowLogger,
}
NESTED: Final[tuple[type[Any], ...]] = (FlowCollectorTls, ClickHouseTls, FlowLoggerFilter)


class Section(NamedTuple):
    """An enabled section: its key, its values, where it stands."""

    key: str
    values: Any  # one of the dataclasses of SECTIONS
    node: MappingNode
    source: str | None

    def fail(self, problem: str, key: str = "") -> NoReturn:
        """Refuse a value of this section."""
        entry = self.node.get(key.partition(".")[0])
        path = f"{self.key}.{key}" if key else self.key
        raise ConfigError(problem, path=path, line=entry.line if entry else self.node.line, source=self.source)


def read_sections(document: MappingNode, binder: Binder, source: str | None) -> list[Section]:
    """The enabled sections, bound and not yet checked, in Antrea's order.

    Raises:
        ConfigError: a value has the wrong type.
    """
    enabled = []
    for key, cls in SECTIONS.items():
        entry = document.get(key)
        if entry is None or is_null(entry.value):
            continue
        if not isinstance(entry.value, MappingNode):
            binder.dataclass(entry.value, cls, key)  # its error names the keys
            raise AssertionError("a dataclass was bound from what is no mapping")
        switch = entry.value.get("enable")
        if (
            switch is not None
            and not is_empty(switch.value)
            and binder.value(switch.value, bool, f"{key}.enable", line=switch.line)
        ):
            enabled.append(Section(key, binder.dataclass(entry.value, cls, key), entry.value, source))
        else:
            binder.unknown_keys(entry.value, (spec.key for spec in fields_of(cls)), key, lenient=True)
    return enabled


def check_required(sections: list[Section]) -> None:
    """What Antrea looks at before anything else.

    Raises:
        ConfigError: in Antrea's words.
    """
    for section in sections:
        if section.key == "flowCollector" and not section.values.address:
            section.fail("external flow collector enabled without providing address", "address")
        if section.key == "s3Uploader" and not section.values.bucket_name:
            section.fail("s3Uploader enabled without specifying bucket name", "bucketName")


def to_exporter(section: Section, csv_quoting: str, spool: Spool, *, mode: str) -> ExporterEntry:
    """The entry of ``exporters:`` that does what the section says; its name is the section's key.

    Raises:
        ConfigError: in Antrea's words where it has some.
    """
    plugin, translate = _TRANSLATIONS[section.key]
    keys = translate(section)
    if section.key in ("s3Uploader", "flowLogger"):
        keys["csvQuoting"] = csv_quoting
    if section.key == "flowCollector" and mode == "Proxy":
        keys["template"] = "proxy"
    node = mapping_of(keys, section.node.line)
    settings = Settings(node=node, path=section.key, source=section.source)
    return ExporterEntry(type=plugin, name=section.key, spool=spool, settings=settings)


def _flow_collector(section: Section) -> dict[str, Plain]:
    values: FlowCollector = section.values
    address = _address(section, values.address)
    if values.record_format not in ("IPFIX", "JSON"):
        section.fail(f"record format {values.record_format} is not supported; write IPFIX or JSON", "recordFormat")
    if values.template_refresh_timeout < 0:
        section.fail("templateRefreshTimeout cannot be a negative duration", "templateRefreshTimeout")
    size = values.max_ipfix_msg_size
    if size < 0:
        section.fail("maxIPFIXMsgSize cannot be negative", "maxIPFIXMsgSize")
    if 0 < size < _MIN_MESSAGE:
        section.fail(
            f"maxIPFIXMsgSize cannot be smaller than the minimum valid IPFIX mesage size {_MIN_MESSAGE}",
            "maxIPFIXMsgSize",
        )
    if size > _MAX_MESSAGE:
        section.fail(
            f"maxIPFIXMsgSize cannot be greater than the maximum valid IPFIX mesage size {_MAX_MESSAGE}",
            "maxIPFIXMsgSize",
        )
    keys: dict[str, Plain] = {
        "address": str(address),
        "protocol": address.protocol,
        "recordFormat": values.record_format,
        # whole seconds are used, and 0 is the library's default
        "templateRefreshTimeout": format_duration(int(values.template_refresh_timeout) or 600),
        "includeK8sNames": values.include_k8s_names,
        "includeK8sUIDs": values.include_k8s_uids,
    }
    if values.observation_domain_id is not None:
        keys["observationDomainID"] = values.observation_domain_id
    if size:
        keys["maxIPFIXMsgSize"] = size
    if values.tls.enable:
        if address.protocol == "tcp":
            keys["protocol"] = "tls"  # with udp it is DTLS: the plugin says whether it can
        keys["tls"] = _flow_collector_tls(section, values.tls, address)
    return keys


def _address(section: Section, text: str) -> FlowCollectorAddress:
    try:
        address = parse_flow_collector_address(text, 4739, "tcp", protocols=("tcp", "udp"))
    except ValueError as exc:
        raise ConfigError(
            str(exc), path="flowCollector.address", line=_line(section, "address"), source=section.source
        ) from exc
    if address.protocol not in ("tcp", "udp"):
        problem = f"unsupported collector protocol: {address.protocol}"
        section.fail(f"{problem}; write tcp or udp, and switch TLS on with flowCollector.tls.enable", "address")
    return address


def _flow_collector_tls(section: Section, tls: FlowCollectorTls, address: FlowCollectorAddress) -> dict[str, Plain]:
    if tls.min_version not in ("", "VersionTLS12", "VersionTLS13"):
        section.fail(
            f"unsupported TLS version: {tls.min_version}; write VersionTLS12 or VersionTLS13", "tls.minVersion"
        )
    keys: dict[str, Plain] = {
        "serverName": tls.server_name or address.host,
        "minVersion": tls.min_version or "VersionTLS12",
    }
    directory = f"{_CERTIFICATES}/flow-collector"
    if tls.ca_secret_name:
        keys["ca"] = f"{directory}/ca.crt"
    if tls.client_secret_name:
        keys["certificate"] = f"{directory}/tls.crt"
        keys["key"] = f"{directory}/tls.key"
    return keys


def _click_house(section: Section) -> dict[str, Plain]:
    values: ClickHouse = section.values
    _at_least_one_second(section, "commitInterval", values.commit_interval)
    tls: dict[str, Plain] = {"insecureSkipVerify": values.tls.insecure_skip_verify}
    if values.tls.ca_cert:
        tls["ca"] = f"{_CERTIFICATES}/clickhouse/ca.crt"
    keys: dict[str, Plain] = {
        "database": values.database,
        "databaseURL": values.database_url,
        "username": {"env": "CH_USERNAME"},
        "password": {"env": "CH_PASSWORD"},
        "tls": tls,
        "compress": values.compress,
        "commitInterval": format_duration(values.commit_interval),
    }
    if values.http_port is not None:
        keys["httpPort"] = values.http_port
    return keys


def _s3_uploader(section: Section) -> dict[str, Plain]:
    values: S3Uploader = section.values
    _only_csv(section, values.record_format)
    _at_least_one_second(section, "uploadInterval", values.upload_interval)
    return {
        "bucketName": values.bucket_name,
        "bucketPrefix": values.bucket_prefix,
        "layout": "antrea",
        "region": values.region,
        "compress": values.compress,
        "maxRecordsPerFile": values.max_records_per_file or 1_000_000,
        "uploadInterval": format_duration(values.upload_interval),
    }


def _flow_logger(section: Section) -> dict[str, Plain]:
    values: FlowLogger = section.values
    _only_csv(section, values.record_format)
    return {
        "path": values.path or str(Path(tempfile.gettempdir()) / "antrea-flows.log"),
        "format": "csv",
        "maxSize": values.max_size or 100,
        "maxBackups": values.max_backups or 3,  # Antrea's comment says that 0 keeps all; it never did
        "maxAge": values.max_age,
        "compress": values.compress,
        "prettyPrint": values.pretty_print,
        "filters": [
            {
                "ingressNetworkPolicyRuleActions": list(each.ingress_network_policy_rule_actions),
                "egressNetworkPolicyRuleActions": list(each.egress_network_policy_rule_actions),
            }
            for each in values.filters
        ],
    }


_TRANSLATIONS: Final[Mapping[str, tuple[str, Callable[[Section], dict[str, Plain]]]]] = {
    "flowCollector": ("ipfix", _flow_collector),
    "clickHouse": ("clickhouse", _click_house),
    "s3Uploader": ("s3", _s3_uploader),
    "flowLogger": ("log", _flow_logger),
}


# What those sections become: the exporters that most people mean.
EXPORTER_TYPES: Final = frozenset(type_ for type_, _ in _TRANSLATIONS.values())
TYPES: Final = EXPORTER_TYPES | {"conntrack", "kubernetes"}  # that Antrea's files are translated into


def sinks_present(types: Collection[str]) -> dict[str, bool]:
    """Which of Antrea's sinks there are among the types of exporters, by the keys of its /recordmetrics."""
    return {
        "withClickHouseExporter": "clickhouse" in types,
        "withS3Exporter": "s3" in types,
        "withLogExporter": "log" in types,
        "withIPFIXExporter": "ipfix" in types,
    }


def _only_csv(section: Section, record_format: str) -> None:
    if record_format != "CSV":
        section.fail(f"record format {record_format} is not supported; write CSV", "recordFormat")


def _at_least_one_second(section: Section, key: str, interval: float) -> None:
    if interval < 1:
        section.fail(f"{key} {format_duration(interval)} is too small: shortest supported interval is 1s", key)


def _line(section: Section, key: str) -> int:
    entry = section.node.get(key)
    return entry.line if entry else section.node.line
