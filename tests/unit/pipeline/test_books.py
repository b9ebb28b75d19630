from __future__ import annotations

import dataclasses

import pytest

from flowjoin._kernel.interface import KernelStatistics
from flowjoin._pipeline.books import Books
from flowjoin._pipeline.lane_queue import LaneBooks

KERNEL = KernelStatistics(
    messages=5,
    records_received=10,
    records_created=3,
    records_merged=4,
    records_older=2,
    records_rejected={"address_absent": 1},
    flows_created=3,
    flows_exported_last=1,
    flows_given_up=1,
    flows_held=1,
    rows=6,
)
LANE = LaneBooks(rows_in=8, delivered=4, dead_lettered=1, dropped=1, held=2, batches=3, failures=0)
BOOKS = Books(kernel=KERNEL, rows=8, source_rows={"made": 2}, lanes={"audit": LANE})


def test_books_that_balance_say_nothing() -> None:
    assert BOOKS.imbalances() == ()
    assert BOOKS.undelivered == 2


@pytest.mark.parametrize(
    ("books", "sentence"),
    [
        (
            dataclasses.replace(BOOKS, kernel=dataclasses.replace(KERNEL, records_merged=3)),
            "10 records were received, 9 are accounted for",
        ),
        (
            dataclasses.replace(BOOKS, kernel=dataclasses.replace(KERNEL, flows_held=2)),
            "3 flows were created, 4 are accounted for",
        ),
        (dataclasses.replace(BOOKS, source_rows={}), "6 rows came from the kernel and from sources, 8 went on"),
        (
            dataclasses.replace(BOOKS, lanes={"audit": dataclasses.replace(LANE, held=1)}),
            "8 rows went on, lane audit took 8 and accounts for 7",
        ),
        (
            dataclasses.replace(BOOKS, lanes={"audit": dataclasses.replace(LANE, rows_in=7, held=1)}),
            "8 rows went on, lane audit took 7 and accounts for 7",
        ),
    ],
)
def test_each_equation_that_does_not_hold_is_a_sentence(books: Books, sentence: str) -> None:
    assert books.imbalances() == (sentence,)


def test_the_table_tells_people_where_everything_is() -> None:
    assert BOOKS.table().splitlines() == [
        "messages                            5 read",
        "records                            10 received: 3 made a flow, 4 merged, 2 older than known, "
        "1 rejected, address_absent",
        "flows                               3 created: 1 exported to the end, 1 halves given up, 1 held",
        "source made                         2 rows",
        "rows                                8 exported",
        "exporter audit                      4 delivered: 1 dead letters, 1 dropped, 2 held",
    ]


def test_the_line_of_the_log_has_all_that_is_needed_to_add_the_books_up() -> None:
    facts = BOOKS.facts()
    assert facts["records"] == 10
    assert [facts[f"records_{what}"] for what in ("created", "merged", "older", "rejected")] == [3, 4, 2, 1]
    assert facts["flows"] == 3
    assert [facts[f"flows_{what}"] for what in ("exported_last", "given_up", "evicted", "held")] == [1, 1, 0, 1]
    assert (facts["rows"], facts["source_rows"]) == (8, 2)
    assert facts["lanes"] == {
        "audit": {"delivered": 4, "dead_lettered": 1, "dropped": 1, "held": 2, "restored": 0, "spooled": 0}
    }
