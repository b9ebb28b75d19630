"""The Pods, Nodes and Services of a cluster, kept up to date by three watches.

On a Node, the Pods are those of that Node alone. Of the others' it is enough to know in which networks they are, which
their Nodes say: a cluster of many Nodes does not tell each of them of every Pod.
"""

from __future__ import annotations

import ipaddress
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Final, Generic, Protocol, TypeVar

import trio

from flowjoin.api import Counter, Logger, PluginContext
from flowjoin_kubernetes._client import Api
from flowjoin_kubernetes._config import KubernetesConfig
from flowjoin_kubernetes._records import Network, NodeRecord, PodRecord, Record, ServiceRecord, uid_of
from flowjoin_kubernetes._store import TimedStore
from flowjoin_kubernetes._watch import Resource, Watcher

__all__ = ["ClusterTables", "Table", "Tables", "open_tables"]

RecordT = TypeVar("RecordT", bound=Record)

_PURGE_SECONDS: Final = 1.0
_PURGE_AT_ONCE: Final = 1000
_LOOK_SECONDS: Final = 1.0
_MAPPED: Final = "::ffff:"


class Tables(Protocol):
    """What the enricher asks; the look-up of this plugin provides it, so that both share one set of watches.

    ``at`` is in seconds since 1970; None asks for the present.
    """

    def count_pods(self, address: str) -> int:
        """How many Pods are known to have, or to have had, the address."""
        ...

    def pod_record(self, address: str, at: float | None) -> PodRecord | None:
        """The one that had it then."""
        ...

    def node_record(self, name: str, at: float | None) -> NodeRecord | None:
        """The Node of that name then."""
        ...

    def shared(self) -> tuple[bool, bool, bool]:
        """Whether there are addresses of several Pods, names of several Nodes, names of several Services."""
        ...

    def service_record(self, namespace: str, name: str, at: float | None) -> ServiceRecord | None:
        """The Service of that name then."""
        ...

    def is_of_one_node(self) -> bool:
        """Whether only one Node's Pods are known."""
        ...


class Table(Generic[RecordT]):
    """Turns the API's objects into records."""

    def __init__(
        self,
        record_type: Any,
        store: TimedStore[RecordT],
        *,
        wall: Callable[[], float],
        changes: Counter,
        unreadable: Counter,
    ) -> None:
        """Over an empty store.

        Args:
            record_type: the class itself: makes records, and says which of its objects count.
            store: gets them.
            wall: seconds since 1970.
            changes: counts objects.
            unreadable: counts those that lack what every object has.
        """
        self.store = store
        self._record_type = record_type
        self._wall = wall
        self._changes = changes
        self._unreadable = unreadable

    def begin_list(self) -> None:
        self.store.begin_list()

    def put(self, manifest: dict[str, Any]) -> None:
        self._changes.inc()
        try:
            if self._record_type.is_over(manifest):
                self.store.delete(uid_of(manifest), self._wall())
            elif self._record_type.is_wanted(manifest):
                self.store.put(self._record_type.of(manifest, self._wall()))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self._unreadable.inc()

    def delete(self, manifest: dict[str, Any]) -> None:
        self._changes.inc()
        try:
            self.store.delete(uid_of(manifest), self._wall())
        except (KeyError, TypeError, AttributeError):
            self._unreadable.inc()

    def end_list(self) -> int:
        return self.store.end_list(self._wall())


class _NodeStore(TimedStore[NodeRecord]):
    """Knows by which lengths of prefix to look for an address.

    Attributes:
        prefix_lengths: of the Pods' networks of all Nodes that there ever were, by version of IP; they are few.
    """

    def __init__(self, *, kept_seconds: float) -> None:
        super().__init__(NodeRecord, kept_seconds=kept_seconds)
        self.prefix_lengths: dict[int, set[int]] = {4: set(), 6: set()}

    def put(self, record: NodeRecord) -> None:
        super().put(record)
        for network in record.pod_networks:
            self.prefix_lengths[network.version].add(network.length)


class ClusterTables:
    """Three stores, and what is asked of them.

    Attributes:
        known: set when they have what there is in the cluster.
    """

    def __init__(self, kept_seconds: float, *, node: str = "") -> None:
        """Empty.

        Args:
            kept_seconds: how long what was deleted is held.
            node: whose Pods alone will be here; empty: all.
        """
        self.node = node
        self.known = trio.Event()
        self.pods = TimedStore(PodRecord, kept_seconds=kept_seconds)
        self.nodes = _NodeStore(kept_seconds=kept_seconds)
        self.services = TimedStore(ServiceRecord, kept_seconds=kept_seconds)

    def count_pods(self, address: str) -> int:
        return self.pods.count(_plain(address))

    def pod_record(self, address: str, at: float | None) -> PodRecord | None:
        return self.pods.find(_plain(address), at)

    def node_record(self, name: str, at: float | None) -> NodeRecord | None:
        return self.nodes.find(("name", name), at)

    def shared(self) -> tuple[bool, bool, bool]:
        return self.pods.has_shared_keys, self.nodes.has_shared_keys, self.services.has_shared_keys

    def node_at(self, address: str, at: float | None) -> NodeRecord | None:
        """The Node that had the address then."""
        return self.nodes.find(("address", _plain(address)), at)

    def pod_network(self, address: str, at: float | None) -> str | None:
        """The network of a Node's Pods that the address was in then; of several the smallest."""
        packed = ipaddress.ip_address(_plain(address))
        for length in sorted(self.nodes.prefix_lengths[packed.version], reverse=True):
            network = Network(packed.version, length, int(packed) >> packed.max_prefixlen - length)
            if self.nodes.find(("network", network), at) is not None:
                return str(network)
        return None

    def is_of_one_node(self) -> bool:
        return bool(self.node)

    def service_record(self, namespace: str, name: str, at: float | None) -> ServiceRecord | None:
        return self.services.find(("name", namespace, name), at)

    def service_at(self, address: str, port: int, protocol: int, at: float | None) -> ServiceRecord | None:
        """The Service behind a cluster address and port then."""
        return self.services.find((_plain(address), port, protocol), at)

    async def purge(self, wall: Callable[[], float], forgotten_early: Counter) -> None:
        """Let go of what was deleted long enough ago, until cancelled."""
        told = 0
        while True:
            await trio.sleep(_PURGE_SECONDS)
            stores: tuple[TimedStore[Any], ...] = (self.pods, self.nodes, self.services)
            for store in stores:
                while store.purge(wall(), _PURGE_AT_ONCE):
                    await trio.lowlevel.checkpoint()
            early = sum(store.forgotten_early for store in stores)
            forgotten_early.inc(early - told)
            told = early


class _Troubles:
    """What is wrong with each watch, and with the Node's name, as one sentence of the plugin's health."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._problems: dict[str, str] = {}
        self._told = ""

    def of(self, what: str) -> Callable[[str], None]:
        def tell(problem: str) -> None:
            self._problems[what] = problem
            told = "; ".join(filter(None, self._problems.values()))
            if told != self._told:
                self._told = told
                self._tell(told)

        return tell


@asynccontextmanager
async def open_tables(
    api: Api,
    config: KubernetesConfig,
    context: PluginContext,
    *,
    node: str = "",
    patience: float = inf,
    wall: Callable[[], float] = time.time,
    jitter: Callable[[], float] = random.random,
) -> AsyncIterator[ClusterTables]:
    """The tables of a cluster, once its Pods are known or ``patience`` is over; watches end with the context.

    Nodes and Services are waited for too, unless the server refuses to give them: then Pods alone are known, and the
    plugin's health says so.

    Args:
        api: of the cluster.
        config: what is kept.
        context: of the plugin.
        node: whose Pods alone are watched; empty: all.
        patience: after so many seconds the context is entered before the Pods are known, if only the server answers.
        wall: seconds since 1970.
        jitter: numbers from 0 up to 1.
    """
    tables = ClusterTables(config.deleted_pods_kept, node=node)
    changes = context.counter("changes", "Objects that the API server listed, and changes that it told.")
    unreadable = context.counter("objects_unreadable", "Objects of the API server that lack what every object has.")
    forgotten = context.counter("deleted_forgotten_early", "Deleted objects beyond the most that are held.")
    troubles = _Troubles(context.impaired)

    def watcher(  # of one kind of record
        resource: Resource, record_type: Any, store: TimedStore[Any], field_selector: str = ""
    ) -> Watcher:
        table: Table[Any] = Table(record_type, store, wall=wall, changes=changes, unreadable=unreadable)
        tell_trouble = troubles.of(resource.value)
        return Watcher(
            resource,
            api,
            table,
            log=context.log,
            random=jitter,
            tell_trouble=tell_trouble,
            field_selector=field_selector,
        )

    of_node = f"spec.nodeName={node}" if node else ""
    watchers = [watcher(Resource.PODS, PodRecord, tables.pods, of_node)]
    if config.nodes_and_services:
        watchers.append(watcher(Resource.NODES, NodeRecord, tables.nodes))
        watchers.append(watcher(Resource.SERVICES, ServiceRecord, tables.services))
    async with trio.open_nursery() as nursery:
        for each in watchers:
            nursery.start_soon(each.run)
        nursery.start_soon(tables.purge, wall, forgotten)
        nursery.start_soon(_note_known, tables, watchers)
        with trio.move_on_after(patience):
            await tables.known.wait()
        await watchers[0].heard.wait()
        if node and config.nodes_and_services:
            nursery.start_soon(_tell_unknown_node, tables, watchers[1], troubles.of("node"), context.log)
        yield tables
        nursery.cancel_scope.cancel()


async def _note_known(tables: ClusterTables, watchers: Sequence[Watcher]) -> None:
    pods, *others = watchers
    await pods.synced.wait()
    for each in others:
        await each.wait_settled()
    tables.known.set()


async def _tell_unknown_node(
    tables: ClusterTables, nodes: Watcher, tell_trouble: Callable[[str], None], log: Logger
) -> None:
    """Say so while there is no Node of the name whose Pods are watched, until cancelled: there will be none."""
    await nodes.synced.wait()
    if not any(tables.nodes.prefix_lengths.values()):
        log.warning("nodes_without_pod_networks", nodes=len(tables.nodes))
    while True:
        problem = (
            f"there is no Node {tables.node!r} in the cluster, so no Pod is found: NODE_NAME must be a Node's name"
        )
        tell_trouble("" if tables.node_record(tables.node, None) is not None else problem)
        await trio.sleep(_LOOK_SECONDS)


def _plain(address: str) -> str:
    """An IPv4 address inside an IPv6 one is the IPv4 address."""
    return address[len(_MAPPED) :] if address.startswith(_MAPPED) and "." in address else address
