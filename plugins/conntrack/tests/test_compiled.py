"""The compiled form gives the answers of the plain one, whatever it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conntrack_entries import CLOSE, ESTABLISHED, TIME_WAIT, connection
from hypothesis import given, settings
from hypothesis import strategies as st

from flowjoin_conntrack import _netlink, _table
from flowjoin_conntrack._table import EXPORTED, FREE, GONE, LEFT_OUT, QUEUED, READY

NOT_BUILT = "the compiled form was not built"
compiled_netlink = pytest.importorskip("flowjoin_conntrack._compiled_netlink", reason=NOT_BUILT)
compiled_table = pytest.importorskip("flowjoin_conntrack._compiled_table", reason=NOT_BUILT)
DATAGRAMS = [bytes.fromhex(line) for line in (Path(__file__).parent / "dump.hex").read_text().split()]


def answer(read: Any, octets: bytes, zones: frozenset[int]) -> object:
    try:
        return tuple(read(octets, zones))
    except _netlink.NetlinkError as exc:
        return exc.errno, str(exc)


@given(
    st.lists(st.sampled_from(DATAGRAMS), min_size=1, max_size=3).map(b"".join),
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=6),
    st.integers(0, 2**13),
    st.sampled_from([frozenset(), frozenset({7}), frozenset({0, 7})]),
)
@settings(max_examples=400, deadline=None)
def test_any_octets_are_read_alike(
    octets: bytes, changes: list[tuple[int, int]], cut: int, zones: frozenset[int]
) -> None:
    changed = bytearray(octets)
    for at, value in changes:
        changed[at % len(changed)] = value
    given_octets = bytes(changed if cut > len(changed) else changed[:cut])
    assert answer(compiled_netlink.read, given_octets, zones) == answer(_netlink.read, given_octets, zones)


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_octets_that_are_no_netlink_are_refused_alike(octets: bytes) -> None:
    assert answer(compiled_netlink.read, octets, frozenset()) == answer(_netlink.read, octets, frozenset())


rows = st.builds(
    lambda port, identity, start, packets, reverse, state: connection(
        source_port=port,
        connection_id=identity,
        start=start,
        packets=packets,
        reverse_packets=reverse,
        tcp_state=state,
    ).pack(),
    st.integers(0, 3),
    st.integers(0, 1),
    st.sampled_from([0, 5, 6]),
    st.integers(0, 3),
    st.sampled_from([0, 0, 2**63]),
    st.sampled_from([ESTABLISHED, ESTABLISHED, TIME_WAIT, CLOSE, 255]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("see"), st.lists(rows, max_size=6).map(b"".join)),
        st.tuples(st.just("see_and_add"), st.lists(rows, max_size=6).map(b"".join)),
        st.tuples(st.just("replace"), rows),
        st.tuples(st.sampled_from(["exported", "detach", "free"]), st.integers(0, 12)),
        st.tuples(
            st.just("restore"), st.tuples(st.integers(0, 12), st.integers(0, 3), st.sampled_from([ESTABLISHED, 254]))
        ),
        st.tuples(st.just("flags"), st.tuples(st.integers(0, 12), st.sampled_from([LEFT_OUT, QUEUED, READY, GONE]))),
    ),
    max_size=30,
)


def facts(table: Any) -> list[object]:
    """All that can be asked."""
    found: list[object] = [len(table), table.slots, table.absent(3, 0, 100), table.told(0, 100), table.told(2, 3)]
    for slot in range(table.slots):
        flags = table.flags(slot)
        found.append(flags)
        if not flags & FREE:
            found.append((table.row(slot), table.seen_in(slot), table.seen(slot), table.changed_at(slot)))
            found.append((table.before(slot), table.find(table.row(slot))))
    return found


def do(table: Any, number: int, step: tuple[str, Any]) -> object:
    what, value = step
    poll, now, wall = number, number / 2, number * 10**9
    if what == "see":
        return tuple(table.see(value, poll, now, wall))
    if what == "see_and_add":
        seen = table.see(value, poll, now, wall)
        size = len(value) // max(len(value) // len(connection().pack()), 1)
        for at in seen.renewed:
            slot = table.find(value[at : at + size])
            if slot >= 0:
                table.detach(slot)
        for at in seen.unknown + seen.renewed:
            if table.find(value[at : at + size]) < 0:
                table.add(value[at : at + size], poll, now, wall)
        return tuple(seen)
    if what == "replace":
        slot = table.find(value)
        return None if slot < 0 else table.replace(slot, value, poll, now, wall)
    slot, *flags = value if isinstance(value, tuple) else (value,)
    try:
        if what == "restore":
            return table.restore(
                slot, 2**63 + number, (flags[0], 2**64 - 1, 1, number), flags[1], EXPORTED * (number % 2)
            )
        if what == "flags":
            return table.set_flags(slot, flags[0], QUEUED)
        return getattr(table, what)(slot)
    except IndexError as exc:
        return str(exc)


@given(steps)
@settings(max_examples=300, deadline=None)
def test_any_use_of_the_table_has_the_same_outcome(given_steps: list[tuple[str, Any]]) -> None:
    plain, fast = _table.ConnectionTable(), compiled_table.ConnectionTable()
    for number, step in enumerate(given_steps):
        assert do(fast, number, step) == do(plain, number, step)
        assert facts(fast) == facts(plain)


def test_many_connections_come_and_go() -> None:
    table = compiled_table.ConnectionTable()
    known = {connection(source_port=n % 65536, connection_id=n).pack(): -1 for n in range(20_000)}
    for row in known:
        known[row] = table.add(row, 1, 0.0, 0)
    assert all(table.find(row) == slot for row, slot in known.items())
    gone = set(list(known)[::2])
    for row in gone:
        table.free(known[row])
    assert [table.find(row) for row in known] == [-1 if row in gone else slot for row, slot in known.items()]
    assert len(table) == 10_000
    for row in gone:
        table.add(row, 2, 0.0, 0)
    assert table.slots == 20_000  # slots are used again
    assert len(table.see(b"".join(known), 3, 1.0, 1).unknown) == 0


@pytest.mark.parametrize("form", [_table.ConnectionTable, compiled_table.ConnectionTable])
def test_a_slot_that_is_not_in_use_is_an_error(form: Any) -> None:
    table = form()
    slot = table.add(connection().pack(), 1, 0.0, 0)
    table.free(slot)
    for wrong in (slot, -1, 5000):
        with pytest.raises(IndexError):
            table.row(wrong)
