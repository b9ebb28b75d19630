"""What rows get: metadata, labels and UIDs by Antrea's rules, and a look-up per distinct address."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from kubernetes_objects import node, pod, service
from kubernetes_stand_in import KubernetesStandIn

from flowjoin.api import AddressFamily, FlowBatch, FlowOrigin, PluginError, Value
from flowjoin.testing import RecordingContext, numbered_flows, plain_flows, standard_flow
from flowjoin_kubernetes import KubernetesConfig, _enricher, flowjoin_enricher_types
from flowjoin_kubernetes._client import load_api
from flowjoin_kubernetes._enricher import ADDS, FILLS, KubernetesEnricher, open_enricher
from flowjoin_kubernetes._records import NodeRecord, PodRecord, ServiceRecord
from flowjoin_kubernetes._tables import ClusterTables, Tables

START = 1_800_000_000
UIDS = {name: str(uuid.uuid5(uuid.NAMESPACE_DNS, name)) for name in ("one", "two", "node-1", "node-2", "web", "old")}


def octets(name: str) -> bytes:
    return uuid.UUID(UIDS[name]).bytes


class CountingTables(ClusterTables):
    """Counts look-ups of Pods by time."""

    def __init__(self) -> None:
        super().__init__(300.0)
        self.asked: list[tuple[str, float | None]] = []

    def pod_record(self, address: str, at: float | None) -> PodRecord | None:
        self.asked.append((address, at))
        return super().pod_record(address, at)


@pytest.fixture
def tables() -> CountingTables:
    """Two Pods on two Nodes, and a Service."""
    tables = CountingTables()
    tables.pods.put(PodRecord.of(pod("one", "10.0.0.1", "2001:db8::1", uid=UIDS["one"]), 0.0))
    labels = {"b": "2", "a": "1"}
    tables.pods.put(
        PodRecord.of(pod("two", "10.0.0.2", namespace="shop", node="node-2", labels=labels, uid=UIDS["two"]), 0)
    )
    for name in ("node-1", "node-2"):
        tables.nodes.put(NodeRecord.of(node(name, uid=UIDS[name]), 0.0))
    tables.services.put(ServiceRecord.of(service("web", "10.96.0.1", namespace="shop", uid=UIDS["web"]), 0.0))
    return tables


EMPTY = {
    f"{side}{what}": ""
    for side in ("source", "destination")
    for what in ("PodName", "PodNamespace", "NodeName", "PodLabels")
}


def flow(source: str = "10.0.0.1", destination: str = "10.0.0.2", **changes: Value) -> FlowBatch:
    """A flow between Nodes of which nothing is known but its addresses."""
    family = AddressFamily.IPV6 if ":" in source else AddressFamily.IPV4
    addresses = {f"sourceIPv{family.value}Address": source, f"destinationIPv{family.value}Address": destination}
    given: dict[str, Value] = {"flowType": 2, "flowStartSeconds": START}
    given |= {"destinationServicePortName": "", "egressNodeName": ""}
    given |= dict.fromkeys(FILLS, bytes(16))
    return standard_flow(family, **{**EMPTY, **given, **addresses, **changes})


def enriched(tables: Tables, batch: FlowBatch, context: RecordingContext | None = None) -> list[dict[str, Any]]:
    """The rows as the core makes them: a given value stays."""
    columns = KubernetesEnricher(tables, context or RecordingContext()).enrich(batch)
    rows = [dict(zip(batch.schema.names, row, strict=True)) for row in batch.rows()]
    for name, column in columns.items():
        assert name in (*ADDS, *FILLS)
        default = batch.schema.registry.by_name(name).default
        for row, value in zip(rows, column, strict=True):
            if row.get(name, "") in ("", default):
                row[name] = value
    return rows


def test_both_sides_of_a_flow_between_nodes_are_named(tables: CountingTables) -> None:
    (row,) = enriched(tables, flow())
    assert (row["sourcePodName"], row["sourcePodNamespace"], row["sourceNodeName"]) == ("one", "default", "node-1")
    assert (row["destinationPodName"], row["destinationPodNamespace"]) == ("two", "shop")
    assert row["destinationNodeName"] == "node-2"
    assert (row["sourcePodUUID"], row["sourceNodeUUID"]) == (octets("one"), octets("node-1"))
    assert (row["destinationPodUUID"], row["destinationNodeUUID"]) == (octets("two"), octets("node-2"))


@pytest.mark.parametrize("flow_type", [0, 1, 3, 4])
def test_flows_of_other_types_are_named_by_their_records_alone(tables: CountingTables, flow_type: int) -> None:
    context = RecordingContext(wants_pod_labels=True)
    (row,) = enriched(tables, flow(flowType=flow_type), context)
    assert (row["sourcePodName"], row["destinationPodName"], row["sourcePodLabels"]) == ("", "", "")
    assert tables.asked == []
    assert context.counters["rows_without_pod"].value == 0


def test_a_side_with_a_name_is_left_alone(tables: CountingTables) -> None:
    (row,) = enriched(tables, flow(sourcePodName="given", sourcePodNamespace="other"))
    assert (row["sourcePodName"], row["sourcePodNamespace"], row["sourceNodeName"]) == ("given", "other", "")
    assert row["sourcePodUUID"] == bytes(16)  # the Pod of that address is another
    assert row["destinationPodName"] == "two"


def test_the_uids_of_given_names_are_filled(tables: CountingTables) -> None:
    given = {"sourcePodName": "one", "sourcePodNamespace": "default", "sourceNodeName": "node-2", "flowType": 3}
    (row,) = enriched(tables, flow(**given))
    assert row["sourcePodUUID"] == octets("one")
    assert row["sourceNodeUUID"] == octets("node-2")  # what is named, whatever the Pod's own says


@pytest.mark.parametrize(
    ("labels", "text"), [(None, "{}"), ({}, "{}"), ({"test": "ut"}, '{"test":"ut"}')], ids=["null", "empty", "one"]
)
def test_labels_of_a_named_pod(labels: dict[str, str] | None, text: str) -> None:
    tables = CountingTables()
    tables.pods.put(PodRecord.of(pod("one", "10.0.0.1", labels=labels, uid=UIDS["one"]), 0.0))
    tables.pods.put(PodRecord.of(pod("two", "10.0.0.2", labels=labels, uid=UIDS["two"]), 0.0))
    named = {"sourcePodName": "one", "sourcePodNamespace": "default", "flowType": 1}
    named |= {"destinationPodName": "two", "destinationPodNamespace": "default"}
    (row,) = enriched(tables, flow(**named), RecordingContext(wants_pod_labels=True))
    assert (row["sourcePodLabels"], row["destinationPodLabels"]) == (text, text)


def test_labels_of_a_side_that_was_just_named(tables: CountingTables) -> None:
    (row,) = enriched(tables, flow(), RecordingContext(wants_pod_labels=True))
    assert (row["sourcePodLabels"], row["destinationPodLabels"]) == ("{}", '{"a":"1","b":"2"}')


def test_no_labels_without_a_name_without_a_namespace_or_without_a_pod(tables: CountingTables) -> None:
    context = RecordingContext(wants_pod_labels=True)
    given = {"sourcePodName": "one", "sourcePodNamespace": "", "flowType": 3}
    (row,) = enriched(tables, flow(destination="8.8.8.8", **given), context)
    assert (row["sourcePodLabels"], row["destinationPodLabels"]) == ("", "")
    assert context.counters["rows_without_pod"].value == 0
    gone = {"sourcePodName": "gone", "sourcePodNamespace": "default", "flowType": 3}
    (row,) = enriched(tables, flow("10.0.0.77", "8.8.8.8", **gone), context)
    assert row["sourcePodLabels"] == ""
    assert context.counters["rows_without_pod"].value == 1
    assert context.log.lines[-1].event == "pod_not_found"
    assert context.log.lines[-1].facts["address"] == "10.0.0.77"


def test_labels_that_are_not_wanted_are_not_given(tables: CountingTables) -> None:
    columns = KubernetesEnricher(tables, RecordingContext()).enrich(flow())
    assert "sourcePodLabels" not in columns


def test_the_wish_for_labels_is_heard_while_it_runs(tables: CountingTables) -> None:
    context = RecordingContext()
    enricher = KubernetesEnricher(tables, context)
    assert "sourcePodLabels" not in enricher.enrich(flow())
    context.wants_pod_labels = True
    assert list(enricher.enrich(flow())["destinationPodLabels"]) == ['{"a":"1","b":"2"}']


def test_an_address_that_no_pod_has_is_counted(tables: CountingTables) -> None:
    context = RecordingContext()
    (row,) = enriched(tables, flow(source="10.9.9.9"), context)
    assert row["sourcePodName"] == ""
    assert row["destinationPodName"] == "two"
    assert context.counters["rows_without_pod"].value == 1


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        ("", bytes(16)), ("shop/web:http", octets("web")), ("shop/web", octets("web")), ("shop/web:", octets("web")),
        ("shop/other:http", bytes(16)), ("web", bytes(16)), ("default/web:http", bytes(16)), ("/", bytes(16)),
    ],
)  # fmt: skip
def test_the_uid_of_a_service_is_that_of_the_text_before_the_colon(
    tables: CountingTables, text: str, uid: bytes
) -> None:
    (row,) = enriched(tables, flow(destinationServicePortName=text))
    assert row["destinationServiceUUID"] == uid


def test_the_uid_of_a_node_that_was_given_is_that_nodes(tables: CountingTables) -> None:
    (row,) = enriched(tables, flow(sourceNodeName="node-2"))
    assert (row["sourcePodName"], row["sourceNodeName"]) == ("one", "node-2")
    assert row["sourceNodeUUID"] == octets("node-2")


def test_the_uid_of_the_egress_node(tables: CountingTables) -> None:
    assert enriched(tables, flow(egressNodeName="node-2"))[0]["egressNodeUUID"] == octets("node-2")
    assert enriched(tables, flow(egressNodeName="node-9"))[0]["egressNodeUUID"] == bytes(16)


def test_the_other_family_has_its_own_addresses(tables: CountingTables) -> None:
    (row,) = enriched(tables, flow("2001:db8::1", "::ffff:10.0.0.2"))
    assert (row["sourcePodName"], row["destinationPodName"]) == ("one", "two")


def test_plain_flows_are_named_too(tables: CountingTables) -> None:
    batch = plain_flows(1)
    address = str(batch.column("sourceIPv4Address")[0])
    tables.pods.put(PodRecord.of(pod("router", address, uid=UIDS["old"]), 0.0))
    (row,) = enriched(tables, batch, RecordingContext(wants_pod_labels=True))
    assert (row["sourcePodName"], row["sourcePodLabels"]) == ("router", "{}")


def test_addresses_of_plain_flows_may_be_those_of_any_machine(tables: CountingTables) -> None:
    context = RecordingContext()
    KubernetesEnricher(tables, context).enrich(plain_flows(5))
    assert context.counters["rows_without_pod"].value == 0
    assert context.events == []


def test_an_empty_batch_gives_nothing(tables: CountingTables) -> None:
    assert KubernetesEnricher(tables, RecordingContext()).enrich(numbered_flows(0)) == {}


def batch_of(rows: Sequence[Mapping[str, Value]]) -> FlowBatch:
    return FlowBatch.concatenate([flow(**row) for row in rows])  # type: ignore[arg-type]  # addresses among them


def test_an_address_of_one_pod_is_looked_up_once_for_all_rows_of_a_batch(tables: CountingTables) -> None:
    rows = [
        {"flowStartSeconds": START + number, "source": "10.0.0.1", "destination": "10.0.0.2"} for number in range(50)
    ]
    named = enriched(tables, batch_of(rows))
    assert {row["sourcePodName"] for row in named} == {"one"}
    assert len(tables.asked) == 2


def test_an_address_that_several_pods_had_is_told_apart_by_each_flows_start(tables: CountingTables) -> None:
    tables.pods.delete(PodRecord.of(pod("one", uid=UIDS["one"]), 0).uid, START + 10.0)
    later = PodRecord.of(pod("old", "10.0.0.1", uid=UIDS["old"]), 0)
    tables.pods.put(later._replace(created=START + 20.0))
    starts = [START, START + 15, START + 30, START, START + 30]
    named = enriched(tables, batch_of([{"flowStartSeconds": start} for start in starts]))
    assert [row["sourcePodName"] for row in named] == ["one", "", "old", "one", "old"]
    assert len([asked for asked in tables.asked if asked[0] == "10.0.0.1"]) == 3
    assert len([asked for asked in tables.asked if asked[0] == "10.0.0.2"]) == 1  # of one Pod: once for all rows


def test_a_node_of_a_name_that_had_another_uid_is_told_apart_by_time(tables: CountingTables) -> None:
    tables.nodes.delete(octets("node-1"), START + 10.0)
    replaced = NodeRecord.of(node("node-1", uid=UIDS["old"]), 0)
    tables.nodes.put(replaced._replace(created=START + 20.0))
    named = enriched(tables, batch_of([{"flowStartSeconds": START}, {"flowStartSeconds": START + 30}]))
    assert [row["sourceNodeUUID"] for row in named] == [octets("node-1"), octets("old")]


def test_it_adds_names_and_labels_and_fills_uids() -> None:
    (enricher_type,) = flowjoin_enricher_types()
    assert set(enricher_type.adds) == set(EMPTY)
    assert all(name.endswith("UUID") for name in enricher_type.fills)


class Later:
    """The look-up's tables as the core forwards to them: not there yet, then there."""

    def __init__(self, tables: ClusterTables) -> None:
        self._tables: ClusterTables | None = None
        self._coming = tables

    def come(self) -> None:
        self._tables = self._coming

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if self._tables is None:
                raise PluginError("the look-up is not open", plugin="kubernetes")
            return getattr(self._tables, name)(*arguments)

        return call


async def test_it_shares_the_tables_of_the_look_up_and_waits_for_them(
    tables: CountingTables, autojump_clock: object, nursery: trio.Nursery
) -> None:
    later = Later(tables)
    opened = trio.Event()

    async def stay_open() -> None:
        context = RecordingContext(lookups={Tables: later})
        async with open_enricher(KubernetesConfig(), context) as enricher:
            opened.set()
            assert "sourcePodName" in enricher.enrich(flow())
            await trio.sleep_forever()

    nursery.start_soon(stay_open)
    await trio.sleep(10)
    assert not opened.is_set()
    later.come()
    await trio.sleep(2)
    assert opened.is_set()
    nursery.cancel_scope.cancel()


async def test_tables_of_one_node_are_not_enough_for_it(
    server: KubernetesStandIn, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_enricher, "load_api", lambda _config: load_api(KubernetesConfig(kubeconfig=kubeconfig)))
    server.put("pods", pod("far", "10.0.0.2", node="node-2"))
    local = ClusterTables(300.0, node="node-1")
    context = RecordingContext(lookups={Tables: local})
    with trio.fail_after(60):
        async with open_enricher(KubernetesConfig(), context) as enricher:
            assert enricher.enrich(flow())["destinationPodName"] == ["far"]


def test_proxy_rows_follow_the_rule_of_flows_between_nodes(tables: CountingTables) -> None:
    whole = flow()
    names = (*whole.schema.names,)
    schema = type(whole.schema)(
        origin=FlowOrigin.PROXY,
        family=whole.schema.family,
        elements=whole.schema.elements,
        registry=whole.schema.registry,
    )
    batch = FlowBatch.from_columns(schema, {name: list(whole.column(name)) for name in names})
    assert enriched(tables, batch)[0]["sourcePodName"] == "one"
