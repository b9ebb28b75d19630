"""What holds for batches of any values."""

import math
from collections.abc import Sequence

import pytest
from batch_examples import ROWS, WIDE
from hypothesis import given
from hypothesis import strategies as st

from flowjoin._model.flow_batch import FlowBatch

pytestmark = pytest.mark.slow

BATCHES = ROWS.map(lambda rows: FlowBatch.from_rows(WIDE, rows))


def comparable(rows: Sequence[Sequence[object]]) -> list[tuple[object, ...]]:
    return [tuple("NaN" if isinstance(v, float) and math.isnan(v) else (type(v), v) for v in row) for row in rows]


@given(ROWS)
def test_rows_of_every_data_type_come_back_as_they_went_in(rows):
    assert comparable(list(FlowBatch.from_rows(WIDE, rows).rows())) == comparable(rows)


@given(ROWS)
def test_rows_and_columns_make_the_same_batch(rows):
    columns = {name: [row[at] for row in rows] for at, name in enumerate(WIDE.names)}
    assert FlowBatch.from_columns(WIDE, columns) == FlowBatch.from_rows(WIDE, rows)


@given(BATCHES, st.data())
def test_taken_rows_are_the_rows_of_those_numbers(batch, data):
    indices = data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=10)) if len(batch) else []
    rows = list(batch.rows())
    assert comparable(list(batch.take(indices).rows())) == comparable([rows[index] for index in indices])


@given(BATCHES, st.integers(-10, 10), st.integers(-10, 10))
def test_a_slice_is_a_slice_of_the_rows(batch, start, stop):
    part = batch.slice(start, stop)
    assert comparable(list(part.rows())) == comparable(list(batch.rows())[start:stop])
    assert part == batch.take(range(len(batch))[start:stop])


@given(BATCHES, st.integers(0, 8))
def test_slices_concatenate_to_the_whole(batch, cut):
    assert FlowBatch.concatenate([batch.slice(0, cut), batch.slice(cut, len(batch))]) == batch


@given(st.lists(BATCHES, min_size=1, max_size=4))
def test_concatenation_has_the_rows_of_all_in_order(batches):
    rows = [row for batch in batches for row in batch.rows()]
    joined = FlowBatch.concatenate(batches)
    assert comparable(list(joined.rows())) == comparable(rows)
    assert all(len(set(c.dictionary)) == len(c.dictionary) for c in joined._columns if hasattr(c, "dictionary"))


@given(ROWS, st.sampled_from(WIDE.names), st.data())
def test_columns_from_another_batch_replace_this_one_s(rows, name, data):
    batch = FlowBatch.from_rows(WIDE, rows)
    order = data.draw(st.permutations(range(len(rows))))
    shuffled = batch.take(order)
    for values in (shuffled.column(name), shuffled.column(name).tolist()):
        replaced = batch.with_columns({name: values})
        assert replaced.column(name) == shuffled.column(name)
        assert all(replaced.column(other) == batch.column(other) for other in WIDE.names if other != name)


@given(BATCHES, st.lists(st.sampled_from(WIDE.names), min_size=1, max_size=3, unique=True))
def test_map_distinct_is_a_map_with_fewer_calls(batch, names):
    called = []

    def function(value):
        called.append(value)
        return repr(value)

    columns = [batch.column(name).tolist() for name in names]
    rows = columns[0] if len(names) == 1 else list(zip(*columns, strict=True))
    if not any(isinstance(v, float) for column in columns for v in column):  # 0.0 equals -0.0, and NaN nothing
        assert batch.map_distinct(names, function).tolist() == list(map(repr, rows))
        assert len(called) == len(set(called)) == len(set(rows))
