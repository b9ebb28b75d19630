"""The Pods, Nodes and Services of a cluster, kept up to date by three watches."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, Protocol, TypeVar

import trio

from flowjoin.api import Counter, PluginContext
from flowjoin_kubernetes._client import Api
from flowjoin_kubernetes._config import KubernetesConfig
from flowjoin_kubernetes._records import NodeRecord, PodRecord, Record, ServiceRecord, uid_of
from flowjoin_kubernetes._store import TimedStore
from flowjoin_kubernetes._watch import Resource, Watcher

__all__ = ["ClusterTables", "Table", "Tables", "open_tables"]

RecordT = TypeVar("RecordT", bound=Record)

_PURGE_SECONDS: Final = 1.0
_PURGE_AT_ONCE: Final = 1000
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


class ClusterTables:
    """Three stores, and what is asked of them."""

    def __init__(self, kept_seconds: float) -> None:
        """Empty."""
        self.pods = TimedStore(PodRecord, kept_seconds=kept_seconds)
        self.nodes = TimedStore(NodeRecord, kept_seconds=kept_seconds)
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
    """What is wrong with each watch, as one sentence of the plugin's health."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._problems: dict[Resource, str] = {}
        self._told = ""

    def of(self, resource: Resource) -> Callable[[str], None]:
        def tell(problem: str) -> None:
            self._problems[resource] = problem
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
    wall: Callable[[], float] = time.time,
    jitter: Callable[[], float] = random.random,
) -> AsyncIterator[ClusterTables]:
    """The tables of a cluster, once its Pods are known; watches end with the context.

    Nodes and Services are waited for too, unless the server refuses to give them: then Pods alone are known, and the
    plugin's health says so.
    """
    tables = ClusterTables(config.deleted_pods_kept)
    changes = context.counter("changes", "Objects that the API server listed, and changes that it told.")
    unreadable = context.counter("objects_unreadable", "Objects of the API server that lack what every object has.")
    forgotten = context.counter("deleted_forgotten_early", "Deleted objects beyond the most that are held.")
    troubles = _Troubles(context.impaired)

    def watcher(resource: Resource, record_type: Any, store: TimedStore[Any]) -> Watcher:  # of one kind of record
        table: Table[Any] = Table(record_type, store, wall=wall, changes=changes, unreadable=unreadable)
        return Watcher(resource, api, table, log=context.log, random=jitter, tell_trouble=troubles.of(resource))

    watchers = [watcher(Resource.PODS, PodRecord, tables.pods)]
    if config.nodes_and_services:
        watchers.append(watcher(Resource.NODES, NodeRecord, tables.nodes))
        watchers.append(watcher(Resource.SERVICES, ServiceRecord, tables.services))
    async with trio.open_nursery() as nursery:
        for each in watchers:
            nursery.start_soon(each.run)
        nursery.start_soon(tables.purge, wall, forgotten)
        await watchers[0].synced.wait()
        for each in watchers[1:]:
            await each.wait_settled()
        yield tables
        nursery.cancel_scope.cancel()


def _plain(address: str) -> str:
    """An IPv4 address inside an IPv6 one is the IPv4 address."""
    return address[len(_MAPPED) :] if address.startswith(_MAPPED) and "." in address else address
