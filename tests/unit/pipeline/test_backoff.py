from __future__ import annotations

from flowjoin._pipeline.backoff import Backoff


def test_waits_double_up_to_the_limit_and_begin_anew_after_success() -> None:
    backoff = Backoff(lambda: 1.0, first=1, limit=5)

    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next() == 1


def test_the_upper_half_of_a_wait_is_random() -> None:
    assert Backoff(lambda: 0.0, first=8).next() == 4
    assert Backoff(lambda: 0.5, first=8).next() == 6
