from __future__ import annotations

import pytest
from conntrack_entries import CLOSE, ESTABLISHED, TIME_WAIT, connection

from flowjoin_conntrack._entry import IDENTITY, NO_TCP_STATE, ROW, Connection, is_dying, tcp_state_name


def test_a_row_is_the_connection_and_back() -> None:
    one = connection(packets=2**64 - 1, zone=65520, labels=bytes(range(16)))
    assert Connection.unpack(one.pack()) == one
    assert len(one.pack()) == ROW.size


@pytest.mark.parametrize("changed", [{"zone": 1}, {"connection_id": 8}, {"source_port": 1}, {"protocol": 17}])
def test_what_tells_connections_apart_stands_first(changed: dict[str, int]) -> None:
    assert connection(**changed).pack()[: IDENTITY.size] != connection().pack()[: IDENTITY.size]


@pytest.mark.parametrize("changed", [{"packets": 1}, {"status": 4}, {"tcp_state": 7}, {"mark": 1}, {"stop": 5}])
def test_what_changes_while_it_lives_is_no_part_of_that(changed: dict[str, int]) -> None:
    assert connection(**changed).pack()[: IDENTITY.size] == connection().pack()[: IDENTITY.size]


@pytest.mark.parametrize(
    ("state", "status", "is_present", "expected"),
    [
        (ESTABLISHED, 256, True, False),
        (TIME_WAIT, 256, True, True),
        (CLOSE, 256, True, True),
        (NO_TCP_STATE, 512, True, True),
        (NO_TCP_STATE, 256, True, False),
        (ESTABLISHED, 512, True, False),
        (ESTABLISHED, 256, False, True),
    ],
)
def test_a_connection_is_dying(state: int, status: int, is_present: bool, expected: bool) -> None:
    assert is_dying(state, status, is_present=is_present) is expected


def test_states_have_the_kernels_names() -> None:
    assert [tcp_state_name(number) for number in (0, 3, 9, 10, NO_TCP_STATE)] == [
        "NONE",
        "ESTABLISHED",
        "SYN_SENT2",
        "",
        "",
    ]
