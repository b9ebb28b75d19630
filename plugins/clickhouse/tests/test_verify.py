"""A server that noted an insert and lost its rows: what it believes to have is inserted again, once.

ClickHouse notes an insert in a table's deduplication log before it stores the part. A kill in between is made here by
what it leaves: the log with the note, and no part.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from clickhouse_lane import context, deliver, expected, sums
from clickhouse_process import ClickHouseProcess, require_engine

from flowjoin.api import RetryableExportError, Secret
from flowjoin.testing.batches import numbered_flows
from flowjoin_clickhouse import ClickHouseConfig, SchemaConfig
from flowjoin_clickhouse._client import Connection
from flowjoin_clickhouse._exporter import _ClickHouseExporter, open_clickhouse
from flowjoin_clickhouse._verify import check_of

DAY = 86400
KILLS = int(os.environ.get("FLOWJOIN_KILLS", "5"))


@pytest.fixture
def crashing(tmp_path: Path, password: str) -> Iterator[ClickHouseProcess]:
    """A server of the test's own."""
    require_engine()
    process = ClickHouseProcess(tmp_path / "data", password=password)
    with process.running():
        yield process


@pytest.fixture
def config(crashing: ClickHouseProcess) -> ClickHouseConfig:
    return ClickHouseConfig(
        database_url=crashing.url,
        database="db",
        password=Secret("env", "CH_PASSWORD"),
        create_schema=True,
        schema=SchemaConfig(ttl=0.0),
    )


def lose_the_newest_part(server: ClickHouseProcess, *, table: str = "flows", partition: str = "") -> None:
    """The server dies between the note and the part."""
    where = f" AND partition_id = '{partition}'" if partition else ""
    (part,) = server.query(
        f"SELECT path FROM system.parts WHERE database = 'db' AND table = '{table}' AND active{where}"
        " ORDER BY max_block_number DESC LIMIT 1"
    )
    server.kill()
    shutil.rmtree(part[0])
    server.start()


async def test_rows_that_the_server_noted_and_lost_are_there_once_and_views_are_left_alone(
    crashing: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    batches = [numbered_flows(50, first=50 * number).with_id(f"instance/lane/1/{number}") for number in range(2)]
    ctx = context()
    async with open_clickhouse(config, ctx) as exporter:
        await deliver(exporter, batches[0])
        crashing.arm(match="INSERT INTO", drop="after")
        await deliver(exporter, batches[1], between=lambda: lose_the_newest_part(crashing))
        assert sums(crashing, "db") == expected(batches)
        await deliver(exporter, batches[1])
    assert sums(crashing, "db") == expected(batches)
    (line,) = [line for line in ctx.log.lines if line.event == "rows_inserted_again"]
    assert (line.level, line.facts["rows"], line.facts["views"]) == ("warning", 50, "left as they are")
    assert ctx.counters["rows_inserted_again"].value == 50
    assert ctx.counters["rows_delivered"].value == 150
    assert crashing.query("SELECT name FROM system.tables WHERE name LIKE '%again%'") == []


async def test_views_get_what_the_server_noted_and_lost_of_them(
    crashing: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    batches = [numbered_flows(50, first=50 * number).with_id(f"instance/lane/1/{number}") for number in range(2)]
    ctx = context()
    async with open_clickhouse(config, ctx) as exporter:
        await deliver(exporter, batches[0])
        crashing.arm(match="INSERT INTO", drop="after")
        views = [each.name for each in crashing.tables("db") if each.name != "flows"]
        assert len(views) == 4

        def lose_all_views() -> None:
            for view in views:
                lose_the_newest_part(crashing, table=view)

        await deliver(exporter, batches[1], between=lose_all_views)
        await deliver(exporter, batches[1])
    assert sums(crashing, "db") == expected(batches)
    mended = [line.facts["view"] for line in ctx.log.lines if line.event == "view_mended"]
    assert mended == ["flows_pod_view", "flows_node_view", "flows_policy_view", "flows_minute_view"]
    assert ctx.counters["view_rows_inserted_again"].value > 0
    assert ctx.counters["rows_inserted_again"].value == 0


async def test_the_first_batch_after_a_start_is_looked_for_because_it_may_come_from_before(
    crashing: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    batch = numbered_flows(50).with_id("instance/lane/1/1")
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, batch)
    lose_the_newest_part(crashing)
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, batch)
    assert sums(crashing, "db") == expected([batch])


async def test_without_the_right_to_make_tables_nothing_is_lost_and_it_is_said_that_views_may_double(
    crashing: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    batch = numbered_flows(50).with_id("instance/lane/1/1")
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, batch)
    for case in ("not configured", "not granted"):
        lose_the_newest_part(crashing)
        ctx = context()
        if case == "not granted":
            crashing.arm(match="CREATE TABLE .*_again_", code=497, message="Not enough privileges")
        async with open_clickhouse(dataclasses.replace(config, create_schema=case == "not granted"), ctx) as exporter:
            await deliver(exporter, batch)
        assert sums(crashing, "db")[0] == 50
        (line,) = [line for line in ctx.log.lines if line.event == "rows_inserted_again"]
        assert line.facts["views"] == "may have them twice"


async def test_rows_that_differ_from_earlier_ones_by_a_nodes_report_alone_are_missed(
    crashing: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    """The other node reports a flow after it was exported: nearly the same row again, in another batch."""
    flows = numbered_flows(50)
    again = flows.with_columns({"flowEndSecondsFromDestinationNode": [1_700_000_000] * 50})
    batches = [flows.with_id("instance/lane/1/1"), again.with_id("instance/lane/1/2")]
    ctx = context()
    async with open_clickhouse(config, ctx) as exporter:
        await deliver(exporter, batches[0])
        crashing.arm(match="INSERT INTO", drop="after")
        await deliver(exporter, batches[1], between=lambda: lose_the_newest_part(crashing))
    assert sums(crashing, "db") == expected(batches)
    assert ctx.counters["rows_inserted_again"].value == 50


async def test_only_the_partition_that_was_lost_is_inserted_again(
    crashing: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    ends = [1_700_000_000 + DAY * (row % 3) for row in range(60)]
    batch = numbered_flows(60).with_columns({"flowEndSeconds": ends}).with_id("instance/lane/1/1")
    ctx = context()
    async with open_clickhouse(config, ctx) as exporter:
        await deliver(exporter, batch)
        crashing.arm(match="INSERT INTO", drop="after")
        await deliver(exporter, batch, between=lambda: lose_the_newest_part(crashing, partition="20231115"))
    assert sums(crashing, "db") == expected([batch])
    assert ctx.counters["rows_inserted_again"].value == 20


async def test_parts_of_a_refused_batch_are_looked_for_too(
    crashing: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    days = [DAY * day for day in range(300)]  # more partitions than an insert may have
    batch = numbered_flows(300).with_columns({"flowEndSeconds": days}).with_id("instance/lane/1/1")
    config = dataclasses.replace(config, schema=SchemaConfig(ttl=0.0, views=False))
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, batch)
    lose_the_newest_part(crashing)
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, batch)
    assert crashing.query("SELECT count(), uniqExact(flowEndSeconds) FROM db.flows") == [[300, 300]]


async def test_what_may_not_be_asked_is_counted_and_named_and_the_flows_go_on(
    crashing: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    ctx = context()
    async with open_clickhouse(config, ctx) as exporter:
        crashing.arm(match=" AS key FROM", code=497, message="Not enough privileges")
        assert await deliver(exporter, numbered_flows(5).with_id("a")) == []
        crashing.arm(match="INSERT INTO", drop="after")
        with pytest.raises(RetryableExportError):
            await exporter.export(numbered_flows(5, first=5).with_id("b"))
        crashing.arm(match=" AS key FROM", code=241, message="Memory limit exceeded", times=9)
        assert len(await deliver(exporter, numbered_flows(5, first=5).with_id("b"))) == 2
    assert [line.event for line in ctx.log.lines if line.level == "warning"] == ["insert_not_verified"] * 2
    assert ctx.counters["inserts_unverified"].value == 2
    assert sums(crashing, "db") == expected([numbered_flows(10)])


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7])
async def test_cancelled_at_any_call_nothing_is_lost_and_nothing_is_doubled(
    crashing: ClickHouseProcess, config: ClickHouseConfig, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Calls of a batch whose rows were lost: insert, look, add to the table, and four views."""
    batch = numbered_flows(50).with_id("instance/lane/1/1")
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, batch)
    lose_the_newest_part(crashing)
    token, scope, calls = trio.lowlevel.current_trio_token(), trio.CancelScope(), 0
    in_thread = _ClickHouseExporter._in_thread

    async def cancelled_in_thread(self: Any, connection: Connection, function: Callable[[], Any]) -> Any:
        nonlocal calls
        calls += 1

        def cancelled() -> Any:
            token.run_sync_soon(scope.cancel)
            return function()

        return await in_thread(self, connection, cancelled if calls == number else function)

    async with open_clickhouse(config, context()) as exporter:
        with monkeypatch.context() as patched, trio.fail_after(60), scope:
            patched.setattr(_ClickHouseExporter, "_in_thread", cancelled_in_thread)
            await exporter.export(batch)
    assert calls >= number
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, batch)
        await deliver(exporter, batch)
    assert sums(crashing, "db") == expected([batch])


@pytest.mark.parametrize("statement", ["ATTACH PARTITION", "CREATE TABLE .*_again_", "INSERT INTO .*_again_"])
async def test_a_statement_that_begins_long_after_it_was_given_up_doubles_nothing(
    crashing: ClickHouseProcess, config: ClickHouseConfig, statement: str
) -> None:
    """The server is busy, and takes it up together with the same of the next exporter."""
    batch = numbered_flows(50).with_id("instance/lane/1/1")
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, batch)
    lose_the_newest_part(crashing)
    crashing.arm(match=statement, hold=True, times=2)
    async with open_clickhouse(config, context()) as exporter, trio.open_nursery() as nursery:
        nursery.start_soon(exporter.export, batch)
        await trio.to_thread.run_sync(crashing.wait_until_held, 1)
        nursery.cancel_scope.cancel()
    async with open_clickhouse(config, context()) as exporter, trio.open_nursery() as nursery:
        nursery.start_soon(deliver, exporter, batch)
        await trio.to_thread.run_sync(crashing.wait_until_held, 2)
        await trio.to_thread.run_sync(crashing.release)
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, batch)
    assert sums(crashing, "db") == expected([batch])


async def test_while_an_earlier_statement_is_under_way_nothing_is_looked_for(
    crashing: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    batch = numbered_flows(50).with_id("instance/lane/1/1")
    async with open_clickhouse(config, context()) as exporter:
        mark = exporter._mark  # type: ignore[attr-defined]  # of this exporter
        with crashing.busy_with(mark):
            for _ in range(5):  # more often than a look that fails is repeated
                with pytest.raises(RetryableExportError, match="an earlier statement is still under way there"):
                    await exporter.export(batch)
        assert await deliver(exporter, batch) == []
    assert sums(crashing, "db") == expected([batch])


async def test_who_may_not_see_what_is_under_way_still_gets_back_what_was_lost(
    crashing: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    batch = numbered_flows(50).with_id("instance/lane/1/1")
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, batch)
    lose_the_newest_part(crashing)
    crashing.arm(match=r"system\.processes", code=497, message="Not enough privileges")
    async with open_clickhouse(config, context()) as exporter:
        assert await deliver(exporter, batch) == []
    assert sums(crashing, "db") == expected([batch])


async def test_who_may_make_a_table_and_not_drop_it_has_no_row_twice(
    crashing: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    batch = numbered_flows(50).with_id("instance/lane/1/1")
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, batch)
    lose_the_newest_part(crashing)
    crashing.arm(match="DROP TABLE", code=497, message="Not enough privileges")
    async with open_clickhouse(config, context()) as exporter:
        assert await deliver(exporter, batch) == []
    assert crashing.query("SELECT count() FROM db.flows") == [[50]]
    assert crashing.query("SELECT count() FROM system.tables WHERE name LIKE '%again%'") == [[0]]


@pytest.mark.slow
async def test_killed_between_the_note_and_the_rows_nothing_is_lost_and_nothing_is_doubled(
    crashing: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    batches = [numbered_flows(200, first=200 * number).with_id(f"instance/lane/1/{number}") for number in range(KILLS)]
    first = numbered_flows(200, first=200 * KILLS).with_id("instance/lane/1/first")
    wrong = []

    def restart() -> None:
        if crashing.ends_soon():
            crashing.wait()
            crashing.start()

    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, first)
        for number, batch in enumerate(batches):
            tables = crashing.tables("db")
            assert len(tables) == 5, tables
            with crashing.killed_when_noted(tables[number % 5]):
                await deliver(exporter, batch, between=restart)
            if (
                not crashing.is_running
            ):  # it was killed after it had answered, before it had noted the insert everywhere
                restart()
            await deliver(exporter, batch)  # as after a crash of our own
            found, should = sums(crashing, "db"), expected([first, *batches[: number + 1]])
            if found != should:
                wrong.append((number, [have - want for have, want in zip(found, should, strict=True)]))
    assert not wrong, f"after these kills, differences: {wrong}"


@pytest.mark.parametrize(
    ("types", "columns"),
    [
        (
            {
                "flowEndSeconds": "DateTime('Europe/Berlin')",
                "octetTotalCount": "UInt64",
                "sourceTransportPort": "LowCardinality(UInt16)",
                "sourceIP": "LowCardinality(String)",
                "destinationIP": "IPv6",
            },
            ("flowEndSeconds", "sourceIP", "sourceTransportPort", "octetTotalCount"),
        ),
        ({"flowEndSeconds": "Date", "octetTotalCount": "UInt64", "sourceTransportPort": "UInt16"}, None),
        ({"flowEndSeconds": "DateTime", "octetTotalCount": "UInt32", "sourceTransportPort": "UInt16"}, None),
        ({}, None),
    ],
)
def test_only_columns_that_hold_what_was_sent_are_compared(
    types: dict[str, str], columns: tuple[str, ...] | None
) -> None:
    check = check_of(types)
    assert (None if check is None else check.columns) == columns
