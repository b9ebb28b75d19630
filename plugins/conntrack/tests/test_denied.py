from __future__ import annotations

from typing import Any

import pytest
from conntrack_entries import connection
from hypothesis import given
from hypothesis import strategies as st

from flowjoin_conntrack._denied import Denial, DeniedStore
from flowjoin_conntrack._entry import NO_TCP_STATE, Connection
from flowjoin_conntrack._exports import EndReason, Export, Timeouts
from flowjoin_conntrack._verdict import Verdict

TIMEOUTS = Timeouts(active=5.0, idle=15.0, stale=300.0)
SECOND = 1_000_000_000


def store(most: int = 100, **changed: Any) -> DeniedStore[str]:
    classify = changed.get("classify", lambda _connection, verdict: f"rule {verdict.rule_id}")
    return DeniedStore(TIMEOUTS, classify, most=most)


def denied(at: float, **changed: Any) -> Connection:
    start = int(at * SECOND)
    return connection(start=start, stop=start, tcp_state=NO_TCP_STATE, connection_id=0, **changed)


def told(export: Export[str]) -> tuple[int, int, int, int]:
    """Packets and octets in total, and since the last row."""
    row = Connection.unpack(export.row)
    return row.packets, row.octets, row.packets - export.before.packets, row.octets - export.before.octets


def test_the_first_packet_makes_a_connection_that_is_over() -> None:
    kept = store()
    assert kept.deny(denied(100.0), Verdict(rule_id=7), 60, 0.0) is Denial.NEW
    assert kept.next_expiry() == 5.0
    assert kept.expire(4.9, 10) == []
    (export,) = kept.expire(5.0, 10)
    row = Connection.unpack(export.row)
    assert (row.start, row.stop) == (100 * SECOND, 100 * SECOND)
    assert (export.reason, export.is_first, export.meta) == (EndReason.END_OF_FLOW, True, "rule 7")
    assert told(export) == (1, 60, 1, 60)


def test_packets_that_repeat_add_up() -> None:
    kept = store()
    outcomes = [kept.deny(denied(100.0 + number), Verdict(), 60 + number, float(number)) for number in range(3)]
    assert outcomes == [Denial.NEW, Denial.REPEATED, Denial.REPEATED]
    (export,) = kept.expire(5.0, 10)
    assert told(export) == (3, 183, 3, 183)
    assert Connection.unpack(export.row).stop == 102 * SECOND
    kept.deny(denied(106.0), Verdict(), 60, 6.0)
    (export,) = kept.expire(10.0, 10)
    assert (told(export), export.is_first) == ((4, 243, 1, 60), False)


@pytest.mark.parametrize(("source", "destination"), [("10.10.0.2", "10.10.0.3"), ("fd00::2", "fd00::3")])
def test_a_row_ends_later_than_its_start_and_than_the_row_before(source: str, destination: str) -> None:
    """An aggregator takes nothing from a record that ends no later than what it knows of that side."""
    kept = store()

    def deny(at: float, now: float) -> None:
        start = int(at * SECOND)
        packet = connection(source, destination, start=start, stop=start, tcp_state=NO_TCP_STATE, connection_id=0)
        kept.deny(packet, Verdict(), 60, now)

    deny(100.2, 0.0)
    deny(100.3, 0.1)
    assert [(told(one), one.end) for one in kept.expire(5.0, 10)] == [((2, 120, 2, 120), 101)]
    deny(101.9, 5.1)  # by the packet's own clock, which may be behind
    assert [(told(one), one.end) for one in kept.expire(10.0, 10)] == [((3, 180, 1, 60), 102)]
    deny(109.9, 10.1)
    assert [one.end for one in kept.expire(15.0, 10)] == [109]


def test_one_that_is_still_is_told_once_more_and_left_alone() -> None:
    kept = store()
    kept.deny(denied(100.0), Verdict(), 60, 0.0)
    assert [told(export) for now in (5.0, 10.0, 15.0, 20.0, 100.0) for export in kept.expire(now, 10)] == [
        (1, 60, 1, 60),
        (1, 60, 0, 0),
    ]
    assert kept.next_expiry() is None
    assert kept.deny(denied(200.0), Verdict(), 60, 100.0) is Denial.REPEATED
    assert [told(export) for export in kept.expire(105.0, 10)] == [(2, 120, 1, 60)]


def test_after_its_idle_timeout_what_comes_is_another_connection() -> None:
    kept = DeniedStore(Timeouts(active=60.0, idle=15.0, stale=300.0), lambda *_: "m", most=100)
    kept.deny(denied(100.0), Verdict(), 60, 1.0)
    assert kept.next_expiry() == 16.0
    assert [told(export) for export in kept.expire(16.0, 10)] == [(1, 60, 1, 60)]
    assert kept.deny(denied(120.0), Verdict(), 70, 21.0) is Denial.NEW
    (export,) = kept.expire(36.0, 10)
    assert (told(export), export.is_first) == ((1, 70, 1, 70), True)


def test_what_is_over_is_forgotten_once_a_minute() -> None:
    kept = DeniedStore(Timeouts(active=60.0, idle=15.0, stale=300.0), lambda *_: "m", most=100)
    kept.deny(denied(100.0), Verdict(), 60, 0.0)
    kept.expire(1.0, 10)
    assert len(kept.expire(15.0, 10)) == 1
    kept.expire(60.0, 10)
    assert len(kept) == 1
    kept.expire(61.0, 10)
    assert len(kept) == 0


def test_what_is_still_for_the_stale_timeout_is_forgotten() -> None:
    kept = store()
    kept.deny(denied(100.0), Verdict(), 60, 0.0)
    for now in range(5, 310, 5):
        kept.expire(float(now), 10)
    assert len(kept) == 1
    kept.expire(370.0, 10)
    assert len(kept) == 0


def test_more_connections_than_are_held_are_refused_and_known_ones_are_not() -> None:
    kept = store(most=2)
    assert [kept.deny(denied(1.0, source_port=port), Verdict(), 60, 0.0) for port in (1, 2, 3, 2)] == [
        Denial.NEW,
        Denial.NEW,
        Denial.NO_ROOM,
        Denial.REPEATED,
    ]


def test_what_nobody_wants_is_not_held() -> None:
    kept = store(classify=lambda *_: None)
    assert kept.deny(denied(1.0), Verdict(), 60, 0.0) is Denial.NOT_WANTED
    assert (len(kept), kept.next_expiry()) == (0, None)


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_rows_than_asked_for_earliest_first(limit: int) -> None:
    kept = store()
    for port in range(4):
        kept.deny(denied(1.0, source_port=port), Verdict(), 60, float(port))
    ports = [Connection.unpack(export.row).source_port for export in kept.expire(100.0, limit)]
    assert ports == list(range(4))[:limit]


@given(
    st.lists(
        st.tuples(st.sampled_from(["deny", "expire"]), st.integers(0, 3), st.floats(0.0, 40.0)), min_size=1, max_size=60
    )
)
def test_every_packet_is_in_the_deltas_once(steps: list[tuple[str, int, float]]) -> None:
    kept = store()
    now, sent, deltas = 0.0, 0, 0
    for what, port, wait in steps:
        now += wait
        if what == "deny":
            sent += 1
            kept.deny(denied(now, source_port=port), Verdict(), 60, now)
        else:
            deltas += sum(told(export)[2] for export in kept.expire(now, 10))
    while (due := kept.next_expiry()) is not None:
        deltas += sum(told(export)[2] for export in kept.expire(due, 10))
    assert deltas == sent
