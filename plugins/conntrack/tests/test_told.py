from __future__ import annotations

import struct

import pytest
from conntrack_entries import connection
from hypothesis import given
from hypothesis import strategies as st

from flowjoin_conntrack._exports import Counters
from flowjoin_conntrack._table import EXPORTED, QUEUED
from flowjoin_conntrack._told import END, TOLD, Told, ToldTotals, packed, unpacked

PLACE = "a-boot 4:4026531833 netlink"
ROW = connection(packets=9, octets=900, reverse_packets=8, reverse_octets=800).pack()


def record(row: bytes = ROW, before: tuple[int, int, int, int] = (5, 500, 4, 400), end: int = 1_000_000_007) -> bytes:
    start = row[100:108]
    return TOLD.pack(row[:44], start, 12, *before, 3, EXPORTED | QUEUED) + END.pack(end)


def test_what_was_told_is_known_again_and_given_once() -> None:
    totals = ToldTotals(unpacked(packed([record()], PLACE), PLACE))
    assert len(totals) == 1
    assert totals.take(ROW) == Told(12, Counters(5, 500, 4, 400), 3, EXPORTED | QUEUED, 1_000_000_007)
    assert totals.take(ROW) is None


@pytest.mark.parametrize(
    "other",
    [
        {"connection_id": 8},
        {"source_port": 60002},
        {"zone": 1},
        {"start": 1_000_000_000_000_000_001},
        {"start": 0},
        {"reverse_octets": 399},  # an id that was given again, where the kernel keeps no times
        {"packets": 4},
    ],
)
def test_another_connection_is_not_taken_for_one_that_was_told(other: dict[str, int]) -> None:
    facts = {"packets": 9, "octets": 900, "reverse_packets": 8, "reverse_octets": 800, **other}
    assert ToldTotals(record()).take(connection(**facts).pack()) is None


def test_nothing_is_known_of_connections_of_another_boot_or_network() -> None:
    assert unpacked(packed([record()], PLACE), "another-boot 4:4026531833 netlink") == b""


def test_an_empty_table_is_kept_too() -> None:
    assert unpacked(packed([], PLACE), PLACE) == b""


@given(st.binary(max_size=300))
def test_any_octets_are_records_or_refused(octets: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        unpacked(octets, PLACE)


@given(st.integers(0, 10_000), st.integers(0, 255), st.integers(0, 10_000))
def test_a_file_that_was_changed_or_cut_is_refused_or_of_another_place(at: int, value: int, cut: int) -> None:
    file = packed([record(), record(connection(source_port=1).pack())], PLACE)
    changed = bytearray(file)
    changed[at % len(file)] ^= value
    octets = bytes(changed[: cut % len(file)] if cut % 2 else changed)
    if octets == file:
        return
    try:
        found = unpacked(octets, PLACE)
    except ValueError:
        return
    assert found == b"" or struct.unpack_from(">B", found) == (4,)
    assert found in (b"", record() + record(connection(source_port=1).pack()))
