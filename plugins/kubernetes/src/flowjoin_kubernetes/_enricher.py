"""Gives flows the names, UIDs and labels of their Pods, Nodes and Services.

Which rows get what:

- A side without a Pod's name gets name, namespace and Node of the Pod that had its address when the flow began: flows
  between Nodes (of which one half may never come), and flows of exporting processes that know no Pods at all.
- A side with a Pod's name gets that Pod's labels, where they are wanted.
- A name gets the UID of what it names.

A Pod is found by its address; only where several have had it, by the flow's start too. So most of a batch takes one
look-up for each of its distinct addresses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import trio

from flowjoin.api import (
    ConfigError,
    Enricher,
    FlowBatch,
    FlowOrigin,
    PluginContext,
    PluginError,
    Value,
)
from flowjoin_kubernetes._client import load_api
from flowjoin_kubernetes._config import KubernetesConfig
from flowjoin_kubernetes._records import PodRecord, uid_octets
from flowjoin_kubernetes._tables import Tables, open_tables
from flowjoin_kubernetes._threads import in_thread

__all__ = ["ADDS", "FILLS", "KubernetesEnricher", "open_enricher"]

Side: TypeAlias = Literal["source", "destination"]

_SIDES: Final[tuple[Side, ...]] = ("source", "destination")
_BY_SIDE: Final = ("PodName", "PodNamespace", "NodeName", "PodLabels")
ADDS: Final = tuple(f"{side}{what}" for side in _SIDES for what in _BY_SIDE)
FILLS: Final = (
    *(f"{side}{what}UUID" for side in _SIDES for what in ("Pod", "Node")),
    "destinationServiceUUID",
    "egressNodeUUID",
)

_START: Final = "flowStartSeconds"
_INTER_NODE: Final = 2  # flowType of a flow between Pods on two Nodes
_UNTIMED: Final = 5  # columns beside the start
_NO_UID: Final = bytes(16)
_POLL_SECONDS: Final = 1.0


class _Given(NamedTuple):
    """What rows of one kind get for one side; empty where nothing is to be said.

    Attributes:
        is_missing: a Pod was looked up and there is none.
    """

    name: str = ""
    namespace: str = ""
    node: str = ""
    pod_uid: bytes = _NO_UID
    node_uid: bytes = _NO_UID
    labels: str = ""
    is_missing: bool = False


_NOTHING: Final = _Given()
_MISSING: Final = _Given(is_missing=True)
_ELEMENTS: Final = (
    ("PodName", "name"),
    ("PodNamespace", "namespace"),
    ("NodeName", "node"),
    ("PodUUID", "pod_uid"),
    ("NodeUUID", "node_uid"),
    ("PodLabels", "labels"),
)


class KubernetesEnricher:
    """Over tables that are kept up to date elsewhere."""

    def __init__(self, tables: Tables, context: PluginContext) -> None:
        """Count in the context."""
        self._tables = tables
        self._context = context
        self._node_uids: dict[tuple[str, float], bytes] = {}  # of the batch at hand: many Pods, few Nodes
        self._without_pod = context.counter("rows_without_pod", "Sides of flows whose address is that of no known Pod.")

    def enrich(self, batch: FlowBatch) -> Mapping[str, Sequence[Value]]:
        columns: dict[str, Sequence[Value]] = {}
        if not len(batch):
            return columns
        self._node_uids.clear()
        wants_labels = self._context.wants_pod_labels
        share_addresses, share_nodes, share_services = self._tables.shared()
        for side in _SIDES:
            several = self._addresses_of_several(batch, side) if share_addresses else frozenset()
            columns.update(self._side(batch, side, several, share_nodes, wants_labels))
        if "destinationServicePortName" in batch.schema:
            columns["destinationServiceUUID"] = self._by_name(
                batch, "destinationServicePortName", self._service_uid, share_services
            )
        if "egressNodeName" in batch.schema:
            columns["egressNodeUUID"] = self._by_name(batch, "egressNodeName", self._node_uid, share_nodes)
        return columns

    def _side(
        self, batch: FlowBatch, side: Side, several: Set[str], all_timed: bool, wants_labels: bool
    ) -> Mapping[str, Sequence[Value]]:
        address = _address(batch, side)
        is_plain = batch.schema.origin is FlowOrigin.PLAIN
        names = [address, f"{side}PodName", f"{side}PodNamespace", f"{side}NodeName", "flowType"]
        if several or all_timed:
            names.append(_START)
        found: list[_Given] = []
        numbered: dict[tuple[Any, ...], int] = {}

        def look_up(row: tuple[Any, ...]) -> int:
            text, name, namespace, node, flow_type = row[:_UNTIMED]
            if name or is_plain or flow_type == _INTER_NODE:
                at = float(row[_UNTIMED]) if len(row) > _UNTIMED else 0.0
                given = self._of_pod(text, at, name, namespace, node, wants_labels)
                if is_plain and given.is_missing:  # it may be any machine's
                    given = given._replace(is_missing=False)
            else:
                given = self._of_node(node, float(row[_UNTIMED]) if len(row) > _UNTIMED else 0.0)
            found.append(given)
            return len(found) - 1

        def look_up_once(row: tuple[Any, ...]) -> int:
            known = row if all_timed or row[0] in several else row[:_UNTIMED]  # when a flow began may not matter
            number = numbered.get(known)
            if number is None:
                number = numbered[known] = look_up(row)
            return number

        numbers = batch.map_distinct(names, look_up_once if len(names) > _UNTIMED else look_up)
        fields = dict(zip(_Given._fields, zip(*found, strict=True), strict=True))
        if any(fields["is_missing"]):
            self._count_missing(numbers.tolist(), found, side, address, batch)
        wanted = _ELEMENTS if wants_labels else _ELEMENTS[:-1]
        return {f"{side}{what}": numbers.map(fields[field].__getitem__) for what, field in wanted}

    def _addresses_of_several(self, batch: FlowBatch, side: Side) -> Set[str]:
        """Addresses of the batch that more than one Pod is known to have had."""
        several: set[str] = set()

        def note(text: str) -> bool:
            is_several = self._tables.count_pods(text) > 1
            if is_several:
                several.add(text)
            return is_several

        batch.map_distinct(_address(batch, side), note)
        return several

    def _of_pod(self, address: str, at: float, name: str, namespace: str, node: str, wants_labels: bool) -> _Given:
        pod = self._tables.pod_record(address, at)
        if pod is None:
            is_missing = not name or (wants_labels and namespace)
            if not node:
                return _MISSING if is_missing else _NOTHING
            return _Given(node_uid=self._node_uid(node, at), is_missing=bool(is_missing))
        if name:
            is_named = bool(namespace)
            is_same = (pod.name, pod.namespace) == (name, namespace)
            return _Given(
                pod_uid=uid_octets(pod.uid) if is_same else _NO_UID,
                node_uid=self._node_uid(node, at),
                labels=pod.labels if wants_labels and is_named else "",
            )
        return self._whole(pod, node, at, wants_labels)

    def _of_node(self, node: str, at: float) -> _Given:
        return _Given(node_uid=self._node_uid(node, at)) if node else _NOTHING

    def _whole(self, pod: PodRecord, node: str, at: float, wants_labels: bool) -> _Given:
        return _Given(
            name=pod.name,
            namespace=pod.namespace,
            node=pod.node,
            pod_uid=uid_octets(pod.uid),
            node_uid=self._node_uid(node or pod.node, at),
            labels=pod.labels if wants_labels else "",
        )

    def _count_missing(
        self, numbers: Sequence[Value], found: Sequence[_Given], side: Side, address: str, batch: FlowBatch
    ) -> None:
        missing = {number for number, given in enumerate(found) if given.is_missing}
        rows = [row for row, number in enumerate(numbers) if number in missing]
        self._without_pod.inc(len(rows))
        self._context.log.warning("pod_not_found", side=side, rows=len(rows), address=batch.column(address)[rows[0]])

    def _by_name(
        self, batch: FlowBatch, name: str, uid: Callable[[str, float], bytes], is_timed: bool
    ) -> Sequence[Value]:
        if not is_timed:
            return batch.map_distinct(name, lambda text: uid(text, 0.0))
        return batch.map_distinct((name, _START), lambda row: uid(row[0], float(row[1])))

    def _node_uid(self, name: str, at: float) -> bytes:
        uid = self._node_uids.get((name, at))
        if uid is None:
            record = self._tables.node_record(name, at) if name else None
            uid = self._node_uids[name, at] = _NO_UID if record is None else uid_octets(record.uid)
        return uid

    def _service_uid(self, port_name: str, at: float) -> bytes:
        """Of ``namespace/name:port``."""
        namespace, _, name = port_name.partition(":")[0].partition("/")
        record = self._tables.service_record(namespace, name, at) if name else None
        return _NO_UID if record is None else uid_octets(record.uid)


def _address(batch: FlowBatch, side: Side) -> str:
    return f"{side}IPv{batch.schema.family.value}Address"


@asynccontextmanager
async def open_enricher(config: KubernetesConfig, context: PluginContext) -> AsyncIterator[Enricher]:
    """The enricher, once the cluster's Pods are known.

    It shares the tables of the look-up ``kubernetes`` where there is one that knows all Pods, and the enricher names no
    cluster of its own.

    Raises:
        ConfigError: there is no service account or kubeconfig that can be used.
    """
    shared = _shared_tables(config, context)
    if shared is not None:
        await _wait_open(shared)
        if not shared.is_of_one_node():
            yield KubernetesEnricher(shared, context)
            return
    api = await in_thread(partial(load_api, config))
    async with open_tables(api, config, context) as tables:
        yield KubernetesEnricher(tables, context)


def _shared_tables(config: KubernetesConfig, context: PluginContext) -> Tables | None:
    if config.kubeconfig is not None or config.context:
        return None
    try:
        return context.lookup(Tables)
    except ConfigError:
        return None


async def _wait_open(tables: Tables) -> None:
    """Until the look-up has its tables: rows that pass before are offered again."""
    while True:
        try:
            tables.node_record("", None)
        except PluginError:
            await trio.sleep(_POLL_SECONDS)
        else:
            await trio.lowlevel.checkpoint()
            return
