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

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
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
        self._without_pod = context.counter("rows_without_pod", "Sides of flows whose address is that of no known Pod.")

    def enrich(self, batch: FlowBatch) -> Mapping[str, Sequence[Value]]:
        columns: dict[str, Sequence[Value]] = {}
        if not len(batch):
            return columns
        wants_labels = self._context.wants_pod_labels
        for side in _SIDES:
            columns.update(self._side(batch, side, wants_labels))
        if "destinationServicePortName" in batch.schema:
            columns["destinationServiceUUID"] = self._by_name(batch, "destinationServicePortName", self._service_uid)
        if "egressNodeName" in batch.schema:
            columns["egressNodeUUID"] = self._by_name(batch, "egressNodeName", self._node_uid)
        return columns

    def _side(self, batch: FlowBatch, side: Side, wants_labels: bool) -> Mapping[str, Sequence[Value]]:
        address = f"{side}IPv{batch.schema.family.value}Address"
        is_plain = batch.schema.origin is FlowOrigin.PLAIN
        several = self._addresses_of_several(batch, address)
        all_timed = self._tables.has_deleted_nodes()
        names = [address, f"{side}PodName", f"{side}PodNamespace", f"{side}NodeName", "flowType"]
        if several or all_timed:
            names.append(_START)
        found: list[_Given] = []
        numbered: dict[tuple[Any, ...], int] = {}

        def look_up(row: tuple[Any, ...]) -> int:
            known = row if all_timed or row[0] in several else row[:_UNTIMED]  # when a flow began may not matter
            number = numbered.get(known)
            if number is None:
                text, name, namespace, node, flow_type = row[:_UNTIMED]
                at = float(row[_UNTIMED]) if len(row) > _UNTIMED else 0.0
                if name or is_plain or flow_type == _INTER_NODE:
                    given = self._of_pod(text, at, name, namespace, node, wants_labels)
                    given = given._replace(is_missing=False) if is_plain else given  # it may be any machine's
                else:
                    given = _Given(node_uid=self._node_uid(node, at))
                number = numbered[known] = len(found)
                found.append(given)
            return number

        numbers = batch.map_distinct(names, look_up)
        fields = dict(zip(_Given._fields, zip(*found, strict=True), strict=True))
        if any(fields["is_missing"]):
            self._count_missing(numbers.tolist(), found, side, address, batch)
        wanted = _ELEMENTS if wants_labels else _ELEMENTS[:-1]
        return {f"{side}{what}": numbers.map(fields[field].__getitem__) for what, field in wanted}

    def _addresses_of_several(self, batch: FlowBatch, address: str) -> set[str]:
        """Addresses of the batch that more than one Pod is known to have had."""
        several: set[str] = set()

        def note(text: str) -> bool:
            is_several = self._tables.count_pods(text) > 1
            if is_several:
                several.add(text)
            return is_several

        batch.map_distinct(address, note)
        return several

    def _of_pod(self, address: str, at: float, name: str, namespace: str, node: str, wants_labels: bool) -> _Given:
        pod = self._tables.pod_record(address, at)
        if pod is None:
            return _Given(node_uid=self._node_uid(node, at), is_missing=not name or (wants_labels and bool(namespace)))
        if name:
            is_named = bool(namespace)
            is_same = (pod.name, pod.namespace) == (name, namespace)
            return _Given(
                pod_uid=uid_octets(pod.uid) if is_same else _NO_UID,
                node_uid=self._node_uid(node, at),
                labels=pod.labels if wants_labels and is_named else "",
            )
        return self._whole(pod, node, at, wants_labels)

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

    def _by_name(self, batch: FlowBatch, name: str, uid: Callable[[str, float], bytes]) -> Sequence[Value]:
        return batch.map_distinct((name, _START), lambda row: uid(row[0], float(row[1])))

    def _node_uid(self, name: str, at: float) -> bytes:
        record = self._tables.node_record(name, at) if name else None
        return _NO_UID if record is None else uid_octets(record.uid)

    def _service_uid(self, port_name: str, at: float) -> bytes:
        """Of ``namespace/name:port``."""
        namespace, _, name = port_name.partition(":")[0].partition("/")
        record = self._tables.service_record(namespace, name, at) if name else None
        return _NO_UID if record is None else uid_octets(record.uid)


@asynccontextmanager
async def open_enricher(config: KubernetesConfig, context: PluginContext) -> AsyncIterator[Enricher]:
    """The enricher, once the cluster's Pods are known.

    It shares the tables of the look-up ``kubernetes`` where there is one and the enricher names no cluster of its own.

    Raises:
        ConfigError: there is no service account or kubeconfig that can be used.
    """
    shared = _shared_tables(config, context)
    if shared is not None:
        await _wait_open(shared)
        yield KubernetesEnricher(shared, context)
        return
    api = await trio.to_thread.run_sync(load_api, config, abandon_on_cancel=True)
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
