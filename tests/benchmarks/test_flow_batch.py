"""What batches cost: ``pytest --benchmark-enable --benchmark-columns=median,ops tests/benchmarks/test_flow_batch.py``.

One batch of 4,096 rows with the elements that Antrea's agents send and as many distinct strings as a few
hundred Pods give.
"""

from __future__ import annotations

import pytest
from batch_examples import schema_of

from flowjoin._model.flow_batch import FlowBatch

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")

ROWS = 4096
NUMBERS = (
    *("flowStartSeconds", "flowEndSeconds", "flowEndReason", "sourceTransportPort", "destinationTransportPort"),
    *("protocolIdentifier", "packetTotalCount", "octetTotalCount", "packetDeltaCount", "octetDeltaCount"),
    *("reversePacketTotalCount", "reverseOctetTotalCount", "reversePacketDeltaCount", "reverseOctetDeltaCount"),
    *("destinationServicePort", "ingressNetworkPolicyType", "egressNetworkPolicyType", "flowType"),
)
ADDRESSES = ("sourceIPv4Address", "destinationIPv4Address", "destinationClusterIPv4")
STRINGS = (
    *("sourcePodName", "sourcePodNamespace", "sourceNodeName", "destinationPodName", "destinationPodNamespace"),
    *("destinationNodeName", "destinationServicePortName", "ingressNetworkPolicyName", "egressNetworkPolicyName"),
    *("tcpState", "egressName", "egressIP", "appProtocolName", "httpVals", "egressNodeName"),
)
SCHEMA = schema_of(*NUMBERS, *ADDRESSES, *STRINGS)
COLUMNS = {
    **{name: [row % 200 for row in range(ROWS)] for name in NUMBERS},
    **{name: [f"10.{row % 7}.0.{row % 250}" for row in range(ROWS)] for name in ADDRESSES},
    **{name: [f"{name}-{row % 300}" for row in range(ROWS)] for name in STRINGS},
}


@pytest.fixture
def batch() -> FlowBatch:
    """Fresh, so that no text of an address is remembered."""
    return FlowBatch.from_columns(SCHEMA, COLUMNS)


def fresh(batch: FlowBatch) -> FlowBatch:
    return batch.slice(0, ROWS)


def test_from_columns(benchmark):
    assert len(benchmark(FlowBatch.from_columns, SCHEMA, COLUMNS)) == ROWS


def test_rows(benchmark, batch):
    assert len(benchmark(lambda: list(fresh(batch).rows()))) == ROWS


def test_to_dicts(benchmark, batch):
    assert len(benchmark(lambda: fresh(batch).to_dicts())) == ROWS


def test_address_text(benchmark, batch):
    assert len(benchmark(lambda: fresh(batch).address_text("source")[:].tolist())) == ROWS


def test_map_distinct_of_one_element(benchmark, batch):
    assert len(benchmark(lambda: fresh(batch).map_distinct("sourcePodName", str.upper))) == ROWS


def test_map_distinct_of_two_elements(benchmark, batch):
    names = ("sourceIPv4Address", "sourceTransportPort")
    assert len(benchmark(lambda: fresh(batch).map_distinct(names, str))) == ROWS


def test_with_columns(benchmark, batch):
    made = batch.map_distinct("sourcePodName", str.upper)
    assert len(benchmark(batch.with_columns, {"sourcePodLabels": made})) == ROWS


def test_slice(benchmark, batch):
    assert len(benchmark(batch.slice, 100, 3000)) == 2900


def test_take(benchmark, batch):
    indices = range(0, ROWS, 2)
    assert len(benchmark(batch.take, indices)) == ROWS // 2


def test_concatenate_of_different_dictionaries(benchmark, batch):
    parts = [batch.take(range(at, at + 128)) for at in range(0, ROWS, 128)]
    assert len(benchmark(FlowBatch.concatenate, parts)) == ROWS


def test_arrow(benchmark, batch):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    assert benchmark(lambda: pa.record_batch(fresh(batch))).num_rows == ROWS
