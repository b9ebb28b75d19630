"""The soak's comparison sees what it is there to see: each way in which a promise can be broken, one row at a time."""

from __future__ import annotations

from collections import Counter

import pytest
from soak_books import Spooled, Total, compare, first_mark, identity

ROWS = [identity(first_mark(life) + number, ("10.0.0.1", 80)) for life in (1, 2) for number in range(10)]
LAST_MARK = first_mark(2) + 9
FOREIGN = identity(first_mark(2) + 4, ("10.0.0.2", 80))


def test_rows_that_are_alike_but_for_their_mark_are_no_problem() -> None:
    total = _total(ROWS, ROWS)
    assert total.problems() == []
    assert (total.appended, total.found, total.alike) == (20, 20, 19)


def test_a_dead_letter_is_not_lost() -> None:
    total = compare("x", Spooled(batched=Counter(ROWS), dead=Counter(ROWS[:1])), ROWS[1:], last_mark=LAST_MARK)
    assert total.problems() == []


def test_rows_that_a_kill_left_without_a_batch_are_in_one_later() -> None:
    total = compare("x", Spooled(batched=Counter(ROWS), unclosed=set(ROWS[3:5])), ROWS, last_mark=LAST_MARK)
    assert total.problems() == []


def test_rows_that_a_killed_life_had_not_written_are_not_missed() -> None:
    rows = [*ROWS[:7], *ROWS[10:]]
    assert _total(rows, rows).problems() == []


@pytest.mark.parametrize(
    ("batched", "found", "problem"),
    [
        (ROWS, ROWS[:-1], "1 rows lost"),
        (ROWS, [*ROWS, ROWS[0]], "1 rows doubled"),
        ([*ROWS, ROWS[0]], [*ROWS, ROWS[0]], "1 rows appended twice"),
        ([*ROWS[:3], *ROWS[4:]], [*ROWS[:3], *ROWS[4:]], "1 rows handed over and not appended"),
        (ROWS[:-1], ROWS[:-1], "1 rows handed over and not appended"),
        (ROWS, [*ROWS, FOREIGN], "1 rows foreign"),
    ],
)
def test_one_row_is_seen(batched: list[int], found: list[int], problem: str) -> None:
    assert _total(batched, found).problems() == [f"x: {problem}"]


def test_one_row_in_place_of_another_is_seen_as_both() -> None:
    assert _total(ROWS, [*ROWS[:-1], ROWS[0]]).problems() == ["x: 1 rows lost", "x: 1 rows doubled"]


def test_a_row_under_its_mark_with_other_values_is_seen() -> None:
    found = [FOREIGN if row == ROWS[14] else row for row in ROWS]
    assert _total(ROWS, found).problems() == ["x: 1 rows lost", "x: 1 rows foreign"]


def test_a_row_that_is_there_and_a_dead_letter_is_there_twice() -> None:
    total = compare("x", Spooled(batched=Counter(ROWS), dead=Counter(ROWS[:1])), ROWS, last_mark=LAST_MARK)
    assert total.problems() == ["x: 1 rows doubled"]


def test_a_row_that_never_became_part_of_a_batch_is_seen() -> None:
    total = compare("x", Spooled(batched=Counter(ROWS[:9] + ROWS[10:]), unclosed={ROWS[9]}), ROWS[:9] + ROWS[10:])
    assert total.problems() == ["x: 1 rows in no batch"]


def test_at_least_once_forgives_rows_that_come_twice_and_none_that_is_lost() -> None:
    assert _total(ROWS, [*ROWS, ROWS[0]], promises_once=False).problems() == []
    assert _total(ROWS, ROWS[1:], promises_once=False).problems() == ["x: 1 rows lost"]


def test_a_row_may_be_in_what_was_taken_away_as_well_but_not_twice_in_what_stayed() -> None:
    spooled = Spooled(batched=Counter(ROWS))
    assert compare("x", spooled, ROWS, ROWS[:2]).problems() == []
    assert compare("x", spooled, ROWS, ROWS[:2]).excused == 2
    assert compare("x", spooled, ROWS[2:], ROWS[:2]).problems() == []
    assert compare("x", spooled, [*ROWS, ROWS[1]], ROWS[:2]).problems() == ["x: 1 rows doubled"]


def test_rows_that_flowjoin_says_it_dropped_are_not_missed() -> None:
    total = _total([*ROWS[:3], *ROWS[4:]], [*ROWS[:3], *ROWS[4:]])
    assert total.problems(dropped=1) == []


def _total(batched: list[int], found: list[int], *, promises_once: bool = True) -> Total:
    return compare("x", Spooled(batched=Counter(batched)), found, last_mark=LAST_MARK, promises_once=promises_once)
