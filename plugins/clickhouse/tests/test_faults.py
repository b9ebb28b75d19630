"""Whatever the server does, rows in are rows out: nothing lost, nothing doubled where windows are.

The test plays the lane: the same batch comes again after each RetryableExportError, and never after anything else.
"""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import trio
from clickhouse_lane import context, deliver, expected, sums
from clickhouse_process import ClickHouseProcess, require_engine
from waiting import wait_until

from flowjoin.api import ConfigError, PermanentExportError, RetryableExportError
from flowjoin.testing.batches import numbered_flows, plain_flows
from flowjoin_clickhouse import ClickHouseConfig, SchemaConfig, _sockets
from flowjoin_clickhouse._exporter import open_clickhouse

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "exporters" / "clickhouse.md"


FAULTS: dict[str, dict[str, Any]] = {
    "busy (202, status 503)": {"status": 503, "code": 202, "message": "Too many simultaneous queries"},
    "too many parts (252)": {"code": 252, "message": "Too many parts (300). Merges are processing slower than inserts"},
    "out of memory (241)": {"code": 241, "message": "Memory limit exceeded"},
    "disk full (243)": {"code": 243, "message": "Cannot reserve 1.00 MiB, not enough space"},
    "read-only server (164)": {"code": 164, "message": "Cannot execute query in readonly mode"},
    "read-only table (242), as of a replica that lost its Keeper": {"code": 242, "message": "Table is readonly"},
    "timed out inside the server (159)": {"code": 159, "message": "Timeout exceeded"},
    "an error of another kind (49)": {"code": 49, "message": "Logical error"},
    "a proxy's error (502)": {"status": 502, "code": 0, "message": "Bad gateway"},
    "a portal's page (200)": {"page": "<html>Please log in</html>"},
    "an empty answer (200) that is not ClickHouse's": {"page": ""},
    "an exception in an answer that begins with 200": {
        "page": "Code: 241. DB::Exception: Memory limit exceeded",
        "headers": {"X-ClickHouse-Summary": "{}"},
    },
    "a redirect (307)": {"status": 307, "page": "", "headers": {"Location": "https://elsewhere.example/?query=x"}},
    "the connection is closed before the insert": {"drop": "before"},
    "the connection is closed in the middle of the insert": {"drop": "middle"},
    "the rows are stored, and the answer is lost": {"drop": "after"},
    "slower than `timeout`": {"delay": 1.5},
}
ROWS = 100  # in two batches


@pytest.mark.parametrize("fault", FAULTS)
async def test_rows_in_are_rows_out_under_each_fault(
    server: ClickHouseProcess, config: ClickHouseConfig, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [numbered_flows(50, first=50 * number).with_id(f"instance/lane/1/{number}") for number in range(2)]
    ctx = context()
    is_slow = "delay" in FAULTS[fault]
    async with open_clickhouse(config, ctx) as exporter:
        await deliver(exporter, batches[0])
    async with open_clickhouse(dataclasses.replace(config, timeout=1.0 if is_slow else 60.0), ctx) as exporter:
        server.arm(match="INSERT INTO", times=2, **FAULTS[fault])
        problems = await deliver(exporter, batches[1])
        # A busy machine may be too slow once more than it was told to be.
        assert len(problems) >= 2 if is_slow else len(problems) == 2, problems
        assert all(server.url in problem for problem in problems)
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, batches[1])  # a restart, before which it was not acknowledged
    # An insert that was answered too late is still under way in the server: the answer comes when it is done.
    wait_until(lambda: sums(server, config.database) == expected(batches))
    ((rows, different),) = server.query(f"SELECT count(), uniqExact(octetTotalCount) FROM {config.database}.flows")
    assert ctx.counters["rows_delivered"].value == ROWS
    assert f"| {fault} | {ROWS} | {rows} | 0 | {int(rows) - int(different)} |" in REFERENCE.read_text(encoding="utf-8")
    assert [record.name for record in caplog.records] == [], "what the client library logs is in our errors"


def test_the_reference_has_no_fault_that_was_not_tried() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    table = text[text.index("| fault |") :].partition("\n\n")[0].splitlines()[2:]
    assert [line.split(" | ")[0].removeprefix("| ") for line in table] == list(FAULTS)


async def test_a_redirect_is_named_and_not_followed(server: ClickHouseProcess, config: ClickHouseConfig) -> None:
    async with open_clickhouse(config, context()) as exporter:
        server.arm(match="INSERT INTO", **FAULTS["a redirect (307)"])
        (problem,) = await deliver(exporter, numbered_flows(1).with_id("a"))
    assert problem == f"{server.url}: redirected to https://elsewhere.example/: write that into databaseURL"


@pytest.mark.parametrize("status", [200, 500])
async def test_a_page_that_repeats_the_request_shows_no_password(
    server: ClickHouseProcess, config: ClickHouseConfig, password: str, status: int
) -> None:
    page = {"page": "<pre>", "reflect": True, "status": status, "headers": {"X-ClickHouse-Summary": "{}"}}
    async with open_clickhouse(config, context()) as exporter:
        server.arm(match="INSERT INTO", **page)
        (problem,) = await deliver(exporter, numbered_flows(1).with_id("a"))
    assert "Authorization: Basic ***" in problem
    for secret in (password, base64.b64encode(f"default:{password}".encode()).decode()):
        assert secret not in problem


async def test_an_answer_without_end_is_cut_off(
    server: ClickHouseProcess, config: ClickHouseConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sockets, "_LONGEST_ANSWER", 1024 * 1024)
    batch = numbered_flows(5).with_id("a")
    async with open_clickhouse(config, context()) as exporter:
        for statement in ("SELECT", "INSERT INTO"):  # a question of the check after a start, and an insert
            server.arm(match=statement, endless=True)
            with trio.fail_after(60):
                (problem,) = await deliver(exporter, batch)
            assert problem == f"{server.url}: answered with more than 1048576 octets"
    assert sums(server, config.database) == expected([batch])


async def test_an_answer_that_comes_octet_by_octet_is_waited_for(
    server: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    batch = numbered_flows(5).with_id("a")
    async with open_clickhouse(config, context()) as exporter:
        server.arm(match=".", octets=True, times=5)
        assert await deliver(exporter, batch) == []
    assert sums(server, config.database) == expected([batch])


async def test_what_the_library_says_of_the_whole_request_is_not_repeated(
    tmp_path: Path, config: ClickHouseConfig, password: str
) -> None:
    require_engine()
    server = ClickHouseProcess(tmp_path / "data", password=password)
    with server.running():
        config = dataclasses.replace(config, database_url=server.url)
        async with open_clickhouse(config, context()) as exporter:
            await deliver(exporter, numbered_flows(1).with_id("a"))
            server.kill()
            with pytest.raises(RetryableExportError) as caught:
                await exporter.export(numbered_flows(1).with_id("b"))
    assert str(caught.value).startswith(f"{server.url}: ")
    assert "refused" in str(caught.value) or "Connection aborted" in str(caught.value)
    assert "INSERT" not in str(caught.value)


@pytest.mark.slow
async def test_killed_in_mid_insert_and_restarted_each_row_is_there_once(
    tmp_path: Path, config: ClickHouseConfig, password: str
) -> None:
    require_engine()
    server = ClickHouseProcess(tmp_path / "data", password=password)
    with server.running():
        config = dataclasses.replace(config, database_url=server.url, timeout=120.0)
        batches = [
            numbered_flows(3000, first=3000 * number).with_id(f"instance/lane/1/{number}") for number in range(8)
        ]
        is_doomed, interrupted = False, 0

        def restart() -> None:
            nonlocal is_doomed
            if is_doomed:
                server.wait()
                server.start()
            is_doomed = False

        async with open_clickhouse(config, context()) as exporter:
            await deliver(exporter, plain_flows(1).with_id("first"))
            for number, batch in enumerate(batches):
                server.arm(match="INSERT INTO", kill=0.006 * number)
                is_doomed = True
                interrupted += bool(await deliver(exporter, batch, between=restart))
                restart()  # a quick insert is answered before
                # What is at the server before a crash is asked for again, as after a crash of our own.
                await deliver(exporter, batch)
        assert interrupted, "no insert was interrupted"
        whole = expected([*batches, plain_flows(1)])
        assert sums(server, config.database) == whole


async def test_a_server_that_is_absent_at_start_is_found_when_it_comes(
    tmp_path: Path, config: ClickHouseConfig, password: str
) -> None:
    require_engine()
    server = ClickHouseProcess(tmp_path / "data", password=password)
    with server.running():
        server.kill()
        config = dataclasses.replace(config, database_url=server.url)
        batch = numbered_flows(5).with_id("a")
        async with open_clickhouse(config, context()) as exporter:
            problems = await deliver(exporter, batch, between=lambda: server.is_running or server.start())
        assert len(problems) == 1
        assert sums(server, config.database) == expected([batch])


async def test_a_plain_table_of_antreas_is_said_to_be_at_least_once_and_doubles(
    server: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    windowless = dataclasses.replace(config, schema=SchemaConfig(deduplication_window=0, ttl=0.0, views=False))
    ctx = context()
    batch = numbered_flows(5).with_id("a")
    async with open_clickhouse(windowless, ctx) as exporter:
        server.arm(match="INSERT INTO", drop="after")
        assert len(await deliver(exporter, batch)) == 1
    (line,) = [line for line in ctx.log.lines if line.event == "table_opened"]
    assert (line.level, line.facts["promise"]) == ("warning", "at least once on this table")
    assert line.facts["without_window"] == [f"{config.database}.flows"]
    assert server.query(f"SELECT count() FROM {config.database}.flows") == [[10]]


async def test_create_schema_gives_an_existing_table_and_its_view_their_windows(
    server: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    name = config.database
    server.command(f"CREATE DATABASE {name}")
    server.command(f"CREATE TABLE {name}.flows (flowEndSeconds DateTime) ENGINE = MergeTree ORDER BY flowEndSeconds")
    server.command(f"CREATE TABLE {name}.mine (n UInt64) ENGINE = MergeTree ORDER BY n")
    server.command(f"CREATE MATERIALIZED VIEW {name}.v TO {name}.mine AS SELECT count() AS n FROM {name}.flows")
    ctx = context()
    batch = numbered_flows(5).with_id("a")
    async with open_clickhouse(dataclasses.replace(config, schema=SchemaConfig(views=False)), ctx) as exporter:
        server.arm(match="INSERT INTO", drop="after")
        await deliver(exporter, batch)
    assert [line.facts["promise"] for line in ctx.log.lines if line.event == "table_opened"] == ["exactly once"]
    (added,) = [line.facts["columns"] for line in ctx.log.lines if line.event == "columns_added"]
    assert isinstance(added, list)
    assert len(added) == 50
    assert server.query(f"SELECT sum(n), count() FROM {name}.mine") == [[5, 1]]
    assert server.query(f"SELECT count(), max(sourcePodName) != '' FROM {name}.flows") == [[5, 1]]


async def test_missing_columns_are_named_once_and_rows_wait_until_they_are_there(
    server: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    ctx = context()
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, numbered_flows(1).with_id("a"))
    name = config.database
    for view in ("pod", "node", "policy", "minute"):
        server.command(f"DROP VIEW {name}.flows_{view}_view")
    server.command(f"ALTER TABLE {name}.flows DROP COLUMN egressNodeName, DROP COLUMN tcpState")
    fixed = dataclasses.replace(config, create_schema=False)
    async with open_clickhouse(fixed, ctx) as exporter:
        problems = await deliver(
            exporter,
            numbered_flows(1).with_id("b"),
            between=lambda: server.command(
                f"ALTER TABLE {name}.flows ADD COLUMN egressNodeName String, ADD COLUMN tcpState String"
            ),
        )
    assert problems == [
        f"the table {name}.flows has no columns tcpState, egressNodeName; "
        "add them with ALTER TABLE, or write createSchema: true"
    ]
    (line,) = [line for line in ctx.log.lines if line.level == "error"]
    assert (line.event, line.facts["missing_columns"]) == ("table_not_usable", ["tcpState", "egressNodeName"])
    assert server.query(f"SELECT count() FROM {name}.flows") == [[2]]


async def test_a_column_that_is_dropped_while_running_is_named_at_the_next_attempt(
    server: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    config = dataclasses.replace(config, schema=SchemaConfig(views=False))
    ctx = context()
    name = config.database
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, numbered_flows(1).with_id("a"))
    async with open_clickhouse(dataclasses.replace(config, create_schema=False), ctx) as exporter:
        await deliver(exporter, numbered_flows(1).with_id("b"))
        server.command(f"ALTER TABLE {name}.flows DROP COLUMN tcpState")
        for _ in range(2):
            with pytest.raises(RetryableExportError) as caught:
                await exporter.export(numbered_flows(1).with_id("c"))
        assert "tcpState" in str(caught.value)


async def test_an_unknown_table_and_a_wrong_password_wait_for_the_operator(
    server: ClickHouseProcess, config: ClickHouseConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = numbered_flows(3).with_id("a")
    async with open_clickhouse(dataclasses.replace(config, create_schema=False), context()) as exporter:
        with pytest.raises(RetryableExportError, match=rf"there is no table {config.database}\.flows; create it"):
            await exporter.export(batch)
    right = config.password.reveal() if config.password else ""
    monkeypatch.setenv("CH_PASSWORD", "wrong-horse")
    ctx = context()
    async with open_clickhouse(config, ctx) as exporter:
        assert [line.event for line in ctx.log.lines] == ["server_not_reached"]
        problems = await deliver(exporter, batch, between=lambda: monkeypatch.setenv("CH_PASSWORD", right))
        assert len(problems) == 1
        assert "Authentication failed" in problems[0]
        assert "wrong-horse" not in problems[0]
        monkeypatch.delenv("CH_PASSWORD")
        await exporter.export(numbered_flows(1).with_id("b"))  # a connection that stands needs no password again
        server.arm(match="INSERT INTO", drop="before")
        with pytest.raises(RetryableExportError):
            await exporter.export(numbered_flows(1).with_id("c"))
        with pytest.raises(RetryableExportError, match="Username or Password missing in ClickHouse"):
            await exporter.export(numbered_flows(1).with_id("c"))
    assert server.query(f"SELECT count() FROM {config.database}.flows") == [[4]]


async def test_rows_that_the_table_refuses_are_found_and_the_others_are_delivered(
    server: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    ctx = context()
    async with open_clickhouse(config, ctx) as exporter:
        await deliver(exporter, numbered_flows(1).with_id("a"))
        server.command(f"ALTER TABLE {config.database}.flows ADD CONSTRAINT c CHECK sourceTransportPort != 1100")
        batch = numbered_flows(200).with_id("b")
        for _ in range(2):  # as after a crash: what was delivered before stays single
            with pytest.raises(PermanentExportError) as caught:
                await exporter.export(batch)
            assert caught.value.rows == (76,)
    rows, *_ = sums(server, config.database)
    assert rows == 200
    assert ctx.counters["rows_refused"].value == 2


async def test_a_batch_that_is_refused_row_by_row_ends_after_a_bounded_search(
    server: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    config = dataclasses.replace(config, schema=SchemaConfig(views=False))
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, numbered_flows(1).with_id("a"))
        server.command(f"ALTER TABLE {config.database}.flows ADD CONSTRAINT c CHECK sourceTransportPort = 1")
        with pytest.raises(PermanentExportError) as caught:
            await exporter.export(numbered_flows(1000).with_id("b"))
    assert caught.value.rows == tuple(range(1000))


async def test_more_partitions_than_one_insert_may_have_are_inserted_in_parts(
    server: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    days = [86400 * day for day in range(300)]
    batch = numbered_flows(300).with_columns({"flowEndSeconds": days}).with_id("a")
    config = dataclasses.replace(config, timeout=60.0, schema=SchemaConfig(ttl=0.0, views=False))
    async with open_clickhouse(config, context()) as exporter:
        for _ in range(2):
            await exporter.export(batch)
    assert server.query(f"SELECT count() FROM {config.database}.flows") == [[300]]


async def test_a_stalled_insert_ends_at_once_when_it_is_cancelled(
    server: ClickHouseProcess, config: ClickHouseConfig
) -> None:
    config = dataclasses.replace(config, timeout=300.0)
    async with open_clickhouse(config, context()) as exporter:
        await deliver(exporter, numbered_flows(1).with_id("a"))
        server.arm(match="INSERT INTO", delay=200)
        with trio.fail_after(100), trio.move_on_after(0.3) as scope:
            await exporter.export(numbered_flows(1).with_id("b"))
        assert scope.cancelled_caught


async def test_an_unknown_element_is_a_configuration_error(config: ClickHouseConfig) -> None:
    with pytest.raises(ConfigError, match="there is no Information Element 'octetCount'"):
        async with open_clickhouse(dataclasses.replace(config, elements=("octetCount",)), context()):
            pass


@pytest.mark.parametrize("compress", [True, False])
async def test_extra_elements_become_columns(
    server: ClickHouseProcess, config: ClickHouseConfig, compress: bool
) -> None:
    config = dataclasses.replace(
        config, compress=compress, elements=("ingressInterface", "destinationServiceIPv4", "bgpSourceAsNumber")
    )
    ctx = context()
    async with open_clickhouse(config, ctx) as exporter:
        for number in range(2):
            await exporter.export(plain_flows(1).with_id(f"a{number}"))
        await exporter.export(numbered_flows(1).with_id("b"))
    ignored = [name for line in ctx.log.lines if line.event == "elements_ignored" for name in line.facts["elements"]]  # type: ignore[attr-defined]  # a list
    assert "flowStartMilliseconds" in ignored
    assert "ingressInterface" not in ignored
    assert len(ignored) == len(set(ignored)), "each is named once"
    rows = server.query(
        "SELECT ingressInterface, toString(destinationServiceIPv4), bgpSourceAsNumber,"
        f" toTypeName(destinationServiceIPv4) FROM {config.database}.flows ORDER BY ingressInterface DESC"
    )
    assert rows == [[2, "0.0.0.0", 0, "IPv4"], [2, "0.0.0.0", 0, "IPv4"], [0, "10.10.2.10", 0, "IPv4"]]
