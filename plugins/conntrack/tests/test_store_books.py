"""The books of the store: what its rows add is what was seen, whatever happens in whatever order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conntrack_entries import ESTABLISHED, TIME_WAIT, connection
from conntrack_store import SECOND, Bench, delta
from hypothesis import given, settings
from hypothesis import strategies as st

from flowjoin_conntrack._entry import Connection
from flowjoin_conntrack._exports import EndReason

steps = st.lists(
    st.tuples(
        st.integers(0, 3),  # connection
        st.integers(0, 5),  # more packets
        st.sampled_from([ESTABLISHED, ESTABLISHED, TIME_WAIT]),
        st.booleans(),  # whether it is there
        st.integers(1, 20),  # seconds until the next poll
        st.sampled_from([False, False, False, True]),  # whether the program ends and begins again
    ),
    max_size=40,
)


@given(steps)
@settings(deadline=None)
def test_the_deltas_of_a_connection_add_up_to_what_was_seen_of_it(given_steps: list[Any]) -> None:
    bench = Bench()
    packets = [0] * 4
    state = [ESTABLISHED] * 4
    generation = [0] * 4
    is_there = [True] * 4
    seen: dict[tuple[int, int], int] = {}
    sums: dict[tuple[int, int], int] = {}
    ends: dict[tuple[int, int], int] = {}
    now = 0.0

    def export(at: float) -> None:
        for one in bench.store.expire(at, 1000):
            key = (Connection.unpack(one.row).source_port, Connection.unpack(one.row).connection_id)
            assert delta(one) >= 0
            sums[key] = sums.get(key, 0) + delta(one)
            ends[key] = ends.get(key, 0) + (one.reason is EndReason.END_OF_FLOW)

    for index, more, new_state, there, seconds, is_restarted in given_steps:
        if state[index] == TIME_WAIT or (there and not is_there[index]):  # a port pair that is used again
            generation[index] += 1
            packets[index], state[index] = 0, ESTABLISHED
        packets[index] += more
        state[index], is_there[index] = new_state, there
        rows = []
        for number in range(4):
            if is_there[number]:
                rows.append(
                    connection(
                        source_port=number,
                        connection_id=generation[number],
                        packets=packets[number],
                        tcp_state=state[number],
                    )
                )
                seen[number, generation[number]] = packets[number]
        bench.poll(now, *rows)
        export(now)
        if is_restarted:
            list(bench.store.hasten(now))
            export(now)
            bench = bench.restarted()
        now += seconds
    for _ in range(4):
        bench.poll(now)
        now += 30
        export(now)
    assert sums == seen
    assert all(count <= 1 for count in ends.values())
    assert len(bench.store) == 0 or bench.store.next_expiry() is None


told = st.lists(
    st.tuples(
        st.sampled_from(["begin", "count", "end", "poll", "half a poll", "wait"]), st.integers(0, 2), st.integers(1, 12)
    ),
    max_size=60,
)


@given(told, st.booleans())
@settings(deadline=None)
def test_with_events_all_that_was_counted_is_told_once_and_each_end_once(
    given_steps: list[tuple[str, int, int]], id_is_given_again: bool
) -> None:
    bench = Bench()
    now, generation = 0.0, 0
    alive: dict[int, Connection] = {}
    seen: dict[tuple[int, int], int] = {}
    sums: dict[tuple[int, int], int] = {}
    ends: dict[tuple[int, int], int] = {}

    def event(one: Connection, *, is_over: bool) -> None:
        bench.store.saw_event(one.pack(), now, int(now * SECOND), is_over=is_over)

    def end(port: int) -> None:
        one = alive.pop(port)
        seen[port, one.mark] = one.packets
        event(replace(one, stop=int(now * SECOND) + 1), is_over=True)

    def export() -> None:
        for one in bench.store.expire(now, 1000):
            key = Connection.unpack(one.row).source_port, Connection.unpack(one.row).mark
            sums[key] = sums.get(key, 0) + delta(one)
            ends[key] = ends.get(key, 0) + (one.reason is EndReason.END_OF_FLOW)

    for what, port, number in given_steps:
        now += 0.5
        if what == "begin" and port not in alive:
            generation += 1
            identity = 7 if id_is_given_again else generation
            alive[port] = connection(source_port=port, connection_id=identity, start=generation, mark=generation)
            event(replace(alive[port], start=0), is_over=False)
        elif what == "count" and port in alive:
            alive[port] = replace(alive[port], packets=alive[port].packets + number)
        elif what == "end" and port in alive:
            end(port)
        elif what == "poll":
            bench.poll(now, *alive.values())
        elif what == "half a poll":
            list(bench.store.begin_poll(now, int(now * SECOND)))
            list(bench.store.see(b"".join(one.pack() for one in list(alive.values())[:1])))
        elif what == "restart":  # a last look, the last rows; the next one reads the table before it hears of events
            bench.poll(now, *alive.values())
            list(bench.store.hasten(now))
            export()
            bench = bench.restarted()
            bench.poll(now, *alive.values())
        else:
            now += number
        export()
    for port in list(alive):
        end(port)
    now += 100
    export()
    assert sums == seen
    assert ends == dict.fromkeys(seen, 1)
    bench.poll(now)
    bench.poll(now + 1)
    assert len(bench.store) == 0
