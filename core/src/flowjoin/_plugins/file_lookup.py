"""The look-up ``file``: what is known of a cluster from a YAML or JSON file, where the cluster itself is not asked.

```yaml
pods:
  - {namespace: shop, name: web-1, addresses: [10.10.0.5], node: node-1, labels: {app: web},
     from: 2026-01-02T03:04:05Z, until: 2026-01-03T00:00:00Z}
nodes:
  - {name: node-1, addresses: [192.0.2.1]}
services:
  - {namespace: shop, name: web, clusterAddresses: [10.96.0.9], ports: [{name: http, port: 80, protocol: tcp}]}
policies:
  - {rule: 7, policyName: allow-web, policyType: kubernetes, ruleAction: allow}
egresses:
  - {name: out, address: 203.0.113.9, node: node-2, namespaces: [shop], podLabels: {app: web}}
```

An address that several Pods had in turn is told apart by time: ``from`` belongs to a Pod's time, ``until`` no more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Final, Generic, TypeVar

import trio

from flowjoin._config.file import read_file, text_of
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import ConfigError
from flowjoin._plugins.file_tables import (
    Address,
    FileLookupConfig,
    Instant,
    NodeEntry,
    PodEntry,
    PolicyEntry,
    ServiceEntry,
    Tables,
    canonical,
    read_tables,
)
from flowjoin.api._hookspecs import hookimpl
from flowjoin.api._lookups import (
    Egress,
    EgressLookup,
    Node,
    NodeLookup,
    Pod,
    PodLookup,
    PolicyLookup,
    PolicyRule,
    Service,
    ServiceLookup,
    ServicePort,
)
from flowjoin.api._types import LookupType, PluginContext

__all__ = ["FileLookup", "flowjoin_lookup_types"]

ValueT = TypeVar("ValueT")

_PROTOCOLS: Final = {"tcp": 6, "udp": 17, "sctp": 132}
_POLICY_TYPES: Final = {"kubernetes": 1, "antrea": 2, "antreaCluster": 3}
_RULE_ACTIONS: Final = {"none": 0, "allow": 1, "drop": 2, "reject": 3}


class _Timed(Generic[ValueT]):
    """Values by key and time."""

    def __init__(self) -> None:
        self._entries: dict[object, list[tuple[float, float, ValueT]]] = {}

    def add(self, key: object, value: ValueT, since: Instant | None, until: Instant | None) -> None:
        interval = (-inf if since is None else since.seconds, inf if until is None else until.seconds)
        self._entries.setdefault(key, []).append((*interval, value))

    def get(self, key: object, at: float | None) -> ValueT | None:
        """What the key meant then; of several what began last. Without a time: what has no end."""
        moment = inf if at is None else at
        found: tuple[float, ValueT] | None = None
        for since, until, value in self._entries.get(key, ()):
            is_then = since <= moment and (moment < until or until == inf)
            if is_then and (found is None or since >= found[0]):
                found = (since, value)
        return None if found is None else found[1]

    def only(self, key: object, at: float) -> ValueT | None:
        """As ``get``, but None where two began together, or several have no beginning: nobody knows which it was."""
        then = [(since, value) for since, until, value in self._entries.get(key, ()) if since <= at < until]
        latest = max((since for since, _ in then), default=-inf)
        found = [value for since, value in then if since == latest]
        return found[0] if len(found) == 1 else None


class FileLookup:
    """Answers from tables that were read once."""

    def __init__(self, tables: Tables) -> None:
        self._pods: _Timed[Pod] = _Timed()
        self._nodes: _Timed[Node] = _Timed()
        self._services: _Timed[Service] = _Timed()
        self._ports: _Timed[tuple[Service, ServicePort]] = _Timed()
        self._rules: dict[int, dict[int, PolicyRule]] = {}
        self._rules_in_force: _Timed[PolicyRule] = _Timed()
        self._egresses = tables.egresses
        for entry in tables.pods:
            self._add_pod(entry)
        for node in tables.nodes:
            self._add_node(node)
        for service in tables.services:
            self._add_service(service)
        for rule in tables.policies:
            self._add_rule(rule)

    def pod(self, address: str, at: float | None = None) -> Pod | None:
        return self._pods.get(canonical(address), at)

    def node_by_address(self, address: str, at: float | None = None) -> Node | None:
        return self._nodes.get(("address", canonical(address)), at)

    def node_by_name(self, name: str, at: float | None = None) -> Node | None:
        return self._nodes.get(("name", name), at)

    def service_by_address(
        self, address: str, port: int, protocol_identifier: int, at: float | None = None
    ) -> tuple[Service, ServicePort] | None:
        return self._ports.get((canonical(address), port, protocol_identifier), at)

    def service_by_name(self, namespace: str, name: str, at: float | None = None) -> Service | None:
        return self._services.get((namespace, name), at)

    def rule(self, rule_id: int, generation: int = 0, at: float | None = None) -> PolicyRule | None:
        generations = self._rules.get(rule_id)
        if generations is None:
            return None
        if generation or at is None:
            return generations.get(generation or max(generations))
        return self._rules_in_force.only(rule_id, at)

    def _add_rule(self, entry: PolicyEntry) -> None:
        rule = PolicyRule(
            policy_name=entry.policy_name,
            policy_namespace=entry.policy_namespace,
            policy_uid=entry.policy_uid,
            policy_type=_POLICY_TYPES[entry.policy_type],
            rule_name=entry.rule_name,
            rule_action=_RULE_ACTIONS[entry.rule_action],
        )
        self._rules.setdefault(entry.rule, {})[entry.generation] = rule
        self._rules_in_force.add(entry.rule, rule, entry.since, entry.until)

    def egress(self, pod: Pod, at: float | None = None) -> Egress | None:
        """The first of the file that is for the Pod."""
        entry = next((one for one in self._egresses if one.is_for(pod, at)), None)
        if entry is None:
            return None
        address = "" if entry.address is None else entry.address.text
        return Egress(name=entry.name, uid=entry.uid, address=address, node_name=entry.node)

    def _add_pod(self, entry: PodEntry) -> None:
        pod = Pod(
            namespace=entry.namespace,
            name=entry.name,
            uid=entry.uid,
            node_name=entry.node,
            addresses=_texts(entry.addresses),
            labels=dict(entry.labels),
            is_host_network=entry.host_network,
        )
        for address in () if entry.host_network else pod.addresses:
            self._pods.add(address, pod, entry.since, entry.until)

    def _add_node(self, entry: NodeEntry) -> None:
        node = Node(name=entry.name, uid=entry.uid, addresses=_texts(entry.addresses), labels=dict(entry.labels))
        keys: Sequence[tuple[str, str]] = [("name", node.name), *(("address", text) for text in node.addresses)]
        for key in keys:
            self._nodes.add(key, node, entry.since, entry.until)

    def _add_service(self, entry: ServiceEntry) -> None:
        ports = tuple(
            ServicePort(
                port=port.port,
                protocol_identifier=_PROTOCOLS[port.protocol],
                name=port.name,
                node_port=port.node_port,
            )
            for port in entry.ports
        )
        service = Service(
            namespace=entry.namespace,
            name=entry.name,
            uid=entry.uid,
            cluster_addresses=_texts(entry.cluster_addresses),
            ports=ports,
        )
        self._services.add((service.namespace, service.name), service, entry.since, entry.until)
        for address in service.cluster_addresses:
            for port in ports:
                key = (address, port.port, port.protocol_identifier)
                self._ports.add(key, (service, port), entry.since, entry.until)


def _tables_of(config: FileLookupConfig) -> Tables:
    """What is in the file; blocking, and long where it is large.

    Raises:
        ConfigError: it cannot be read, or what is in it cannot be used.
    """
    source = str(config.path)
    try:
        octets = read_file(source)
    except ConfigError as exc:
        raise ConfigError(f"{source} {exc.problem}; give the path of a YAML or JSON file", path="path") from exc
    return read_tables(text_of(octets, source), source)


def _check(config: FileLookupConfig, _registry: ElementRegistry) -> None:
    _tables_of(config)


@asynccontextmanager
async def _open(config: FileLookupConfig, context: PluginContext) -> AsyncIterator[FileLookup]:
    tables = await trio.to_thread.run_sync(_tables_of, config, abandon_on_cancel=True)
    context.log.info("tables_read", pods=len(tables.pods), nodes=len(tables.nodes), services=len(tables.services))
    yield FileLookup(tables)


@hookimpl
def flowjoin_lookup_types() -> list[LookupType]:
    """The one type."""
    provides = (PodLookup, NodeLookup, ServiceLookup, PolicyLookup, EgressLookup)
    return [LookupType("file", FileLookupConfig, provides, _open, api_version=1, check=_check)]


def _texts(addresses: Iterable[Address]) -> tuple[str, ...]:
    return tuple(address.text for address in addresses)
