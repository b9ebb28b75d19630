"""A file's text into a Config: reads, binds, checks across keys, fills in what depends on more than one."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from flowjoin._config import antrea, antrea_agent
from flowjoin._config.binder import Binder
from flowjoin._config.endpoint import Endpoint
from flowjoin._config.fields import fields_of
from flowjoin._config.model import (
    ApiServer,
    Collector,
    CollectorProtocol,
    Config,
    ExporterEntry,
    FlowStreamService,
    PluginEntry,
    RecordContents,
    Spool,
)
from flowjoin._config.nodes import MappingNode, ScalarNode, is_empty, line_of, read_document
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import ConfigError
from flowjoin._model.information_element import InformationElement
from flowjoin._model.nearest import nearest
from flowjoin.api._settings import Duration

__all__ = ["LoadedConfig", "Notice", "load_config", "resolve_elements"]

_API_OPEN: Final = (
    "others reach this address, and the HTTP API says who talks to whom; give apiServer.tls and a way to say who asks "
    "(token: {file: PATH}, tls.clientCA or reviewTokens: true), or write an address such as 127.0.0.1:10348, or none"
)
_ELEMENTS: Final = "recordContents.elements"
_TLS_VERSIONS: Final = ("", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
_SHOWN: Final = 60  # characters of a wrong value that an error repeats
_TRANSPORTS: Final[dict[str, CollectorProtocol | None]] = {"tls": "tls", "tcp": "tcp", "udp": "udp", "none": None}
# dataclasses with Antrea's keys: it ignores an unknown key, and fills an empty text with the default
_ANTREAS: Final = frozenset(
    (
        Config,
        RecordContents,
        ApiServer,
        FlowStreamService,
        antrea_agent.FlowExporter,
        *antrea.SECTIONS.values(),
        *antrea.NESTED,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something the operator should know about a configuration that is good.

    Attributes:
        severity: of the log event.
        problem: one sentence.
        path: the key; empty for the whole file.
        line: None where nothing was written.
        source: the file's name.
    """

    severity: Literal["info", "warning"]
    problem: str
    path: str = ""
    line: int | None = None
    source: str | None = None

    def __str__(self) -> str:
        return str(ConfigError(self.problem, path=self.path, line=self.line, source=self.source))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration, and what is to be said about it.

    Attributes:
        config: the values.
        warnings: what the operator should be told: unknown keys, what was changed, what has no effect.
        source: the file's name.
        unavailable: what ``run`` needs and this version does not have; ``replay`` does not mind.
        document: what was read.
    """

    config: Config
    warnings: tuple[Notice, ...] = ()
    source: str | None = None
    unavailable: ConfigError | None = dataclasses.field(default=None, compare=False)
    document: MappingNode | None = dataclasses.field(default=None, compare=False, repr=False)

    def require_available(self) -> None:
        """For what opens collectors.

        Raises:
            ConfigError: the configuration asks for what this version does not have.
        """
        if self.unavailable is not None:
            raise self.unavailable

    def located(self, error: ConfigError) -> ConfigError:
        """An error about a key, with the file's name and the key's line."""
        line = None if self.document is None else line_of(self.document, error.path)
        return ConfigError(error.problem, path=error.path, line=line, source=self.source)


def load_config(
    text: str,
    source: str | None = None,
    *,
    strict: bool = False,
    in_cluster: bool = False,
    for_agent: bool = False,
    knows_node: bool = False,
) -> LoadedConfig:
    """Read a configuration; an empty text is all defaults.

    Args:
        text: the YAML document.
        source: the file's name, for errors.
        strict: an unknown key is an error everywhere.
        in_cluster: Kubernetes names Pods and keeps certificates where the file does not say who does, and the HTTP
            API is reached from outside of the Pod, as Antrea's file, which has no word for it, takes for granted.
        for_agent: it is the configuration of an agent, even if none of Antrea's keys says so: connections are its
            source unless the file names others.
        knows_node: the environment tells the name of the Node that this runs on, so that an agent which leaves its
            look-ups to us can do with that Node's Pods.

    Raises:
        ConfigError: naming file, line, key, the wrong value and what would be right.
    """
    document = read_document(text, source) or MappingNode(entries=(), line=1)
    is_agents = for_agent or antrea_agent.is_agents(document)
    return _Loading(document, source, strict, in_cluster, is_agents, knows_node).load()


def resolve_elements(loaded: LoadedConfig, registry: ElementRegistry) -> tuple[InformationElement, ...]:
    """The elements of ``recordContents.elements``: names looked up, definitions made.

    Raises:
        ConfigError: no registry has the name, or a definition takes a name or number that is taken.
    """
    elements = []
    for index, item in enumerate(loaded.config.record_contents.elements):
        path = f"{_ELEMENTS}[{index}]"
        if isinstance(item, str):
            try:
                element = registry.by_name(item)
            except KeyError:
                near = nearest(item, (known.name for known in registry))
                hint = "define it with name, id and type" if near is None else f'did you mean "{near}"?'
                problem = f'no element is named "{item[:_SHOWN]}"; {hint}'
                raise loaded.located(ConfigError(problem, path=path)) from None
        else:
            element = item.to_element()
            if registry.get(element.enterprise_number, element.element_id) is not None or any(
                known.name == element.name for known in registry
            ):
                problem = f'"{item.name}" ({item.enterprise}/{item.id}) is registered already; write its name alone'
                raise loaded.located(ConfigError(problem, path=path))
        elements.append(element)
    try:
        _refuse_repeats(elements)
    except ConfigError as exc:
        raise loaded.located(exc) from exc
    return tuple(elements)


def _refuse_repeats(elements: list[InformationElement]) -> None:
    for name, count in Counter(element.name for element in elements).items():
        if count > 1:
            raise ConfigError(f'"{name}" is given {count} times; once is enough', path=_ELEMENTS)
    for number, count in Counter((e.enterprise_number, e.element_id) for e in elements).items():
        if count > 1:
            problem = f"the number {number[0]}/{number[1]} is given to {count} elements; give each its own"
            raise ConfigError(problem, path=_ELEMENTS)


class _Loading:
    """One file on its way to a Config."""

    def __init__(
        self,
        document: MappingNode,
        source: str | None,
        strict: bool,
        in_cluster: bool,
        is_agents: bool,
        knows_node: bool,
    ) -> None:
        self._in_cluster = in_cluster
        self._knows_node = knows_node
        self._is_agents = is_agents
        self._document = document
        self._source = source
        self._notices: list[Notice] = []
        self._binder = Binder(
            source=source,
            lenient=frozenset() if strict else _ANTREAS,
            empty_is_default=_ANTREAS,
            report=None if strict else self._report_unknown,
        )

    def load(self) -> LoadedConfig:
        document = self._document
        sinks = [entry for entry in document.entries if entry.key in antrea.SECTIONS]
        rest = [entry for entry in document.entries if entry.key not in antrea.SECTIONS]
        top = [spec.key for spec in fields_of(Config)]
        agents = (antrea_agent.SECTION, *antrea_agent.DEPRECATED, *antrea_agent.OTHERS) if self._is_agents else ()
        self._unknown_top_keys([*top, *antrea.SECTIONS, *agents])
        known = MappingNode(entries=tuple(entry for entry in rest if entry.key in top), line=document.line)
        sections = antrea.read_sections(
            MappingNode(entries=tuple(sinks), line=document.line), self._binder, self._source
        )
        antrea.check_required(sections)
        self._check_mode()
        known, flow_exporters = self._with_agent(known) if self._is_agents else (self._with_kubernetes(known), ())
        config = cast(Config, self._binder.dataclass(known, Config, ""))
        config = self._raise_timeouts(self._with_api_of_a_pod(config))
        protocol = self._transport(config)
        made = [antrea.to_exporter(section, config.csv_quoting, Spool(), mode=config.mode) for section in sections]
        config = dataclasses.replace(
            config,
            aggregator_transport_protocol=protocol.upper() if protocol else "None",
            collectors=self._collectors(config, protocol),
            exporters=(*flow_exporters, *made, *config.exporters),
        )
        if self._is_agents and not config.exporters:
            raise self._error(antrea_agent.NO_WAY_OUT, "flowExporter.enable")
        self._check_tls_version(config)
        self._distinct_addresses(config)
        for key, entries in (
            ("sources", config.sources),
            ("enrichers", config.enrichers),
            ("lookups", config.lookups),
        ):
            self._unique_names(key, entries)
        self._unique_names("exporters", config.exporters)
        self._notes(config)
        return LoadedConfig(
            config=config,
            warnings=tuple(self._notices),
            source=self._source,
            unavailable=self._unavailable(config),
            document=document,
        )

    def _with_agent(self, document: MappingNode) -> tuple[MappingNode, tuple[ExporterEntry, ...]]:
        agent = antrea_agent.read_agent(
            self._document, self._binder, self._source, in_cluster=self._in_cluster, knows_node=self._knows_node
        )
        for remark in agent.remarks:
            self._note(*remark)
        kept = tuple(entry for entry in document.entries if agent.added.get(entry.key) is None)
        return MappingNode(entries=(*kept, *agent.added.entries), line=document.line), agent.exporters

    def _with_kubernetes(self, document: MappingNode) -> MappingNode:
        if not self._in_cluster:
            return document
        missing = [key for key in ("enrichers", "lookups") if document.get(key) is None]
        for key in missing:
            self._note("info", f"is [{{type: kubernetes}}] in a cluster; write {key}: [] for none", key)
        made = (read_document(f"{key}: [{{type: kubernetes}}]", self._source) for key in missing)
        added = [entry for node in made if isinstance(node, MappingNode) for entry in node.entries]
        return MappingNode(entries=(*document.entries, *added), line=document.line)

    def _with_api_of_a_pod(self, config: Config) -> Config:
        """Probes come from outside of the Pod, people through the Service: on loopback neither would be heard."""
        api = config.api_server
        on_loopback = api.endpoint
        is_said = api.address is not None or api.tls != "none" or api.is_authenticated
        can_ask = any(entry.type == "kubernetes" for entry in config.lookups)
        if on_loopback is None or is_said or not can_ask or not self._in_cluster:
            return config
        address = Endpoint(host="::", port=on_loopback.port)
        assumed = f'{{address: "{address}", tls: selfSigned, reviewTokens: true}}'
        self._note("info", f"is {assumed} in a cluster; write an address for another", "apiServer")
        api = dataclasses.replace(api, address=address, tls="selfSigned", review_tokens=True)
        return dataclasses.replace(config, api_server=api)

    def _unknown_top_keys(self, known: list[str]) -> None:
        self._binder.unknown_keys(self._document, known, "", lenient=True)

    def _check_mode(self) -> None:
        """In Antrea's words, which people search for."""
        entry = self._document.get("mode")
        if entry is None or not isinstance(entry.value, ScalarNode) or is_empty(entry.value):
            return  # the default, or the binder refuses it
        if entry.value.text not in ("Aggregate", "Proxy"):
            problem = f"unsupported FlowAggregator mode {entry.value.text[:60]}; write Aggregate or Proxy"
            raise self._error(problem, "mode")

    def _report_unknown(self, problem: str, path: str, line: int) -> None:
        self._notices.append(
            Notice(severity="warning", problem=f"{problem}; ignored", path=path, line=line, source=self._source)
        )

    def _note(self, severity: Literal["info", "warning"], problem: str, path: str = "") -> None:
        self._notices.append(
            Notice(severity=severity, problem=problem, path=path, line=self._line(path), source=self._source)
        )

    def _raise_timeouts(self, config: Config) -> Config:
        raised: dict[str, Any] = {}
        for name, path in (
            ("active_flow_record_timeout", "activeFlowRecordTimeout"),
            ("inactive_flow_record_timeout", "inactiveFlowRecordTimeout"),
        ):
            if getattr(config, name) < 1:
                raised[name] = Duration(1.0)
                self._note("info", "is shorter than 1s and was raised to 1s", path)
        return dataclasses.replace(config, **raised)

    def _transport(self, config: Config) -> CollectorProtocol | None:
        text = config.aggregator_transport_protocol
        if text.lower() not in _TRANSPORTS:
            problem = f"collecting process over {text[:60]} proto is not supported; write TLS, TCP, UDP or None"
            raise self._error(problem, "aggregatorTransportProtocol")
        return _TRANSPORTS[text.lower()]

    def _collectors(self, config: Config, protocol: CollectorProtocol | None) -> tuple[Collector, ...]:
        said = self._given("aggregatorTransportProtocol")
        if self._given("collectors"):
            if said:
                self._note("info", "is ignored, because collectors is given", "aggregatorTransportProtocol")
            return config.collectors
        if protocol is None or (config.sources and not said):
            return ()
        return (Collector(protocol=protocol),)

    def _check_tls_version(self, config: Config) -> None:
        version = config.api_server.tls_min_version
        if version not in _TLS_VERSIONS:
            problem = f'"{version[:_SHOWN]}" is no version of TLS; write VersionTLS12 or VersionTLS13'
            raise self._error(problem, "apiServer.tlsMinVersion")

    def _distinct_addresses(self, config: Config) -> None:
        seen: dict[tuple[bool, str], int] = {}
        for index, collector in enumerate(config.collectors):
            if collector.address.port == 0:  # each gets a port of its own
                continue
            first = seen.setdefault((collector.protocol == "udp", str(collector.address)), index)
            if first != index:
                problem = f"collectors[{first}] listens on {collector.address} already; give each its own"
                raise self._error(problem, f"collectors[{index}].address")

    def _unavailable(self, config: Config) -> ConfigError | None:
        api = config.api_server.endpoint
        is_guarded = config.api_server.is_authenticated and config.api_server.tls != "none"
        if api is not None and not api.is_loopback and not is_guarded:
            return self._error(_API_OPEN, "apiServer.address")
        return None

    def _unique_names(self, key: str, entries: Iterable[PluginEntry | Any]) -> None:
        seen: dict[str, str] = {}
        for entry in entries:
            if entry.name in seen:
                problem = f'the name "{entry.name}" is taken by {seen[entry.name]}; give each a "name" of its own'
                raise ConfigError(problem, path=entry.settings.path, line=entry.settings.node.line, source=self._source)
            seen[entry.name] = entry.settings.path

    def _notes(self, config: Config) -> None:
        if not config.exporters:
            self._note("info", "No collector / sink has been configured, so no flow data will be exported")
        if config.checkpoint != "none" and config.mode == "Proxy":
            self._note("info", "has no effect in Proxy mode, which stores no flows", "checkpoint")
        if config.record_contents.pod_labels and not config.enrichers:
            self._note("warning", antrea.NO_LABELS, "recordContents.podLabels")
        if config.flow_stream_service.enable:
            self._note("warning", "the stream service is not available in this version", "flowStreamService.enable")

    def _given(self, key: str) -> bool:
        entry = self._document.get(key)
        return entry is not None and not is_empty(entry.value)

    def _error(self, problem: str, path: str) -> ConfigError:
        return ConfigError(problem, path=path, line=self._line(path), source=self._source)

    def _line(self, path: str) -> int | None:
        return line_of(self._document, path)
