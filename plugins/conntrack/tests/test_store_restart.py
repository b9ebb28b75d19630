"""A store that goes on where an earlier one ended."""

from __future__ import annotations

import pytest
from conntrack_entries import ESTABLISHED, TIME_WAIT, connection
from conntrack_store import SECOND, Bench, delta

from flowjoin_conntrack._entry import NO_TCP_STATE, Connection
from flowjoin_conntrack._exports import EndReason


def last_rows(bench: Bench, now: float) -> list[tuple[EndReason, int]]:
    list(bench.store.hasten(now))
    return bench.due(now)


def test_what_changed_since_its_last_row_is_told_at_the_end_and_nothing_else() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3), connection("10.10.0.4", packets=1), connection("10.10.0.5", packets=1))
    assert len(bench.due(5)) == 3
    bench.poll(6, connection(packets=7), connection("10.10.0.4", packets=1), connection("10.10.0.6", packets=2))
    assert sorted(last_rows(bench, 6)) == [
        (EndReason.ACTIVE, 2),  # new
        (EndReason.ACTIVE, 4),
        (EndReason.END_OF_FLOW, 0),  # gone
    ]
    assert bench.due(6) == []


def test_what_is_nobodys_is_not_told_at_the_end() -> None:
    bench = Bench(lambda _row: None)
    bench.poll(0, connection(packets=3))
    assert last_rows(bench, 1) == []


def test_deltas_go_on_after_a_restart() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    assert last_rows(bench, 2) == [(EndReason.ACTIVE, 3)]
    again = bench.restarted()
    again.poll(0, connection(packets=10))
    assert again.due(4.9) == []
    assert again.due(5) == [(EndReason.ACTIVE, 7)]


def test_a_connection_that_did_not_change_meanwhile_comes_to_rest_as_any_other() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.due(5)
    again = bench.restarted()
    again.poll(0, connection(packets=3))
    assert again.due(5) == [(EndReason.IDLE, 0)]


def test_one_that_rested_is_silent_until_it_changes() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.due(5)
    bench.poll(6, connection(packets=3))
    assert bench.due(10) == [(EndReason.IDLE, 0)]
    again = bench.restarted()
    again.poll(0, connection(packets=3))
    assert again.due(1000) == []
    again.poll(1000, connection(packets=4))
    assert again.due(1005) == [(EndReason.ACTIVE, 1)]


@pytest.mark.parametrize(("before", "wanted"), [(TIME_WAIT, []), (ESTABLISHED, [(EndReason.END_OF_FLOW, 0)])])
def test_the_end_of_a_connection_is_told_once(before: int, wanted: list[tuple[EndReason, int]]) -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3, tcp_state=before))
    assert len(bench.due(5)) == 1
    again = bench.restarted()
    again.poll(0, connection(packets=3, tcp_state=TIME_WAIT))
    assert again.due(5) == wanted
    again.poll(6)
    again.poll(12)
    assert (again.due(1000), len(again.store)) == ([], 0)


def test_one_that_ended_while_the_table_was_read_for_the_first_time_adds_what_it_counted_since() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.due(5)
    again = bench.restarted()
    again.poll(0)
    again.store.saw_event(connection(packets=8).pack(), 1.0, SECOND, is_over=True)
    assert again.due(1) == [(EndReason.END_OF_FLOW, 5)]


def test_what_was_gone_when_it_was_read_twice_is_known_no_more() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.due(5)
    again = bench.restarted()
    again.poll(0)
    again.poll(5)
    again.poll(10, connection(packets=8))
    assert again.due(15) == [(EndReason.ACTIVE, 8)]


def test_rows_after_a_restart_end_later_than_those_before_and_begin_when_they_did() -> None:
    udp = connection(protocol=17, start=0, tcp_state=NO_TCP_STATE)  # a kernel that keeps no times
    bench = Bench()
    bench.poll(100, udp)
    (row,) = bench.store.expire(105, 9)
    assert (row.first_seen, row.end) == (100 * SECOND, 101)
    again = bench.restarted()
    again.poll(50, udp)  # the clock was set back
    (row,) = again.store.expire(55, 9)
    assert (row.first_seen, row.end) == (100 * SECOND, 102)


def test_what_nobodys_was_told_counts_when_it_is_somebodys_again() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.due(5)
    nobody = bench.restarted(lambda _row: None)
    nobody.poll(0, connection(packets=4))
    again = nobody.restarted()
    again.poll(0, connection(packets=5))
    assert again.due(5) == [(EndReason.ACTIVE, 2)]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_row_that_nobody_was_told_is_told_by_the_next_store(is_first: bool) -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    if not is_first:
        bench.due(5)
        bench.poll(6, connection(packets=7))
    exports = bench.store.expire(20, 9)
    assert len(exports) == 1
    bench.store.take_back(exports)
    again = bench.restarted()
    again.poll(0, connection(packets=8))
    (row,) = again.store.expire(5, 9)
    assert (delta(row), row.is_first) == ((8, True) if is_first else (5, False))


def test_a_row_of_what_is_gone_that_nobody_was_told_is_counted() -> None:
    bench = Bench()
    bench.store.saw_event(connection(packets=3).pack(), 0.0, 0, is_over=True)
    exports = bench.store.expire(0, 9)
    assert Connection.unpack(exports[0].row).packets == 3
    bench.store.take_back(exports)
    assert bench.store.forgotten == 1
