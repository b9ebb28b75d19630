"""A batch as an insert, beside clickhouse-connect's own forms of the same rows.

``pytest tests/benchmarks/test_clickhouse_insert.py --benchmark-enable --benchmark-columns=median`` prints the time for
50,000 rows of 51 columns: rows a second are 50,000 over the median. The first three encode only. The two that insert
count this process's CPU from the batch to the server's answer, compression and HTTP included, the server's not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
pytest.importorskip("flowjoin_clickhouse", reason="the ClickHouse plugin is not installed")

import lz4.frame
from clickhouse_connect import get_client
from clickhouse_connect.datatypes.registry import get_from_name
from clickhouse_connect.driver.insert import InsertContext
from clickhouse_connect.driver.transform import NativeTransform
from clickhouse_process import ClickHouseProcess, require_engine, require_engine_inside

from flowjoin.api import FlowBatch
from flowjoin.testing.batches import numbered_flows
from flowjoin_clickhouse import ClickHouseConfig, SchemaConfig
from flowjoin_clickhouse._client import Connection
from flowjoin_clickhouse._columns import ADDRESSES, ANTREA_TYPES, insert_columns
from flowjoin_clickhouse._encode import encode

ROWS = 50_000
COLUMNS = insert_columns("antrea-2.7")
ROUNDS = 5
# The same rows are inserted in each round, and must all be there.
WITHOUT_VIEWS = SchemaConfig(views=False, ttl=0.0, deduplication_window=0)


def rounds(benchmark: Any) -> int:
    """One where nothing is measured."""
    return ROUNDS if benchmark.enabled else 1


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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseProcess]:
    require_engine()
    process = ClickHouseProcess(tmp_path_factory.mktemp("clickhouse") / "data")
    with process.running():
        yield process


def opened(config: ClickHouseConfig) -> Connection:
    registry = fresh().schema.registry
    connection = Connection(config, compatibility="antrea-2.7", registry=registry, mark="benchmark", answered=int)
    connection.open()
    return connection


@pytest.mark.benchmark(timer=time.process_time)
def test_batch_to_insert(benchmark: Any, server: ClickHouseProcess) -> None:
    config = ClickHouseConfig(database_url=server.url, database="ours", create_schema=True, schema=WITHOUT_VIEWS)
    connection = opened(config)

    def insert(batch: FlowBatch) -> None:
        pieces = encode(batch, COLUMNS, cluster_uuid="uuid", unset_addresses_empty=True)
        connection.insert([octets for column in pieces for octets in column], COLUMNS, "")

    benchmark.pedantic(insert, setup=lambda: ((fresh(),), {}), rounds=ROUNDS)
    connection.close()
    assert server.query("SELECT count() FROM ours.flows") == [[ROWS * rounds(benchmark)]]


@pytest.mark.benchmark(timer=time.process_time)
def test_batch_to_insert_of_rows_by_clickhouse_connect(benchmark: Any, server: ClickHouseProcess) -> None:
    config = ClickHouseConfig(database_url=server.url, database="theirs", create_schema=True, schema=WITHOUT_VIEWS)
    connection = opened(config)
    connection.close()
    client = get_client(
        host="127.0.0.1", port=server.port, username="default", compress="lz4", autogenerate_session_id=False
    )

    def insert(batch: FlowBatch) -> None:
        client.insert("flows", list(zip(*values(batch), strict=True)), list(COLUMNS), database="theirs")

    benchmark.pedantic(insert, setup=lambda: ((fresh(),), {}), rounds=ROUNDS)
    client.close()
    assert server.query("SELECT count() FROM theirs.flows") == [[ROWS * rounds(benchmark)]]


def test_lz4(benchmark: Any) -> None:
    block = encoded(fresh())
    assert len(benchmark.pedantic(lz4.frame.compress, (block,), rounds=ROUNDS)) < len(block)


def test_the_engine_itself(benchmark: Any) -> None:
    require_engine_inside()
    client = get_client(interface="chdb")
    client.command("CREATE DATABASE benchmark")
    columns = ", ".join(f"{name} {ANTREA_TYPES[name]}" for name in COLUMNS)
    client.command(f"CREATE TABLE benchmark.flows ({columns}) ENGINE = MergeTree ORDER BY flowEndSeconds")
    block = encoded(fresh())
    benchmark.pedantic(lambda: client.raw_insert("benchmark.flows", list(COLUMNS), block, fmt="Native"), rounds=ROUNDS)
    client.close()
