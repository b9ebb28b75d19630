"""Antrea's agent configuration as a source and an exporter; beside ``antrea`` the one place that names plugins.

Strategy: of the agent's large file the section ``flowExporter`` is bound and checked in Antrea's words, and rewritten
into the keys of the plugins that do the work; a few keys elsewhere in the file say how the Node's network is made,
the others are for Antrea alone. A file of our own keys is taken too: then only what it leaves out is added.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple

from flowjoin._config.antrea import Section
from flowjoin._config.binder import Binder
from flowjoin._config.durations import format_duration, parse_duration
from flowjoin._config.fields import Settings, fields_of
from flowjoin._config.flow_collector_address import FlowCollectorAddress, parse_flow_collector_address
from flowjoin._config.model import ExporterEntry, Spool
from flowjoin._config.nodes import MappingNode, Node, ScalarNode, is_empty, is_null
from flowjoin._config.plain import Plain, mapping_of, node_to_plain
from flowjoin._model.errors import ConfigError

__all__ = ["DEPRECATED", "NO_WAY_OUT", "OTHERS", "SECTION", "Agent", "FlowExporter", "is_agents", "read_agent"]

SECTION: Final = "flowExporter"
DEPRECATED: Final = ("flowCollectorAddr", "flowPollInterval", "activeFlowExportTimeout", "idleFlowExportTimeout")
OTHERS: Final = frozenset(
    {
        "agentRole",
        "antreaClientConnection",
        "antreaProxy",
        "apiPort",
        "auditLogging",
        "clientConnection",
        "clusterPort",
        "cniSocket",
        "defaultMTU",
        "disableTXChecksumOffload",
        "dnsServerOverride",
        "egress",
        "enableBridgingMode",
        "enableIPSecTunnel",
        "enablePrometheusMetrics",
        "externalNode",
        "featureGates",
        "fqdnCacheMinTTL",
        "hostGateway",
        "hostProcPathPrefix",
        "ipsec",
        "kubeAPIServerOverride",
        "multicast",
        "multicastInterfaces",
        "multicluster",
        "noSNAT",
        "nodeNetworkPolicy",
        "nodePortLocal",
        "nodeType",
        "nplPortRange",
        "ovsBridge",
        "ovsDatapathType",
        "ovsRunDir",
        "packetInRate",
        "secondaryNetwork",
        "serviceCIDR",
        "serviceCIDRv6",
        "snatFullyRandomPorts",
        "tlsCipherSuites",
        "tlsMinVersion",
        "trafficEncapMode",
        "trafficEncryptionMode",
        "transportInterface",
        "transportInterfaceCIDRs",
        "tunnelCsum",
        "tunnelPort",
        "tunnelType",
        "wireGuard",
    }
)
"""Keys of Antrea's agent that stand in the same file; those of them that say something to us are read below."""

NO_WAY_OUT: Final = (
    "nothing says where flows go; write flowExporter: {enable: true, flowCollectorAddr: ADDRESS}, or exporters"
)
_NO_LOOKUP: Final = (
    "over tls the certificates are asked of the cluster, and no look-up is configured; write "
    "lookups: [{type: kubernetes}], which pip install flowjoin-kubernetes brings, or under exporters one of type ipfix "
    "with files of its own"
)
_NO_GRPC: Final = (
    "gRPC is not supported: the same Flow Aggregator takes IPFIX; write flow-aggregator/flow-aggregator:4739:tls"
)
_DEFAULT_ADDRESS: Final = "flow-aggregator/flow-aggregator:4739:tls"
_DEFAULT_GATEWAY: Final = "antrea-gw0"
_LONGEST_INTERFACE: Final = 15  # octets: IFNAMSIZ, less its end
_DEFAULT_SERVICES: Final = "10.96.0.0/12"
_POD_ZONES: Final[list[Plain]] = [65520, 65510]  # IPv4 and IPv6
_BRIDGED_ZONES: Final[list[Plain]] = [4096, 12288]  # the same where the uplink is on the bridge: 1 << 12, 3 << 12
_PROTOCOLS: Final = ("tcp", "udp", "sctp")
_SHORTEST_POLL: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowExporter:
    """What Antrea's agent sends: a source of type conntrack, and an exporter of type ipfix that it feeds."""

    enable: Annotated[bool, "send the connections of this Node's Pods"] = False
    flow_collector_addr: Annotated[
        str, f"host or namespace/service, then :port (4739), then :tls, :tcp or :udp (tls); empty: {_DEFAULT_ADDRESS}"
    ] = ""
    flow_poll_interval: Annotated[str, "duration, at least 1s: how often connections are read; empty: 5s"] = ""
    active_flow_export_timeout: Annotated[str, "duration: one that goes on is sent so often; empty: 5s"] = ""
    idle_flow_export_timeout: Annotated[str, "duration: one still for so long is sent once more; empty: 15s"] = ""
    protocol_filter: Annotated[tuple[str, ...] | None, "tcp, udp, sctp, any letter case; absent: all"] = None


class Remark(NamedTuple):
    """Something to be said about a good file."""

    severity: Literal["info", "warning"]
    problem: str
    path: str


class Agent(NamedTuple):
    """What the file means.

    Attributes:
        added: keys that the file leaves out, with what they are.
        exporters: those that the section stands for.
        remarks: what is to be said.
    """

    added: MappingNode
    exporters: tuple[ExporterEntry, ...]
    remarks: tuple[Remark, ...]


def is_agents(document: MappingNode) -> bool:
    """Whether a file is written for the agent."""
    return any(document.get(key) is not None for key in (SECTION, *DEPRECATED))


def read_agent(
    document: MappingNode, binder: Binder, source: str | None, *, in_cluster: bool, knows_node: bool
) -> Agent:
    """The file as source, look-ups and exporter; the last two arguments as of ``load_config``.

    Raises:
        ConfigError: in Antrea's words where it has some.
    """
    return _Reading(document, binder, source, in_cluster, knows_node).read()


class _Reading:
    def __init__(
        self, document: MappingNode, binder: Binder, source: str | None, in_cluster: bool, knows_node: bool
    ) -> None:
        self._document = document
        self._binder = binder
        self._source = source
        self._in_cluster = in_cluster
        self._knows_node = knows_node
        self._remarks: list[Remark] = []

    def read(self) -> Agent:
        section = self._section()
        lookups = self._lookups()
        if section is None:
            made: dict[str, Plain] = {"type": "conntrack"}
            exporters: tuple[ExporterEntry, ...] = ()
        else:
            address = self._address(section)
            made = {"type": "conntrack", **self._connections(section)}
            if address.protocol == "tls" and not lookups and not self._has("lookups"):
                section.fail(_NO_LOOKUP, "flowCollectorAddr")
            exporters = (self._exporter(section, address),)
        added: dict[str, Plain] = {}
        if not self._has("sources"):
            added["sources"] = [made]
        elif section is not None:
            self._remark(
                "info", "is given, so those of flowExporter's keys that say what is read are ignored", "sources"
            )
        if not self._has("lookups") and lookups:
            added["lookups"] = lookups
        line = self._document.line if section is None else section.node.line
        return Agent(mapping_of(added, line), exporters, tuple(self._remarks))

    def _section(self) -> Section | None:
        """The section where it is enabled, with the deprecated keys' values where its own are empty."""
        entry = self._document.get(SECTION)
        if entry is None or is_null(entry.value):
            return None
        node = entry.value
        if not isinstance(node, MappingNode):
            self._binder.dataclass(node, FlowExporter, SECTION)  # its error names the keys
            raise AssertionError("a dataclass was bound from what is no mapping")
        switch = node.get("enable")
        if (
            switch is None
            or is_empty(switch.value)
            or not self._binder.value(switch.value, bool, f"{SECTION}.enable", line=switch.line)
        ):
            self._binder.unknown_keys(node, (spec.key for spec in fields_of(FlowExporter)), SECTION, lenient=True)
            return None
        if self._plain("featureGates", "FlowExporter") is True:
            problem = "is for Antrea's own agent: where it is on, that one sends the same flows too"
            self._remark("warning", problem, "featureGates.FlowExporter")
        given = {each.key for each in node.entries if not is_empty(each.value)}
        older = []
        for key in DEPRECATED:
            old = self._document.get(key)
            if old is not None and not is_empty(old.value) and key not in given:
                self._remark("info", f"is deprecated; write it under {SECTION}", key)
                older.append(old)
        taken = {each.key for each in older}
        entries = (*(each for each in node.entries if each.key not in taken), *older)
        merged = MappingNode(entries=entries, line=node.line)
        return Section(SECTION, self._binder.dataclass(merged, FlowExporter, SECTION), merged, self._source)

    def _address(self, section: Section) -> FlowCollectorAddress:
        try:
            address = parse_flow_collector_address(
                section.values.flow_collector_addr or _DEFAULT_ADDRESS, 4739, "tls", protocols=("tls", "tcp", "udp")
            )
        except ValueError as exc:
            section.fail(str(exc), "flowCollectorAddr")
        if address.protocol == "grpc":
            section.fail(_NO_GRPC, "flowCollectorAddr")
        return address

    def _connections(self, section: Section) -> dict[str, Plain]:
        """The keys of the source."""
        values: FlowExporter = section.values
        poll = _duration(section, "flowPollInterval", "5s", "flow interval string is not provided in right format")
        if poll < _SHORTEST_POLL:
            section.fail("flow interval should be greater than or equal to one second", "flowPollInterval")
        timeouts = {}
        for name, key, default in (
            ("activeTimeout", "activeFlowExportTimeout", "5s"),
            ("idleTimeout", "idleFlowExportTimeout", "15s"),
        ):
            words = f"{key[0].upper()}{key[1:]} is not provided in right format"
            timeouts[name] = _duration(section, key, default, words)
            if timeouts[name] < poll:
                self._remark("info", "is shorter than flowPollInterval and was raised to it", f"{SECTION}.{key}")
                timeouts[name] = poll
        keys: dict[str, Plain] = {
            "zones": _BRIDGED_ZONES if self._plain("enableBridgingMode") is True else _POD_ZONES,
            "pollInterval": format_duration(poll),
            **{name: format_duration(seconds) for name, seconds in timeouts.items()},
            "podsOnly": True,
            "fromExternal": True,
            "gatewayInterface": self._gateway(),
        }
        if values.protocol_filter is not None:
            keys["protocols"] = self._protocols(values.protocol_filter)
        if str(self._plain("trafficEncapMode")).lower() == "networkpolicyonly":  # Antrea takes any letter case
            keys["networkPolicyOnly"] = True
        if self._plain("featureGates", "AntreaProxy") is False or self._plain("antreaProxy", "enable") is False:
            networks = (self._network("serviceCIDR") or _DEFAULT_SERVICES, self._network("serviceCIDRv6"))
            keys["serviceCIDRs"] = [network for network in networks if network]
        return keys

    def _gateway(self) -> str:
        """The gateway's interface; checked here, for a source's error would name a key that nobody wrote."""
        entry, name = self._document.get("hostGateway"), str(self._plain("hostGateway") or _DEFAULT_GATEWAY)
        if entry is not None and len(name.encode()) > _LONGEST_INTERFACE:
            problem = f'"{name[:60]}" is longer than {_LONGEST_INTERFACE} letters, and no interface\'s name is'
            raise ConfigError(
                f"{problem}; write one such as {_DEFAULT_GATEWAY}",
                path="hostGateway",
                line=entry.line,
                source=self._source,
            )
        return name

    def _protocols(self, names: tuple[str, ...]) -> list[Plain]:
        kept: list[Plain] = [name.lower() for name in names if name.lower() in _PROTOCOLS]
        unknown = [name[:20] for name in names if name.lower() not in _PROTOCOLS]
        path = f"{SECTION}.protocolFilter"
        if unknown:
            self._remark("info", f"knows tcp, udp and sctp, and not {', '.join(unknown[:5])}", path)
        if not kept:
            self._remark("info", "lets no flow through", path)
        return kept

    def _lookups(self) -> list[Plain]:
        """Kubernetes in a cluster, and where the agent is told how to reach one."""
        kubeconfig = self._plain("clientConnection", "kubeconfig")
        if not kubeconfig and not self._in_cluster:
            return []
        # No element of an agent's record needs the cluster's UUID, and not every agent may read it.
        lookup: dict[str, Plain] = {"type": "kubernetes", "clusterUUID": "none"}
        if kubeconfig:
            lookup["kubeconfig"] = str(kubeconfig)
        if (
            self._knows_node
        ):  # as Antrea's own agent: one list of all Pods for each Node is too much for a large cluster
            lookup["onlyNode"] = True
        return [lookup]

    def _exporter(self, section: Section, address: FlowCollectorAddress) -> ExporterEntry:
        keys: dict[str, Plain] = {"address": str(address), "protocol": address.protocol, "template": "agent"}
        if address.protocol == "tls":
            keys["tls"] = {"fromLookup": True}
        settings = Settings(node=mapping_of(keys, section.node.line), path=SECTION, source=self._source)
        return ExporterEntry(type="ipfix", name=SECTION, spool=Spool(), settings=settings)

    def _network(self, key: str) -> str:
        """A network as ours are written: Antrea takes one with bits of a host too. Empty where it is not there."""
        entry, text = self._document.get(key), self._plain(key)
        if entry is None or not text:
            return ""
        try:
            return str(ipaddress.ip_network(str(text), strict=False))
        except ValueError:
            problem = f'"{str(text)[:60]}" is no network; write one such as {_DEFAULT_SERVICES}'
            raise ConfigError(problem, path=key, line=entry.line, source=self._source) from None

    def _has(self, key: str) -> bool:
        entry = self._document.get(key)
        return entry is not None and not is_null(entry.value)

    def _plain(self, *keys: str) -> Any:
        """A value of one of Antrea's other keys, whatever it is; None where it is not there."""
        node: Node = self._document
        for key in keys:
            entry = node.get(key) if isinstance(node, MappingNode) else None
            if entry is None:
                return None
            node = entry.value
        return node_to_plain(node) if isinstance(node, ScalarNode) else None

    def _remark(self, severity: Literal["info", "warning"], problem: str, path: str) -> None:
        self._remarks.append(Remark(severity, problem, path))


def _duration(section: Section, key: str, default: str, words: str) -> float:
    entry = section.node.get(key)
    text = entry.value.text if entry is not None and isinstance(entry.value, ScalarNode) else ""
    try:
        return parse_duration(text or default)
    except ValueError as exc:
        raise ConfigError(
            f"{words}: {exc}",
            path=f"{SECTION}.{key}",
            line=section.node.line if entry is None else entry.line,
            source=section.source,
        ) from exc
