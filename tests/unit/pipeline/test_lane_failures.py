"""What a lane does with a batch that its exporter does not take."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
import trio.testing
from lane_bench import LaneBench
from pipeline_fakes import (
    OTHER_SCHEMA,
    MemoryExporter,
    batch_of,
    numbers_of,
)

from flowjoin._pipeline.health import State
from flowjoin.api import PermanentExportError, RetryableExportError


async def test_a_retryable_failure_brings_the_same_batch_again_after_growing_waits(autojump_clock) -> None:
    exporter = MemoryExporter([RetryableExportError("full")] * 7)
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1, 2))

    await bench.finish()

    assert [when for when, _, _ in exporter.calls] == [0, 1, 3, 7, 15, 31, 61, 91]
    assert {id for _, id, _ in exporter.calls} == {"here/audit/3/1"}
    assert (bench.books.delivered, bench.books.failures) == (2, 7)
    assert bench.books.retried == 14


async def test_a_batch_is_not_cut_when_it_is_taken_up_again(autojump_clock, nursery) -> None:
    exporter = MemoryExporter([RetryableExportError()])
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1))
    nursery.start_soon(bench.lane.run)
    await trio.sleep(0.5)
    bench.lane.offer(batch_of(2))
    await trio.sleep(5)

    assert [rows for _, _, rows in exporter.calls] == [[1], [1], [2]]
    bench.lane.close()


@pytest.mark.parametrize(
    ("retry_after", "wait"), [(7.0, 7), (0.0, 0), (math.inf, 1), (math.nan, 1), (-5.0, 1), (1e9, 3600), ("soon", 1)]
)
async def test_the_wait_that_a_destination_asks_for_is_kept_within_reason(autojump_clock, retry_after, wait) -> None:
    exporter = MemoryExporter([RetryableExportError(retry_after=retry_after)])
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1))

    await bench.finish()

    assert [when for when, _, _ in exporter.calls] == [0, wait]


async def test_rows_refused_for_ever_are_dead_letters_and_the_others_delivered(autojump_clock) -> None:
    exporter = MemoryExporter([PermanentExportError("too long", rows=(0, 2, 2))])
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1, 2, 3, 4))

    await bench.finish()

    assert (bench.books.delivered, bench.books.dead_lettered) == (2, 2)
    assert len(exporter.calls) == 1
    (facts,) = bench.log.facts("rows_dead_lettered")
    assert facts == {"batch": "here/audit/3/1", "rows": 2, "first_rows": [0, 2], "problem": "too long"}


@pytest.mark.parametrize(("rows", "dead"), [(None, 3), ((), 0)])
async def test_a_permanent_failure_without_rows_means_all_and_with_no_row_none(autojump_clock, rows, dead) -> None:
    exporter = MemoryExporter([PermanentExportError(rows=rows)])
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1, 2, 3))

    await bench.finish()

    assert (bench.books.delivered, bench.books.dead_lettered) == (3 - dead, dead)


async def test_refused_rows_outside_the_batch_are_a_bug_of_the_plugin(autojump_clock) -> None:
    exporter = MemoryExporter([PermanentExportError(rows=[3])])
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1, 2, 3))

    await bench.finish()

    assert (bench.books.delivered, bench.books.failures) == (3, 1)
    assert "export_failed" in bench.log.events("error")


class Poisoned(MemoryExporter):
    """Raises for every batch that holds one of these rows."""

    def __init__(self, *poison: int) -> None:
        super().__init__()
        self._poison = set(poison)

    async def export(self, batch: Any) -> None:
        if self._poison & set(numbers_of(batch)):
            self.calls.append((trio.current_time(), batch.id, numbers_of(batch)))
            raise KeyError("poison")
        await super().export(batch)


async def test_after_five_unknown_failures_a_batch_is_halved_down_to_the_row_that_fails_alone(autojump_clock) -> None:
    exporter = Poisoned(3)
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1, 2, 3, 4))
    bench.lane.offer(batch_of(5, schema=OTHER_SCHEMA))

    await bench.finish()

    assert [(id.removeprefix("here/audit/3/"), rows) for _, id, rows in exporter.calls] == [
        *[("1", [1, 2, 3, 4])] * 5,
        ("1[0:2]", [1, 2]),
        ("1[2:4]", [3, 4]),
        ("1[2:3]", [3]),
        ("1[3:4]", [4]),
        ("2", [5]),
    ]
    assert exporter.rows == [1, 2, 4, 5]
    assert (bench.books.delivered, bench.books.dead_lettered, bench.books.batches) == (4, 1, 2)
    (facts,) = bench.log.facts("rows_dead_lettered")
    assert isinstance(facts["exc_info"], KeyError)
    assert facts["exc_info"].__traceback__ is not None


async def test_other_failures_between_begin_the_count_anew(autojump_clock) -> None:
    exporter = MemoryExporter([*[KeyError()] * 4, RetryableExportError(), *[KeyError()] * 4])
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1, 2))

    await bench.finish()

    assert {tuple(rows) for _, _, rows in exporter.calls} == {(1, 2)}
    assert bench.books.delivered == 2


async def test_a_lone_row_that_fails_five_times_is_a_dead_letter(autojump_clock) -> None:
    exporter = Poisoned(1)
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1))

    await bench.finish()

    assert len(exporter.calls) == 5
    assert bench.books.dead_lettered == 1


async def test_health_is_degraded_while_a_batch_fails_and_good_again_after_it(autojump_clock, nursery) -> None:
    exporter = MemoryExporter([RetryableExportError("disk full"), KeyError()])
    bench = LaneBench(exporter.open)
    assert bench.state is State.STARTING
    bench.lane.offer(batch_of(1))
    nursery.start_soon(bench.lane.run)
    await trio.sleep(0.5)
    assert bench.state is State.DEGRADED
    assert bench.health.snapshot()[0].problem == "RetryableExportError: disk full"
    await trio.sleep(1)
    assert bench.state is State.DEGRADED
    await trio.sleep(10)
    assert bench.state is State.OK
    assert bench.log.events() == ["exporter_opened", "export_retried", "export_failed", "exporter_recovered"]
    bench.lane.close()


async def test_an_error_in_the_group_of_a_plugins_nursery_is_the_error(autojump_clock) -> None:
    async def in_a_nursery(_batch: object) -> None:
        async with trio.open_nursery():
            raise RetryableExportError

    exporter = MemoryExporter([in_a_nursery] * 6)
    bench = LaneBench(exporter.open)
    bench.lane.offer(batch_of(1, 2))

    await bench.finish()

    assert {tuple(rows) for _, _, rows in exporter.calls} == {(1, 2)}
    assert bench.books.delivered == 2
