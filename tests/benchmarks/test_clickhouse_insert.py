"""A batch as an insert, beside clickhouse-connect's own forms of the same rows.

``pytest tests/benchmarks/test_clickhouse_insert.py --benchmark-enable --benchmark-columns=median`` prints the time for
50,000 rows of 51 columns: rows a second are 50,000 over the median. The first three encode only; compression and the
engine's time come on top and are measured by the last two.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
pytest.importorskip("flowjoin_clickhouse", reason="the ClickHouse plugin is not installed")

import lz4.frame
from clickhouse_connect import get_client
from clickhouse_connect.datatypes.registry import get_from_name
from clickhouse_connect.driver.insert import InsertContext
from clickhouse_connect.driver.transform import NativeTransform

from flowjoin.api import FlowBatch
from flowjoin.testing.batches import numbered_flows
from flowjoin_clickhouse._columns import ADDRESSES, ANTREA_TYPES, insert_columns
from flowjoin_clickhouse._encode import encode

ROWS = 50_000
COLUMNS = insert_columns("antrea-2.7")
ROUNDS = 5


def fresh() -> FlowBatch:
    """No text of an address is remembered in it."""
    return numbered_flows(ROWS)


def encoded(batch: FlowBatch) -> bytes:
    pieces = encode(batch, COLUMNS, cluster_uuid="uuid", unset_addresses_empty=True)
    return b"".join(octets for column in pieces for octets in column)


def values(batch: FlowBatch) -> list[Sequence[Any]]:
    """Python values by column."""
    found: list[Sequence[Any]] = []
    for name in COLUMNS:
        if name == "clusterUUID":
            found.append(["uuid"] * ROWS)
        elif name in ADDRESSES:
            found.append(list(batch.address_text(ADDRESSES[name])))  # type: ignore[arg-type]  # one of its literals
        else:
            found.append(batch.column(name).tolist())
    return found


def clickhouse_connects(data: Sequence[Sequence[Any]], *, column_oriented: bool) -> bytes:
    types = [get_from_name(ANTREA_TYPES[name]) for name in COLUMNS]
    context = InsertContext("flows", COLUMNS, types, data=data, column_oriented=column_oriented)
    return b"".join(NativeTransform().build_insert(context))


def test_native_columns(benchmark: Any) -> None:
    block = benchmark.pedantic(encoded, setup=lambda: ((fresh(),), {}), rounds=ROUNDS)
    assert len(block) > ROWS * 500


def test_clickhouse_connect_rows(benchmark: Any) -> None:
    def rows(batch: FlowBatch) -> bytes:
        return clickhouse_connects(list(zip(*values(batch), strict=True)), column_oriented=False)

    block = benchmark.pedantic(rows, setup=lambda: ((fresh(),), {}), rounds=ROUNDS)
    assert len(block) > ROWS * 500


def test_clickhouse_connect_columns(benchmark: Any) -> None:
    def columns(batch: FlowBatch) -> bytes:
        return clickhouse_connects(values(batch), column_oriented=True)

    block = benchmark.pedantic(columns, setup=lambda: ((fresh(),), {}), rounds=ROUNDS)
    assert len(block) > ROWS * 500


def test_lz4(benchmark: Any) -> None:
    block = encoded(fresh())
    assert len(benchmark.pedantic(lz4.frame.compress, (block,), rounds=ROUNDS)) < len(block)


@pytest.mark.skipif(importlib.util.find_spec("chdb") is None, reason="ClickHouse's engine is not installed")
def test_the_engine_itself(benchmark: Any) -> None:
    client = get_client(interface="chdb")
    client.command("CREATE DATABASE benchmark")
    columns = ", ".join(f"{name} {ANTREA_TYPES[name]}" for name in COLUMNS)
    client.command(f"CREATE TABLE benchmark.flows ({columns}) ENGINE = MergeTree ORDER BY flowEndSeconds")
    block = encoded(fresh())
    benchmark.pedantic(lambda: client.raw_insert("benchmark.flows", list(COLUMNS), block, fmt="Native"), rounds=ROUNDS)
    client.close()
