from __future__ import annotations

from flowjoin._telemetry.rate_limit import RateLimit, Suppressed


def test_the_first_line_of_a_key_passes_and_the_rest_of_its_interval_is_counted() -> None:
    limit = RateLimit(10)

    assert limit.admit(("a",), 0.0) == 0
    assert limit.admit(("a",), 9.9) is None
    assert limit.admit(("b",), 9.9) == 0
    assert limit.admit(("a",), 10.0) == 1
    assert limit.admit(("a",), 20.0) == 0


def test_the_count_after_a_burst_is_told_by_drain_and_only_once() -> None:
    limit = RateLimit(10)
    limit.admit(("a",), 0.0)
    limit.admit(("a",), 1.0)
    limit.admit(("b",), 5.0)
    limit.admit(("b",), 5.0)

    assert limit.drain(10.0) == [Suppressed(("a",), 1)]
    assert limit.drain(10.0) == []
    assert limit.drain(10.0, everything=True) == [Suppressed(("b",), 1)]


def test_the_number_of_keys_is_bounded_and_no_count_is_lost() -> None:
    limit = RateLimit(10, max_keys=2)
    for key in ("a", "b", "c"):
        limit.admit((key,), 0.0)
        limit.admit((key,), 0.0)

    told = limit.drain(0.0, everything=True)

    assert sum(suppressed.count for suppressed in told) == 3
    assert Suppressed(("many",), 1) in told
