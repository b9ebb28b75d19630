"""Answers the look-up protocols from the tables."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from flowjoin.api import ClientCredentials, Logger, Node, PluginContext, PluginError, Pod, Service, ServicePort
from flowjoin_kubernetes._access import ClusterAccess
from flowjoin_kubernetes._certificates import ClusterCertificates
from flowjoin_kubernetes._client import Api, load_api
from flowjoin_kubernetes._config import KubernetesLookupConfig, own_node
from flowjoin_kubernetes._credentials import read_credentials
from flowjoin_kubernetes._records import NodeRecord, PodRecord, ServiceRecord, uid_text
from flowjoin_kubernetes._tables import ClusterTables, open_tables
from flowjoin_kubernetes._threads import in_thread

__all__ = ["PATIENCE_SECONDS", "KubernetesLookup", "open_lookup"]

PATIENCE_SECONDS: Final = 30.0  # as long as flowjoin waits at its start


class KubernetesLookup(ClusterCertificates, ClusterAccess):
    """One cluster's answers."""

    def __init__(self, tables: ClusterTables, api: Api, namespace: str, log: Logger) -> None:
        """Over tables that are kept up to date elsewhere."""
        # Our certificates are in the namespace we run in; those of an aggregator that we send to, in its own.
        ClusterCertificates.__init__(self, api, os.environ.get("POD_NAMESPACE") or namespace, log)
        self._tables = tables
        self._credentials_namespace = namespace

    def pod(self, address: str, at: float | None = None) -> Pod | None:
        record = self._known.pod_record(address, at)
        return None if record is None else _pod(record)

    def pod_network(self, address: str, at: float | None = None) -> str | None:
        return self._known.pod_network(address, at)

    def node_by_address(self, address: str, at: float | None = None) -> Node | None:
        record = self._known.node_at(address, at)
        return None if record is None else _node(record)

    def node_by_name(self, name: str, at: float | None = None) -> Node | None:
        record = self._known.node_record(name, at)
        return None if record is None else _node(record)

    def service_by_address(
        self, address: str, port: int, protocol_identifier: int, at: float | None = None
    ) -> tuple[Service, ServicePort] | None:
        record = self._known.service_at(address, port, protocol_identifier, at)
        if record is None:
            return None
        service = _service(record)
        wanted = (port, protocol_identifier)
        return service, next(each for each in service.ports if (each.port, each.protocol_identifier) == wanted)

    def service_by_name(self, namespace: str, name: str, at: float | None = None) -> Service | None:
        record = self._known.service_record(namespace, name, at)
        return None if record is None else _service(record)

    async def client_credentials(self) -> ClientCredentials:
        return await read_credentials(self._api, self._credentials_namespace)

    def count_pods(self, address: str) -> int:
        return self._known.count_pods(address)

    def pod_record(self, address: str, at: float | None) -> PodRecord | None:
        return self._known.pod_record(address, at)

    def node_record(self, name: str, at: float | None) -> NodeRecord | None:
        return self._known.node_record(name, at)

    def shared(self) -> tuple[bool, bool, bool]:
        return self._known.shared()

    def is_of_one_node(self) -> bool:
        return self._known.is_of_one_node()

    def service_record(self, namespace: str, name: str, at: float | None) -> ServiceRecord | None:
        return self._known.service_record(namespace, name, at)

    @property
    def _known(self) -> ClusterTables:
        """The tables, once they can be believed.

        Raises:
            PluginError: they have not everything yet: an address that is not there may be a Pod's.
        """
        if not self._tables.known.is_set():
            raise PluginError("the Pods of the cluster are not known yet", plugin="kubernetes")
        return self._tables


@asynccontextmanager
async def open_lookup(config: KubernetesLookupConfig, context: PluginContext) -> AsyncIterator[KubernetesLookup]:
    """Answers, once the cluster's Pods are known, or those of this Node where they are enough.

    Where the API server has answered and yet the Pods are not known after a while (it may not give them, or they are
    very many), certificates and reviews are had without them: they decide whether anybody can connect at all.

    Raises:
        ConfigError: there is no service account or kubeconfig that can be used, or this Node's name is not known.
    """
    node = own_node() if config.only_node else ""
    api = await in_thread(partial(load_api, config))
    async with open_tables(api, config, context, node=node, patience=PATIENCE_SECONDS) as tables:
        yield KubernetesLookup(tables, api, config.aggregator_namespace, context.log)


def _pod(record: PodRecord) -> Pod:
    return Pod(
        namespace=record.namespace,
        name=record.name,
        uid=uid_text(record.uid),
        node_name=record.node,
        addresses=record.addresses,
        labels=json.loads(record.labels),
    )


def _node(record: NodeRecord) -> Node:
    return Node(
        name=record.name, uid=uid_text(record.uid), addresses=record.addresses, labels=json.loads(record.labels)
    )


def _service(record: ServiceRecord) -> Service:
    return Service(
        namespace=record.namespace,
        name=record.name,
        uid=uid_text(record.uid),
        cluster_addresses=record.addresses,
        ports=tuple(
            ServicePort(port=number, protocol_identifier=protocol, name=name, node_port=node_port)
            for number, protocol, name, node_port in record.ports
        ),
    )
