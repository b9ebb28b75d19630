from __future__ import annotations

from conntrack_entries import TIME_WAIT, connection
from conntrack_store import SECOND, Bench, delta

from flowjoin_conntrack._entry import NO_TCP_STATE, Connection
from flowjoin_conntrack._exports import EndReason


def test_an_end_that_the_kernel_tells_counts_with_its_last_counters() -> None:
    bench = Bench()
    bench.poll(0)
    bench.store.saw_event(connection(packets=0, status=8).pack(), 1.0, SECOND, is_over=False)
    over = connection(packets=12, stop=2 * SECOND, tcp_state=NO_TCP_STATE, protocol=17)
    began = connection(packets=0, tcp_state=NO_TCP_STATE, protocol=17, source_port=5)
    bench.store.saw_event(began.pack(), 1.0, SECOND, is_over=False)
    bench.store.saw_event(over.pack(), 2.0, 2 * SECOND, is_over=True)
    reasons = {delta(one): one.reason for one in bench.store.expire(7, 9)}
    assert reasons == {0: EndReason.ACTIVE, 12: EndReason.END_OF_FLOW}


def test_a_change_without_counters_takes_none_away() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=12))
    bench.store.saw_event(connection(packets=0, tcp_state=TIME_WAIT).pack(), 1.0, SECOND, is_over=False)
    assert bench.due(5) == [(EndReason.END_OF_FLOW, 12)]


def test_an_event_of_what_is_nobodys_yet_does_not_put_off_the_next_question() -> None:
    asked: list[float] = []
    bench = Bench(lambda _row: asked.append(now))
    now = 0.0
    bench.poll(now, connection(packets=1))
    bench.store.saw_event(connection(packets=1).pack(), now, 0, is_over=False)  # it was read before it was told
    now = 1.0
    bench.poll(now, connection(packets=1))
    assert asked == [0.0, 0.0, 1.0]


def test_an_end_that_was_told_is_exported_at_once_and_no_late_row_brings_it_back() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3))
    bench.due(5)
    list(bench.store.begin_poll(6, 6 * SECOND))
    bench.store.saw_event(connection(packets=7).pack(), 6.0, 6 * SECOND, is_over=True)
    list(bench.store.see(connection(packets=6).pack()))  # was read before
    list(bench.store.end_poll())
    assert bench.due(6) == [(EndReason.END_OF_FLOW, 4)]
    bench.poll(11)
    assert len(bench.store) == 0


def test_what_began_and_ended_between_polls_is_held_until_it_is_exported_and_no_longer() -> None:
    bench = Bench()
    bench.poll(0)
    for number in range(100):
        row = connection(connection_id=number, packets=1).pack()
        bench.store.saw_event(row, 1.0, SECOND, is_over=False)
        bench.store.saw_event(row, 2.0, 2 * SECOND, is_over=True)
    assert len(bench.store) == 100
    assert bench.due(2) == [(EndReason.END_OF_FLOW, 1)] * 100
    assert len(bench.store) == 0
    assert bench.due(100) == []


def test_a_closed_connection_is_held_until_the_kernel_tells_its_end() -> None:
    bench = Bench()
    bench.poll(0, connection(packets=3, tcp_state=TIME_WAIT))
    assert bench.due(5) == [(EndReason.END_OF_FLOW, 3)]
    bench.store.saw_event(connection(packets=3).pack(), 6.0, 6 * SECOND, is_over=True)
    assert (len(bench.store), bench.due(100)) == (0, [])


def test_the_end_of_what_is_nobodys_leaves_nothing() -> None:
    bench = Bench(lambda _row: None)
    bench.store.saw_event(connection().pack(), 0.0, 0, is_over=False)
    assert bench.store.left_out == 1
    bench.store.saw_event(connection().pack(), 1.0, 1, is_over=True)
    assert (bench.store.left_out, len(bench.store), bench.due(1000)) == (0, 0, [])


def test_a_connection_whose_event_came_first_keeps_what_the_poll_tells() -> None:
    bench = Bench()
    bench.store.saw_event(connection(start=0).pack(), 0.0, 0, is_over=False)
    bench.poll(1, connection(packets=3, start=9))
    bench.store.saw_event(connection(start=0).pack(), 2.0, 2 * SECOND, is_over=False)
    (export,) = bench.store.expire(6, 9)
    assert (Connection.unpack(export.row).start, delta(export), len(bench.store)) == (9, 3, 1)


def test_an_event_between_a_row_and_its_turn_does_not_take_the_rows_counters_away() -> None:
    bench = Bench()
    many = [connection(source_port=port, connection_id=port, packets=1, octets=60) for port in range(100)]
    list(bench.store.begin_poll(0, 0))
    slices = bench.store.see(b"".join(one.pack() for one in many))
    next(slices)
    bench.store.saw_event(connection(source_port=99, connection_id=99, start=0).pack(), 0.0, 0, is_over=False)
    assert sum(slices) == 36
    list(bench.store.end_poll())
    assert bench.due(5) == [(EndReason.ACTIVE, 1)] * 100


def test_however_many_ends_wait_all_that_is_hastened_is_told() -> None:
    bench = Bench()
    bench.poll(0)
    for port in range(9000):
        bench.store.saw_event(connection(source_port=port, packets=1).pack(), 1.0, SECOND, is_over=True)
    list(bench.store.hasten(2.0))
    told = 0
    while bench.store.is_overdue:
        told += len(bench.store.expire(2.0, 16))
    assert told == 9000
