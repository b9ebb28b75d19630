"""How the source ends, and how the next one goes on."""

from __future__ import annotations

import dataclasses
import errno
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import trio
from conntrack_entries import TIME_WAIT, connection
from written_table import CONFIG, Table, next_row

from flowjoin.api import Duration, SupportsLastBatches
from flowjoin.testing import RecordingContext
from flowjoin.testing.requirements import cancelled_everywhere
from flowjoin_conntrack import _memory
from flowjoin_conntrack._config import ConntrackConfig
from flowjoin_conntrack._dumper import Portion
from flowjoin_conntrack._open import open_source

Row = dict[str, Any]


def facts(row: Row) -> tuple[object, ...]:
    return row["packetTotalCount"], row["packetDeltaCount"], row["flowEndReason"]


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def last_rows(batches: Any) -> list[Row]:
    batches.finish()
    with trio.fail_after(1000):
        return [dict(row) async for batch in batches for row in batch.to_dicts()]


async def test_a_source_that_is_to_finish_looks_once_more_and_tells_what_changed(autojump_clock) -> None:
    table = Table(connection(packets=3), connection("10.10.0.4", packets=1))
    async with open_source(CONFIG, RecordingContext(), table) as batches, aclosing(batches):
        assert isinstance(batches, SupportsLastBatches)
        assert len((await anext(batches)).to_dicts()) == 2
        table.connections = [
            connection(packets=4),
            connection("10.10.0.4", packets=1),
            connection("fd00::2", "fd00::3", packets=9, tcp_state=TIME_WAIT),
        ]
        rows = await last_rows(batches)
    assert [facts(row) for row in rows] == [(4, 1, 2), (9, 9, 3)]


async def test_before_the_first_poll_after_opening_it_tells_what_there_is(autojump_clock) -> None:
    config = dataclasses.replace(CONFIG, poll_interval=Duration(60.0))
    async with open_source(config, RecordingContext(), Table(connection(packets=3))) as batches, aclosing(batches):
        began = trio.current_time()
        assert [facts(row) for row in await last_rows(batches)] == [(3, 3, 2)]
        assert trio.current_time() - began < 1


async def test_what_is_known_is_told_where_there_can_be_no_last_look(autojump_clock) -> None:
    table, context = Table(connection(packets=3)), RecordingContext()
    async with open_source(CONFIG, context, table) as batches, aclosing(batches):
        table.error = OSError(errno.EIO, "Input/output error")
        assert [facts(row) for row in await last_rows(batches)] == [(3, 3, 2)]
    assert context.events == ["poll_failed"]


async def test_a_last_look_that_takes_too_long_is_given_up(autojump_clock) -> None:
    class Slow(Table):
        async def dump(self) -> AsyncGenerator[Portion, None]:
            if self.dumps:
                await trio.sleep_forever()
            async with aclosing(super().dump()) as portions:
                async for portion in portions:
                    yield portion

    context = RecordingContext()
    async with open_source(CONFIG, context, Slow(connection(packets=3))) as batches, aclosing(batches):
        began = trio.current_time()
        assert [facts(row) for row in await last_rows(batches)] == [(3, 3, 2)]
        assert trio.current_time() - began == pytest.approx(5, abs=0.2)
    assert context.events == ["poll_failed"]


async def test_who_waits_for_a_row_is_woken_to_finish(autojump_clock, nursery) -> None:
    rows: list[Row] = []
    async with open_source(CONFIG, RecordingContext(), Table(connection(packets=3))) as batches, aclosing(batches):

        async def take() -> None:
            async for batch in batches:
                rows.extend(map(dict, batch.to_dicts()))
            nursery.cancel_scope.cancel()

        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        assert rows == []
        batches.finish()
        await trio.sleep_forever()
    assert [facts(row) for row in rows] == [(3, 3, 2)]


async def one_life(context: RecordingContext, table: Table, config: ConntrackConfig = CONFIG) -> list[Row]:
    async with open_source(config, context, table) as batches, aclosing(batches):
        return await last_rows(batches)


async def test_the_next_run_goes_on_where_this_one_ended(tmp_path: Path) -> None:
    context = RecordingContext(state_directory=tmp_path)
    table = Table(connection(packets=3))
    assert [facts(row) for row in await one_life(context, table)] == [(3, 3, 2)]
    table.connections = [connection(packets=7)]
    async with open_source(CONFIG, context, table):
        pass  # cut short: what was new has not been told
    table.connections = [connection(packets=9)]
    assert [facts(row) for row in await one_life(context, table)] == [(9, 6, 2)]
    assert context.events == []


async def test_while_it_runs_nothing_lies_there_that_is_not_true_any_more(tmp_path: Path) -> None:
    context, table = RecordingContext(state_directory=tmp_path), Table(connection(packets=3))
    await one_life(context, table)
    assert files(tmp_path) == ["told-totals"]
    async with open_source(CONFIG, context, table):
        assert files(tmp_path) == []  # whoever is killed now begins with whole totals


async def test_without_a_state_directory_totals_are_told_again() -> None:
    context = RecordingContext()
    for _ in range(2):
        assert [facts(row) for row in await one_life(context, Table(connection(packets=3)))] == [(3, 3, 2)]
    assert context.events == []


async def test_what_was_told_is_kept_while_the_table_cannot_be_read(tmp_path: Path) -> None:
    table = Table(connection(packets=3))
    context = RecordingContext(state_directory=tmp_path)
    await one_life(context, table)
    table.error = OSError(errno.EIO, "Input/output error")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            await one_life(context, table)
    table.error, table.connections = None, [connection(packets=4)]
    assert [facts(row) for row in await one_life(context, table)] == [(4, 1, 2)]


@pytest.mark.parametrize("place", ["boot", "network", "dumper"])
async def test_what_was_told_of_another_table_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    table = Table(connection(packets=3))
    context = RecordingContext(state_directory=tmp_path)
    await one_life(context, table)
    config = CONFIG
    if place == "boot":
        boot = tmp_path / "boot"
        boot.write_text("another\n")
        monkeypatch.setattr(_memory, "_BOOT", boot)
    elif place == "network":
        monkeypatch.setattr(_memory, "_NETWORK", tmp_path)
    else:
        config = dataclasses.replace(CONFIG, dumper="proc")
    assert [facts(row) for row in await one_life(context, table, config)] == [(3, 3, 2)]
    assert context.events == []


@pytest.mark.parametrize("octets", [b"", b"\n\n\n", b"flowjoin-conntrack-told 1\nx\n00000000\nhalf a record"])
async def test_a_damaged_file_is_named_and_totals_are_told_again(tmp_path: Path, octets: bytes) -> None:
    path = tmp_path / "told-totals"
    path.write_bytes(octets)
    context = RecordingContext(state_directory=tmp_path)
    assert [facts(row) for row in await one_life(context, Table(connection(packets=3)))] == [(3, 3, 2)]
    assert context.events == ["told_totals_unknown"]
    assert context.log.lines[0].facts["path"] == str(path)


async def test_a_directory_that_is_gone_is_said_and_is_no_failure(tmp_path: Path) -> None:
    context = RecordingContext(state_directory=tmp_path / "gone")
    assert [facts(row) for row in await one_life(context, Table(connection(packets=3)))] == [(3, 3, 2)]
    assert context.events == ["told_totals_unknown"]


async def test_without_proc_nothing_is_kept_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "_BOOT", tmp_path / "proc" / "boot_id")
    context = RecordingContext(state_directory=tmp_path)
    assert [facts(row) for row in await one_life(context, Table(connection(packets=3)))] == [(3, 3, 2)]
    assert context.events == ["told_totals_unknown"]
    assert files(tmp_path) == []


async def test_a_disk_that_does_not_answer_does_not_hold_the_end(
    autojump_clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(_memory.os, "fsync", lambda _descriptor: answer.wait(60))
    context = RecordingContext(state_directory=tmp_path)
    try:
        assert [facts(row) for row in await one_life(context, Table(connection(packets=3)))] == [(3, 3, 2)]
    finally:
        answer.set()
    assert context.events == ["told_totals_unknown"]


async def test_more_connections_than_are_kept_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "_MOST_OCTETS", 101)
    context, table = RecordingContext(state_directory=tmp_path), Table(connection(packets=3))
    for _ in range(2):
        assert [facts(row) for row in await one_life(context, table)] == [(3, 3, 2)]
    assert context.events == ["told_totals_not_all_kept"] * 2


async def test_a_batch_that_nobody_took_is_told_by_the_next_run(tmp_path: Path) -> None:
    table = Table(connection(packets=3), connection("fd00::2", "fd00::3", packets=5))
    context = RecordingContext(state_directory=tmp_path)
    async with open_source(CONFIG, context, table) as batches, aclosing(batches):
        batches.finish()
        assert facts(await next_row(batches)) == (3, 3, 2)  # IPv4; the other family's batch was made at once
    assert [facts(row) for row in await one_life(context, table)] == [(5, 5, 2)]


async def test_cancelled_anywhere_nothing_is_lost_and_nothing_told_twice(tmp_path: Path) -> None:
    table = Table(connection(packets=3))
    told = 0
    events: list[str] = []

    async def some_life() -> None:
        nonlocal told
        table.connections = [connection(packets=table.connections[0].packets + 1)]
        context = RecordingContext(state_directory=tmp_path)
        try:
            async with open_source(CONFIG, context, table) as batches, aclosing(batches):
                batches.finish()
                async for batch in batches:
                    told += sum(batch.column("packetDeltaCount"))
        finally:
            events.extend(context.events)

    await cancelled_everywhere(some_life)
    assert (told, events) == (table.connections[0].packets, [])
