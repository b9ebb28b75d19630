from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conntrack_entries import CLOSE, TIME_WAIT, connection
from conntrack_store import SECOND, Bench, delta

from flowjoin_conntrack._entry import NO_TCP_STATE, Connection
from flowjoin_conntrack._exports import EndReason, Timeouts


def test_a_new_connection_is_exported_after_the_active_timeout() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    assert bench.due(4.9) == []
    assert bench.store.next_expiry() == 5
    assert bench.due(5) == [(EndReason.ACTIVE, 3)]


def test_one_that_goes_on_is_exported_again_and_one_that_is_still_once_more() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    assert bench.due(5) == [(EndReason.ACTIVE, 3)]
    bench.poll(6, connection(packets=10))
    assert bench.due(10) == [(EndReason.ACTIVE, 7)]
    bench.poll(11, connection(packets=10))
    assert bench.due(15) == [(EndReason.IDLE, 0)]
    for at in (20, 25, 40):
        bench.poll(at, connection(packets=10))
        assert bench.due(at) == []
    assert bench.store.next_expiry() is None
    bench.poll(41, connection(packets=11))
    assert bench.due(46) == [(EndReason.ACTIVE, 1)]


def ends(bench: Bench, now: float) -> list[int]:
    return [one.end for one in bench.store.expire(now, 100)]


@pytest.mark.parametrize("ends_of_it", [("10.10.0.2", "10.10.0.3"), ("fd00::2", "fd00::3")])
def test_a_row_ends_later_than_its_start_and_than_the_row_before(ends_of_it: tuple[str, str]) -> None:
    """An aggregator takes nothing from a record that ends no later than what it knows of that side."""
    bench = Bench()
    one = connection(*ends_of_it, start=1000 * SECOND + SECOND // 2)
    bench.poll(1000.6, replace(one, packets=3))
    assert ends(bench, 1005.6) == [1001]  # it was seen in the second of its start
    bench.poll(1005.7, replace(one, packets=4))
    assert ends(bench, 1010.7) == [1005]
    over = replace(one, packets=5, stop=1005 * SECOND + 800)
    bench.store.saw_event(over.pack(), 1010.8, 1005 * SECOND + 900, is_over=True)
    assert ends(bench, 1010.8) == [1006]  # and not 1005 again, which was told


def test_a_still_connection_whose_state_changes_is_active() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.due(5)
    bench.poll(6, connection(packets=3))
    bench.due(10)
    bench.poll(11, connection(packets=3, tcp_state=5))
    assert bench.due(16) == [(EndReason.ACTIVE, 0)]


@pytest.mark.parametrize(
    "last",
    [connection(packets=5, tcp_state=TIME_WAIT), connection(packets=5, tcp_state=CLOSE)],
    ids=["TIME_WAIT", "CLOSE"],
)
def test_one_that_is_over_is_exported_for_the_last_time_and_nothing_is_said_after(last: Connection) -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    assert bench.due(5) == [(EndReason.ACTIVE, 3)]
    bench.poll(6, last)
    assert bench.due(10) == [(EndReason.END_OF_FLOW, 2)]
    bench.poll(11, connection(packets=6, tcp_state=TIME_WAIT))
    assert bench.due(1000) == []
    bench.poll(12)
    bench.poll(13)
    assert len(bench.store) == 0


def test_one_that_is_over_before_its_first_export_is_exported_once_with_everything() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.poll(1, connection(packets=9, tcp_state=TIME_WAIT))
    assert bench.due(5) == [(EndReason.END_OF_FLOW, 9)]


def test_one_that_vanished_is_exported_with_what_was_seen_last() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.poll(1)
    assert bench.due(5) == [(EndReason.END_OF_FLOW, 3)]
    bench.poll(6)
    bench.poll(7)
    assert len(bench.store) == 0


def test_a_port_pair_that_is_used_again_is_another_connection() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3, tcp_state=TIME_WAIT))
    bench.poll(1, connection(packets=8, connection_id=8))
    assert sorted(bench.due(6)) == [(EndReason.ACTIVE, 8), (EndReason.END_OF_FLOW, 3)]


def test_a_counter_that_was_set_back_is_no_activity() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=30))
    bench.due(5)
    bench.poll(6, connection(packets=1))
    assert [one.reason for one in bench.store.expire(10, 9)] == [EndReason.IDLE]


def test_a_connection_that_is_nobodys_is_asked_about_ever_less_often() -> None:
    asked: list[float] = []
    now = 0.0

    def classify(_row: bytes) -> str | None:
        asked.append(now)
        return "known" if now >= 30 else None

    bench = Bench(classify)
    while now < 40:
        bench.poll(now, connection(packets=1))
        now += 1
    assert asked == [0, 1, 3, 7, 15, 31]
    assert (len(bench.store), bench.store.left_out) == (1, 0)


def test_what_is_nobodys_and_gone_is_forgotten() -> None:
    bench = Bench(lambda _row: None)
    bench.poll(0, connection())
    assert bench.store.left_out == 1
    bench.poll(1)
    bench.poll(2)
    assert bench.store.left_out == 0


def test_no_more_than_the_limit_is_exported_at_once() -> None:
    bench = Bench()
    bench.poll(0, *(connection(source_port=port, packets=1) for port in range(10)))
    assert [len(bench.store.expire(5, 4)) for _ in range(3)] == [4, 4, 2]


def test_while_polls_fail_nothing_is_said_of_what_was_not_looked_at() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    assert bench.due(5) == [(EndReason.ACTIVE, 3)]
    for at in (6, 11, 16, 21, 26, 31):  # begun, not ended
        list(bench.store.begin_poll(at, at * SECOND))
        assert bench.due(at) == []
    bench.poll(33, connection(packets=3))
    assert bench.due(33) == [(EndReason.IDLE, 0)]  # now it is known that it rests


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ([connection(packets=9)], [(EndReason.ACTIVE, 6)]),
        ([connection(packets=3)], [(EndReason.IDLE, 0)]),
        ([], [(EndReason.END_OF_FLOW, 0)]),
    ],
    ids=["goes on", "rests", "is gone"],
)
def test_after_polls_that_failed_what_is_overdue_is_told_at_once(
    there: list[Connection], expected: list[tuple[EndReason, int]]
) -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.due(5)
    assert bench.due(12) == []
    bench.poll(13, *there)
    assert bench.due(13) == expected


def test_what_a_poll_saw_before_it_failed_counts() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3), connection(source_port=2, packets=1))
    bench.due(5)
    list(bench.store.begin_poll(6, 6 * SECOND))
    list(bench.store.see(connection(packets=8).pack()))
    assert bench.due(11) == [(EndReason.ACTIVE, 5)]  # and the other has not vanished


def test_one_that_is_closed_is_not_changed_any_more() -> None:
    bench = Bench()
    over = connection("10.10.10.10", "4.3.2.1", packets=0xFFF, tcp_state=TIME_WAIT, start=SECOND)
    bench.poll(10, over)
    bench.poll(11, replace(over, packets=0xFFFF))
    (export,) = bench.store.expire(15, 9)
    assert (export.reason, delta(export), export.end) == (EndReason.END_OF_FLOW, 0xFFF, 10)


def test_counters_are_those_of_the_last_look_and_deltas_those_since_the_last_export() -> None:
    bench = Bench()
    old = {"packets": 0xFFF, "octets": 0xBAAAAA00000000, "reverse_packets": 0xF, "reverse_octets": 0xBAA}
    new = {"packets": 0xFFFF, "octets": 0xBAAAAA0000000000, "reverse_packets": 0xFF, "reverse_octets": 0xBAAA}
    bench.poll(0, connection("1.2.3.4", "4.3.2.1", **old))
    (first,) = bench.store.expire(5, 9)
    bench.poll(6, connection("1.2.3.4", "4.3.2.1", **new))
    (second,) = bench.store.expire(10, 9)
    assert (tuple(first.before), tuple(second.before)) == ((0, 0, 0, 0), tuple(old.values()))
    assert Connection.unpack(second.row) == connection("1.2.3.4", "4.3.2.1", **new)
    assert (first.is_first, second.is_first, second.reason) == (True, False, EndReason.ACTIVE)
    assert second.first_seen == 0


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"packets": 1}, EndReason.ACTIVE),
        ({"reverse_packets": 1}, EndReason.ACTIVE),
        ({"tcp_state": 5}, EndReason.ACTIVE),
        ({"octets": 1}, EndReason.IDLE),
        ({}, EndReason.IDLE),
    ],
)
def test_a_connection_is_active_by_packets_of_either_side_or_its_state(
    changed: dict[str, int], expected: EndReason
) -> None:
    bench = Bench()
    bench.poll(0, connection())
    bench.due(5)
    bench.poll(6, connection(**changed))
    assert [reason for reason, _ in bench.due(10)] == [expected]


def test_a_still_connection_leaves_the_queue_at_its_idle_timeout_and_comes_back_with_packets() -> None:
    bench = Bench(timeouts=Timeouts(active=60.0, idle=15.0, stale=300.0))
    bench.poll(0, connection(packets=3))
    assert bench.due(14) == []
    assert bench.due(15) == [(EndReason.ACTIVE, 3)]  # no poll has looked again: it may be active
    assert bench.store.next_expiry() is None
    bench.poll(20, connection(packets=3))
    assert bench.store.next_expiry() is None
    bench.poll(25, connection(packets=4))
    bench.poll(39, connection(packets=4))  # more than its last row told: active still
    assert bench.due(40) == []
    assert bench.due(54) == [(EndReason.ACTIVE, 1)]


def test_one_that_vanished_before_its_row_is_due_comes_back_if_it_is_seen_again() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.poll(1)
    bench.poll(2, connection(packets=4))
    assert bench.due(5) == [(EndReason.ACTIVE, 4)]


def test_one_that_vanished_and_was_not_exported_is_forgotten_after_the_stale_timeout_and_counted() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.poll(1)
    bench.poll(299)
    assert len(bench.store) == 1
    bench.poll(300)
    assert (len(bench.store), bench.store.forgotten, bench.due(301)) == (0, 1, [])


def test_one_that_rests_and_vanishes_is_forgotten_without_another_row() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.due(5)
    bench.poll(6, connection(packets=3))
    assert bench.due(10) == [(EndReason.IDLE, 0)]
    bench.poll(11)
    assert bench.due(100) == []
    bench.poll(310)
    assert (len(bench.store), bench.store.forgotten) == (0, 0)


def test_an_identity_that_the_kernel_gives_again_is_another_connection_by_its_start() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3, start=5))
    bench.poll(1, connection(packets=2, start=6))
    assert sorted(bench.due(6)) == [(EndReason.ACTIVE, 2), (EndReason.END_OF_FLOW, 3)]
    bench.poll(7, connection(packets=4, start=6))
    assert bench.due(11) == [(EndReason.ACTIVE, 2)]
    assert len(bench.store) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"packets": 9, "tcp_state": NO_TCP_STATE}, {"packets": 2, "tcp_state": NO_TCP_STATE}),
        ({"packets": 2, "octets": 900}, {"packets": 2, "octets": 100}),
        ({"packets": 2, "reverse_packets": 3}, {"packets": 2, "reverse_packets": 2}),
        ({"packets": 2, "tcp_state": TIME_WAIT}, {"packets": 2}),
        ({"packets": 2, "tcp_state": CLOSE}, {"packets": 5}),
    ],
)
def test_where_no_times_are_kept_a_port_pair_that_is_used_again_is_known_by_what_it_counted(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    bench = Bench()
    bench.poll(0, connection(start=0, **before))
    assert len(bench.due(5)) == 1
    bench.poll(6, connection(start=0, **after))
    assert [packets for _, packets in bench.due(11) if packets] == [after["packets"]]
    assert len(bench.store) == 1


def test_where_no_times_are_kept_one_that_goes_on_is_the_same() -> None:
    bench = Bench()
    bench.poll(0, connection(start=0, packets=3))
    bench.due(5)
    bench.poll(6, connection(start=0, packets=5))
    bench.poll(7, connection(start=0, packets=5, tcp_state=TIME_WAIT))
    assert bench.due(10) == [(EndReason.END_OF_FLOW, 2)]
