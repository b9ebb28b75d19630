from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pipeline_fakes import OTHER_SCHEMA, batch_of, numbers_of

from flowjoin._pipeline.batcher import Batcher
from flowjoin.api import Batching


def test_a_batch_closes_when_it_has_its_records() -> None:
    batcher = Batcher(Batching(records=3, interval=60))

    assert batcher.add(batch_of(1, 2), 0.0) == []
    closed = batcher.add(batch_of(3, 4, 5, 6, 7), 0.0)

    assert [numbers_of(each.batch) for each in closed] == [[1, 2, 3], [4, 5, 6]]
    assert [(each.rows, each.octets) for each in closed] == [(3, batch_of(1, 2, 3).octets)] * 2
    assert batcher.rows == 1


def test_a_batch_closes_when_its_octets_are_there() -> None:
    size = batch_of(1, 2).octets
    batcher = Batcher(Batching(octets=size + 1, interval=60))

    assert batcher.add(batch_of(1, 2), 0.0) == []
    assert [numbers_of(each.batch) for each in batcher.add(batch_of(3, 4), 0.0)] == [[1, 2]]


def test_rows_larger_than_the_octets_leave_one_by_one() -> None:
    batcher = Batcher(Batching(octets=1, interval=60))

    assert [numbers_of(each.batch) for each in batcher.add(batch_of(1, 2, 3), 0.0)] == [[1], [2], [3]]


def test_the_interval_begins_with_the_first_row() -> None:
    batcher = Batcher(Batching(interval=5))
    batcher.add(batch_of(1), 10.0)
    batcher.add(batch_of(2), 14.0)

    assert batcher.deadline == 15.0
    assert batcher.close_due(14.9) is None
    taken = batcher.close_due(15.0)
    assert taken is not None
    assert numbers_of(taken.batch) == [1, 2]
    assert batcher.deadline is None


def test_without_interval_whatever_is_there_can_be_taken() -> None:
    batcher = Batcher(Batching())
    batcher.add(batch_of(1), 10.0)

    assert batcher.close_due(10.0) is not None
    assert batcher.close_due(10.0) is None


def test_each_schema_has_its_own_batch_the_oldest_first() -> None:
    batcher = Batcher(Batching(interval=5))
    batcher.add(batch_of(1), 0.0)
    batcher.add(batch_of(2, schema=OTHER_SCHEMA), 1.0)
    batcher.add(batch_of(3, is_first_export=True), 2.0)

    first, second = batcher.close_due(2.0, flush=True), batcher.close_due(2.0, flush=True)
    assert first is not None
    assert second is not None
    assert (numbers_of(first.batch), numbers_of(second.batch)) == ([1, 3], [2])
    assert batcher.close_due(2.0, flush=True) is None


def test_an_open_batch_that_was_joined_takes_more_rows_behind_the_others() -> None:
    batcher = Batcher(Batching(records=5, interval=5))
    for number in (1, 2, 3):
        batcher.add(batch_of(number), 0.0)
    (opened,) = batcher.open_batches()
    assert (numbers_of(opened.batch), opened.rows) == ([1, 2, 3], 3)

    assert batcher.add(batch_of(4), 0.0) == []
    (closed,) = batcher.add(batch_of(5, 6), 0.0)
    assert [numbers_of(piece) for piece in closed.pieces] == [[1, 2, 3], [4], [5]]
    assert (closed.group, numbers_of(closed.batch)) == (opened.group, [1, 2, 3, 4, 5])


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=12),
    st.integers(1, 9),
    st.integers(1, 2000),
)
def test_every_row_leaves_once_in_order_within_its_schema(
    offered: list[tuple[bool, int]], records: int, octets: int
) -> None:
    batcher = Batcher(Batching(records=records, octets=octets, interval=1))
    out = []
    number = 0
    for is_other, rows in offered:
        batch = batch_of(*range(number, number + rows), **({"schema": OTHER_SCHEMA} if is_other else {}))
        number += rows
        out.extend(closed.batch for closed in batcher.add(batch, 0.0))
    while (due := batcher.close_due(0.0, flush=True)) is not None:
        out.append(due.batch)

    assert all(0 < len(batch) <= records for batch in out)
    for schema in (OTHER_SCHEMA, batch_of(0).schema):
        rows = [number for batch in out if batch.schema == schema for number in numbers_of(batch)]
        assert rows == sorted(rows)
    assert sorted(number for batch in out for number in numbers_of(batch)) == list(range(number))


def test_after_a_change_batches_have_the_new_size_and_one_that_is_larger_already_takes_no_more() -> None:
    batcher = Batcher(Batching(records=10, interval=60))
    batcher.add(batch_of(1, 2, 3, 4), 0.0)
    batcher.change(Batching(records=2, interval=5))

    assert batcher.deadline == 5.0
    assert [numbers_of(each.batch) for each in batcher.add(batch_of(5, 6, 7), 1.0)] == [[1, 2, 3, 4], [5, 6]]
    assert batcher.rows == 1


def test_the_largest_open_batch_closes_early_where_all_together_need_too_much() -> None:
    batcher = Batcher(Batching(records=1000, octets=1 << 30, interval=60), most_octets=4 * batch_of(1).octets)
    assert batcher.add(batch_of(1), 0.0) == []
    assert batcher.add(batch_of(2, 3, schema=OTHER_SCHEMA), 0.0) == []
    assert [numbers_of(each.batch) for each in batcher.add(batch_of(4, 5, schema=OTHER_SCHEMA), 0.0)] == [[2, 3, 4, 5]]
    assert batcher.rows == 1


@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=30), st.integers(1, 40))
def test_open_batches_never_need_more_than_the_bound_and_lose_no_row(given_: list[tuple[int, bool]], rows: int) -> None:
    most = rows * batch_of(1).octets
    batcher = Batcher(Batching(records=10_000, octets=1 << 30, interval=60), most_octets=most)
    sent: dict[bool, list[int]] = {False: [], True: []}
    left: dict[bool, list[int]] = {False: [], True: []}
    number = 0
    closed = []
    for count, is_other in given_:
        numbers = range(number, number := number + count)
        sent[is_other] += numbers
        schemas = {"schema": OTHER_SCHEMA} if is_other else {}
        closed += [each.batch for each in batcher.add(batch_of(*numbers, **schemas), 0.0)]
        assert batcher.octets <= most or batcher.rows == 1
    while (last := batcher.close_due(0.0, flush=True)) is not None:
        closed.append(last.batch)
    for batch in closed:
        assert batch.octets <= most or len(batch) == 1
        left[batch.schema == OTHER_SCHEMA] += numbers_of(batch)
    assert left == sent
