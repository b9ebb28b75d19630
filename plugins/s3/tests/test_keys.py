"""Keys follow from a batch's id and rows alone, and each row is in one object."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowjoin.api import FlowBatch, FlowOrigin, FlowSchema
from flowjoin.testing import plain_flows
from flowjoin_s3._keys import MOST_HOURS, HourSplit, antrea_key, partitioned_key

IDS = st.text(max_size=80)


def ending_at(seconds: list[int], element: str = "flowEndSeconds") -> FlowBatch:
    registry = plain_flows(1).schema.registry
    schema = FlowSchema(
        origin=FlowOrigin.PLAIN,
        family=plain_flows(1).schema.family,
        elements=(registry.by_name(element),),
        registry=registry,
    )
    return FlowBatch.from_columns(schema, {element: seconds})


def hours_of(batch: FlowBatch, step: int = 1000) -> dict[int, list[int]]:
    split = HourSplit()
    for start in range(0, len(batch), step):
        split.add(batch.slice(start, start + step))
    return {hour: list(rows) for hour, rows in split.hours().items()}


@given(IDS, IDS)
def test_one_id_has_one_key_and_another_id_another(first: str, second: str) -> None:
    for key in (antrea_key, lambda *args: partitioned_key(args[0], 7, *args[1:])):
        assert key("p", first, ".csv") == key("p", first, ".csv")
        assert (key("p", first, ".csv") == key("p", second, ".csv")) == (first == second)


@given(IDS)
def test_antreas_form_has_twelve_small_letters_and_digits(batch_id: str) -> None:
    assert re.fullmatch(r"records-[a-z0-9]{12}\.csv\.gz", antrea_key("", batch_id, ".csv.gz"))
    assert re.fullmatch(r"a/b/records-[a-z0-9]{12}\.csv", antrea_key("a/b", batch_id, ".csv"))


def test_these_ids_have_these_keys_for_ever() -> None:
    # a new form of the name would double what is being uploaded while flowjoin is replaced
    batch_id = "5f0c9a0e6d1e4b7c8a51f3f1a2b0c4d7/s3/1/0"
    assert antrea_key("", batch_id, ".csv") == "records-8okrxsgz5qkx.csv"
    assert (
        partitioned_key("x", 456789, batch_id, ".parquet")
        == "x/year=2022/month=02/day=09/hour=21/flows-8okrxsgz5qkxl6mv2gal0434.parquet"
    )


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=200), st.integers(1, 50))
def test_each_row_is_in_one_hour_in_order(ends: list[int], step: int) -> None:
    hours = hours_of(ending_at(ends), step)
    assert sorted(row for rows in hours.values() for row in rows) == list(range(len(ends)))
    assert all(rows == sorted(rows) for rows in hours.values())
    assert list(hours) == sorted(hours)
    assert len(hours) <= MOST_HOURS
    assert hours == hours_of(ending_at(ends), 7)
    if len({end // 3600 for end in ends}) <= MOST_HOURS:
        assert all(ends[row] // 3600 == hour for hour, rows in hours.items() for row in rows)


def test_beyond_the_limit_the_rarest_hours_go_with_the_most_frequent() -> None:
    ends = [hour * 3600 for hour in range(100)] + [70 * 3600]
    hours = hours_of(ending_at(ends))
    assert len(hours) == MOST_HOURS
    assert hours[70] == [*range(MOST_HOURS - 1, 100), 100]
    assert hours[0] == [0]


@pytest.mark.parametrize(
    ("element", "ticks"),
    [("flowEndMilliseconds", 10**3), ("flowEndMicroseconds", 10**6), ("flowEndNanoseconds", 10**9)],
)
def test_the_end_may_be_in_any_unit(element: str, ticks: int) -> None:
    assert list(hours_of(ending_at([7200 * ticks, 3599 * ticks], element))) == [0, 2]


def test_a_flow_without_an_end_is_of_1970_and_one_of_no_calendar_of_9999() -> None:
    assert list(hours_of(ending_at([5], "octetDeltaCount"))) == [0]
    (last,) = hours_of(ending_at([2**64 - 1], "flowEndMilliseconds"))
    assert partitioned_key("", last, "x", "").startswith("year=9999/month=12/day=31/hour=23/flows-")
    assert partitioned_key("", 0, "x", "").startswith("year=1970/month=01/day=01/hour=00/flows-")
