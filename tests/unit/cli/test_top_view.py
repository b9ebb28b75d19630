from __future__ import annotations

import json

import pytest

from flowjoin._cli.top_view import Reading, parse_metrics, view_of

BEFORE = """
flowjoin_kernel_messages_total 100.0
flowjoin_kernel_records_received_total 1000.0
flowjoin_kernel_flows_held 7.0
flowjoin_collector_messages_total{address="127.0.0.1:1",protocol="udp"} 100.0
flowjoin_lane_rows_total{name="audit"} 10.0
flowjoin_lane_delivered_rows_total{name="audit"} 10.0
flowjoin_kernel_records_rejected_total{reason="time_absent"} 5.0
"""
AFTER = """
# TYPE flowjoin_kernel_messages counter
flowjoin_kernel_messages_total 300.0
flowjoin_kernel_records_received_total 400.0
flowjoin_kernel_flows_held 9.0
flowjoin_collector_messages_total{address="127.0.0.1:1",protocol="udp"} 300.0
flowjoin_collector_sessions{address="127.0.0.1:1",protocol="udp"} 4.0
flowjoin_lane_rows_total{name="audit"} 70.0
flowjoin_lane_rows_total{name="away"} 70.0
flowjoin_lane_delivered_rows_total{name="audit"} 50.0
flowjoin_lane_delivered_rows_total{name="away"} 0.0
flowjoin_lane_held_rows{name="audit"} 20.0
flowjoin_lane_held_rows{name="away"} 70.0
flowjoin_lane_lag_seconds{name="audit"} 0.25
flowjoin_lane_lag_seconds{name="away"} 600.0
flowjoin_kernel_records_rejected_total{reason="time_absent"} 9.0
flowjoin_kernel_records_rejected_total{reason="table_full"} 0.0
flowjoin_lane_dropped_rows_total{name="away"} 3.0
flowjoin_lane_spooled_rows{name="away"} 60.0
flowjoin_lane_spool_octets{name="away"} 9000.0
"""
HEALTH = {
    "phase": "ready",
    "components": [
        {"component": "exporters/audit", "state": "ok", "problem": "", "failures": 0},
        {"component": "exporters/away", "state": "degraded", "problem": "refused", "failures": 2},
    ],
}


def readings() -> tuple[Reading, Reading]:
    return parse_metrics(BEFORE, 10.0), parse_metrics(AFTER, 12.0)


def test_rates_are_what_grew_in_a_second() -> None:
    view = view_of(*readings(), HEALTH)
    assert view.seconds == 2
    assert view.rates["messages"] == 100
    assert view.rates["rows"] == 0
    (collector,) = view.collectors
    assert (collector.sessions, collector.messages_per_second) == (4, 100)
    assert view.flows["held"] == 9


def test_a_counter_that_began_anew_has_no_rate_below_zero() -> None:
    assert view_of(*readings(), HEALTH).rates["records"] == 0


def test_a_lanes_lag_is_the_metrics_and_how_long_it_needs_for_what_it_holds_is_said_beside() -> None:
    audit, away = view_of(*readings(), HEALTH).lanes
    assert (audit.name, audit.delivered_per_second, audit.held) == ("audit", 20, 20)
    assert (audit.lag_seconds, audit.drain_seconds) == (0.25, 1)
    assert (away.held, away.lag_seconds, away.drain_seconds, away.dropped) == (70, 600, None, 3)
    assert (audit.spool_octets, away.spooled, away.spool_octets) == (0, 60, 9000)


def test_what_was_lost_is_told_with_its_reason_and_what_was_not_is_left_out() -> None:
    drops = view_of(*readings(), HEALTH).drops
    assert [(drop.metric, drop.reason, drop.count, drop.per_second) for drop in drops] == [
        ("flowjoin_kernel_records_rejected_total", "time_absent", 9, 2),
        ("flowjoin_lane_dropped_rows_total", "away", 3, 1.5),
    ]


def test_what_is_degraded_is_told_with_its_problem() -> None:
    assert view_of(*readings(), HEALTH).degraded == {"exporters/away": "refused"}


def test_it_is_json() -> None:
    facts = view_of(*readings(), HEALTH).facts()
    assert json.loads(json.dumps(facts)) == facts


def test_what_is_no_exposition_is_refused() -> None:
    with pytest.raises(ValueError):
        parse_metrics("<html>\n", 0)
