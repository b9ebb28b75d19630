from __future__ import annotations

import pytest

from flowjoin._telemetry.metrics import Metrics, counter_family, gauge_family


def test_a_counter_is_exposed_under_the_naming_rule() -> None:
    metrics = Metrics()
    metrics.counter("log", "rotated_files", "Files rotated.", name="audit").inc(2)
    metrics.counter("log", "rotated_files", "Files rotated.", name="audit").inc()

    text = metrics.expose().decode()

    assert 'flowjoin_log_rotated_files_total{name="audit"} 3.0' in text
    assert "_created" not in text


def test_books_are_read_when_asked() -> None:
    metrics = Metrics()
    held = {"audit": 1.0}
    metrics.watch(lambda: [gauge_family("lane", "held_rows", "Rows held.", held, "lane")])
    metrics.watch(lambda: [counter_family("kernel", "rows", "Rows given.", 4)])

    held["audit"] = 7.0

    assert 'flowjoin_lane_held_rows{lane="audit"} 7.0' in metrics.expose().decode()
    assert "flowjoin_kernel_rows_total 4.0" in metrics.expose().decode()


def test_two_registries_do_not_meet() -> None:
    one, two = Metrics(), Metrics()
    one.counter("log", "lines", "Lines.").inc()

    assert two.expose() == b""


def test_a_counter_only_grows() -> None:
    with pytest.raises(ValueError, match="only grows"):
        Metrics().counter("log", "lines", "Lines.").inc(-1)


@pytest.mark.parametrize("noun", ["Lines", "lines-written", "", "_lines", "lines__x"])
def test_a_name_that_breaks_the_rule_is_refused(noun: str) -> None:
    with pytest.raises(ValueError, match="lower_snake_case"):
        Metrics().counter("log", noun, "Lines.")


def test_one_name_has_one_set_of_labels() -> None:
    metrics = Metrics()
    metrics.counter("log", "lines", "Lines.", name="a")

    with pytest.raises(ValueError, match="other labels"):
        metrics.counter("log", "lines", "Lines.", colour="b")
