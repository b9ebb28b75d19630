"""Antrea's standard record, column by column, in both releases' forms and both families, read back from the engine."""

from __future__ import annotations

import pytest
from clickhouse_connect.driver.client import Client

from flowjoin.api import AddressFamily
from flowjoin.testing.batches import standard_flow
from flowjoin.testing.context import RecordingContext
from flowjoin_clickhouse import ClickHouseConfig, SchemaConfig
from flowjoin_clickhouse._columns import insert_columns, table_columns
from flowjoin_clickhouse._exporter import open_clickhouse

INGRESS = "test-flow-aggregator-networkpolicy-ingress-allow"
EGRESS = "test-flow-aggregator-networkpolicy-egress-allow"
RULE = "test-flow-aggregator-networkpolicy-rule"
CLUSTER = "1b8a3a4e-7c5e-4f0e-8a35-0d6a0f8d7d11"


def arguments(release: str, family: AddressFamily) -> list[tuple[str, str, object]]:
    """Name, ClickHouse type and value of each argument of the INSERT, in order, as the record is described."""
    is_old = release == "antrea-2.3"
    v4 = family is AddressFamily.IPV4
    text, u8, u16, u64, when = "String", "UInt8", "UInt16", "UInt64", "DateTime"
    found: list[tuple[str, str, object]] = [
        ("flowStartSeconds", when, 1637706961),
        ("flowEndSeconds", when, 1637706973),
        ("flowEndSecondsFromSourceNode", when, 1637706974),
        ("flowEndSecondsFromDestinationNode", when, 1637706975),
        ("flowEndReason", u8, 3),
        ("sourceIP", text, "10.10.0.79" if v4 else "2001:0:3238:dfe1:63::fefb"),
        ("destinationIP", text, "10.10.0.80" if v4 else "2001:0:3238:dfe1:63::fefc"),
        ("sourceTransportPort", u16, 44752),
        ("destinationTransportPort", u16, 5201),
        ("protocolIdentifier", u8, 6),
        ("packetTotalCount", u64, 823188),
        ("octetTotalCount", u64, 30472817041),
        ("packetDeltaCount", u64, 241333),
        ("octetDeltaCount", u64, 8982624938),
        ("reversePacketTotalCount", u64, 471111),
        ("reverseOctetTotalCount", u64, 24500996),
        ("reversePacketDeltaCount", u64, 136211),
        ("reverseOctetDeltaCount", u64, 7083284),
        ("sourcePodName", text, "perftest-a"),
        ("sourcePodNamespace", text, "antrea-test"),
        ("sourceNodeName", text, "k8s-node-control-plane"),
        ("destinationPodName", text, "perftest-b"),
        ("destinationPodNamespace", text, "antrea-test-b"),
        ("destinationNodeName", text, "k8s-node-control-plane-b"),
        ("destinationClusterIP", text, "10.10.1.10" if v4 else "2001:0:3238:dfe1:64::a"),
        ("destinationServicePort", u16, 5202),
        ("destinationServicePortName", text, "perftest"),
        ("ingressNetworkPolicyName", text, INGRESS),
        ("ingressNetworkPolicyNamespace", text, "antrea-test-ns"),
        ("ingressNetworkPolicyRuleName", text, RULE),
        ("ingressNetworkPolicyRuleAction", u8, 2),
        ("ingressNetworkPolicyType", u8, 1),
        ("egressNetworkPolicyName", text, EGRESS),
        ("egressNetworkPolicyNamespace", text, "antrea-test-ns-e"),
        ("egressNetworkPolicyRuleName", text, f"{RULE}-e"),
        ("egressNetworkPolicyRuleAction", u8, 5 if is_old else 1),
        ("egressNetworkPolicyType", u8, 4 if is_old else 3),
        ("tcpState", text, "TIME_WAIT"),
        ("flowType", u8, 11 if is_old else 2),
        ("sourcePodLabels", text, '{"antrea-e2e":"perftest-a","app":"iperf"}'),
        ("destinationPodLabels", text, '{"antrea-e2e":"perftest-b","app":"iperf"}'),
        ("throughput", u64, 15902813472),
        ("reverseThroughput", u64, 12381344),
        ("throughputFromSourceNode", u64, 15902813473),
        ("throughputFromDestinationNode", u64, 15902813474),
        ("reverseThroughputFromSourceNode", u64, 12381345),
        ("reverseThroughputFromDestinationNode", u64, 12381346),
        ("clusterUUID", text, CLUSTER),
        ("egressName", text, "test-egress"),
        ("egressIP", text, "172.18.0.1" if v4 else "2001:0:3238:dfe1::ac12:1"),
    ]
    layer_7: list[tuple[str, str, object]] = [("appProtocolName", text, "http"), ("httpVals", text, "mockHttpString")]
    return [*found, *(layer_7 if is_old else []), ("egressNodeName", text, "test-egress-node")]


@pytest.mark.parametrize("family", list(AddressFamily))
@pytest.mark.parametrize("release", ["antrea-2.3", "antrea-2.7"])
async def test_each_column_is_the_standard_records(
    embedded: Client, request: pytest.FixtureRequest, release: str, family: AddressFamily
) -> None:
    database = request.node.name
    expected = arguments(release, family)
    assert insert_columns(release) == tuple(name for name, _, _ in expected)
    assert len(expected) == (53 if release == "antrea-2.3" else 51)
    old = {"egressNetworkPolicyRuleAction": 5, "egressNetworkPolicyType": 4, "flowType": 11}
    old_texts = {"appProtocolName": "http", "httpVals": "mockHttpString"}
    batch = standard_flow(family, **(old | old_texts if release == "antrea-2.3" else {}))
    context = RecordingContext(name="clickhouse", compatibility=release, cluster_uuid=CLUSTER)
    config = ClickHouseConfig(database_url="chdb://memory", database=database, schema=SchemaConfig(views=False))
    async with open_clickhouse(config, context) as exporter:
        await exporter.export(batch)
    values = [f"toUnixTimestamp({name})" if kind == "DateTime" else name for name, kind, _ in expected]
    (row,) = embedded.query(f"SELECT {', '.join(values)} FROM `{database}`.flows").result_rows
    assert list(zip([name for name, _, _ in expected], row, strict=True)) == [(n, v) for n, _, v in expected]
    columns = embedded.query(
        "SELECT name, type, default_expression FROM system.columns"
        f" WHERE table = 'flows' AND database = '{database}' ORDER BY position"
    ).result_rows
    kinds = [(name, kind) for name, kind, _ in expected]
    at_cluster = [name for name, _ in kinds].index("clusterUUID") + 1
    assert [(name, kind) for name, kind, _ in columns] == [
        ("timeInserted", "DateTime"),
        *kinds[:at_cluster],
        ("trusted", "UInt8"),
        *kinds[at_cluster:],
    ]
    assert {name: default for name, _, default in columns if default} == {"timeInserted": "now()", "trusted": "0"}
    assert len(table_columns(release)) == len(columns)


async def test_the_sorting_key_is_antreas_and_the_rest_is_as_configured(embedded: Client) -> None:
    config = ClickHouseConfig(database_url="chdb://memory", database="sorted", schema=SchemaConfig(ttl=3600.0))
    async with open_clickhouse(config, RecordingContext(name="clickhouse")) as exporter:
        await exporter.export(standard_flow())
    (row,) = embedded.query(
        "SELECT sorting_key, partition_key, engine_full FROM system.tables WHERE database = 'sorted' AND name = 'flows'"
    ).result_rows
    assert row[:2] == ("timeInserted, flowEndSeconds", "toYYYYMMDD(flowEndSeconds)")
    assert "TTL timeInserted + toIntervalSecond(3600)" in row[2]
    assert "non_replicated_deduplication_window = 1000, merge_with_ttl_timeout = 3600" in row[2]
    views = embedded.query("SELECT name FROM system.tables WHERE database = 'sorted' AND engine = 'MaterializedView'")
    assert sorted(name for (name,) in views.result_rows) == [
        "flows_minute_view",
        "flows_node_view",
        "flows_pod_view",
        "flows_policy_view",
    ]
    minute = embedded.query(
        "SELECT toUnixTimestamp(minute), sourcePodName, octetDeltaCount, flows FROM sorted.flows_minute_view"
    )
    assert minute.result_rows == [(1637706960, "perftest-a", 8982624938, 1)]
