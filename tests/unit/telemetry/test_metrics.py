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


def test_a_gauge_is_read_when_asked_and_the_last_reader_counts() -> None:
    metrics = Metrics()
    held = [3]
    metrics.gauge("conntrack", "connections", "Kept.", lambda: 1, name="a")
    metrics.gauge("conntrack", "connections", "Kept.", lambda: held[0], name="a")
    metrics.gauge("conntrack", "connections", "Kept.", lambda: 9, name="b")
    held[0] = 4

    text = metrics.expose().decode()

    assert "# TYPE flowjoin_conntrack_connections gauge" in text
    assert 'flowjoin_conntrack_connections{name="a"} 4.0' in text
    assert 'flowjoin_conntrack_connections{name="b"} 9.0' in text


def test_a_histogram_counts_what_is_not_above_each_bound() -> None:
    metrics = Metrics()
    for seconds in (0.5, 1.0, 1.5, 99.0):
        metrics.histogram("conntrack", "poll_seconds", "Polls.", (1, 2.5), name="a").observe(seconds)

    lines = metrics.expose().decode().splitlines()

    name = "flowjoin_conntrack_poll_seconds"
    assert [line for line in lines if not line.startswith("#")] == [
        f'{name}_bucket{{le="1.0",name="a"}} 2.0',
        f'{name}_bucket{{le="2.5",name="a"}} 3.0',
        f'{name}_bucket{{le="+Inf",name="a"}} 4.0',
        f'{name}_count{{name="a"}} 4.0',
        f'{name}_sum{{name="a"}} 102.0',
    ]


@pytest.mark.parametrize("bounds", [(), (2, 1), (1, 1)])
def test_bounds_that_do_not_rise_are_refused(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="bounds of a histogram rise"):
        Metrics().histogram("conntrack", "poll_seconds", "Polls.", bounds)


def test_a_figure_is_given_under_the_name_that_others_have_for_it_too() -> None:
    metrics = Metrics()
    metrics.counter("ipfix", "connections", "Made.", also="antrea_agent_reconnection_count", name="a").inc(2)
    metrics.gauge("conntrack", "held", "Kept.", lambda: 5, also="antrea_agent_connection_count", name="a")
    metrics.histogram("conntrack", "poll", "Polls.", (1,), also="antrea_agent_poll_seconds", name="a").observe(0.1)

    text = metrics.expose().decode()

    assert "# TYPE antrea_agent_reconnection_count gauge" in text
    assert 'antrea_agent_reconnection_count{name="a"} 2.0' in text
    assert 'antrea_agent_connection_count{name="a"} 5.0' in text
    assert 'antrea_agent_poll_seconds_bucket{le="1.0",name="a"} 1.0' in text
    with pytest.raises(ValueError, match="is no metric's name"):
        metrics.gauge("conntrack", "other", "Other.", lambda: 5, also="Antrea's")


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
