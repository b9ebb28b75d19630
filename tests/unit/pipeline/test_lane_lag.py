from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flowjoin._pipeline import lane_lag
from flowjoin._pipeline.lane_lag import LaneLag


def test_the_oldest_row_that_is_left_says_how_long() -> None:
    lag = LaneLag()
    assert lag.seconds(0, 5.0) == 0.0
    lag.came(10, 10.0)
    lag.came(30, 20.0)
    assert lag.seconds(0, 25.0) == 15.0
    assert lag.seconds(9, 25.0) == 15.0
    assert lag.seconds(10, 25.0) == 5.0
    assert lag.seconds(30, 25.0) == 0.0
    lag.came(31, 40.0)
    assert lag.seconds(30, 41.0) == 1.0


@given(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=300), st.data())
def test_rows_never_seem_younger_than_they_are_and_moments_are_bounded(steps: list[float], data: st.DataObject) -> None:
    few = 8
    lag, came_at, now = LaneLag(), [], 0.0
    most, lane_lag._MOST_MOMENTS = lane_lag._MOST_MOMENTS, few  # type: ignore[misc]  # a small one shows the same
    try:
        for number, step in enumerate(steps, start=1):
            now += step
            came_at.append(now)
            lag.came(number, now)
            assert len(lag._moments) <= few
    finally:
        lane_lag._MOST_MOMENTS = most  # type: ignore[misc]
    left = data.draw(st.integers(0, len(steps)))
    seconds = lag.seconds(left, now)
    assert seconds >= (now - came_at[left] if left < len(steps) else 0.0)
    assert seconds <= now - came_at[0]


def test_an_outage_of_days_costs_no_precision_afterwards() -> None:
    lag = LaneLag()
    for number in range(1, 10_000):
        lag.came(number, float(number))
    assert 9_999 - 1 <= lag.seconds(0, 9_999.0) <= 9_999
    assert lag.seconds(9_999, 9_999.0) == 0.0
    lag.came(10_000, 10_000.0)
    lag.came(10_001, 10_001.0)
    assert lag.seconds(10_000, 10_002.0) == 1.0
