"""Whether a repeated insert is recognised is found in what the server says of its tables."""

from __future__ import annotations

import pytest

from flowjoin_clickhouse._windows import TableRow, windows_of

DEFAULTS = {"non_replicated_deduplication_window": 0, "replicated_deduplication_window": 1000}
TABLE = ("db", "flows")


def row(
    name: str, engine: str, full: str = "", *, uuid: str = "", create: str = "", dependents: object = ()
) -> TableRow:
    return TableRow("db", name, uuid, engine, full or engine, create, tuple(dependents))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("engine", "full", "window"),
    [
        ("MergeTree", "MergeTree ORDER BY x SETTINGS index_granularity = 8192", 0),
        ("MergeTree", "MergeTree ORDER BY x SETTINGS non_replicated_deduplication_window = 100", 100),
        ("SummingMergeTree", "SummingMergeTree ORDER BY x SETTINGS non_replicated_deduplication_window = 7", 7),
        ("ReplicatedMergeTree", "ReplicatedMergeTree('/p', 'r') ORDER BY x", 1000),
        ("ReplicatedMergeTree", "ReplicatedMergeTree('/p', 'r') SETTINGS replicated_deduplication_window = 0", 0),
        ("SharedMergeTree", "SharedMergeTree('/p', 'r') ORDER BY x", 1000),
        ("Distributed", "Distributed('{cluster}', 'db', 'flows_local', rand())", 0),
        ("Buffer", "", 0),
    ],
)
def test_the_window_is_the_tables_own_setting_or_the_servers(engine: str, full: str, window: int) -> None:
    windows = windows_of(TABLE, [row("flows", engine, full)], DEFAULTS)
    assert windows.window == window
    assert windows.is_exactly_once == (window > 0)
    assert windows.can_be_set == (
        (TABLE,) if window == 0 and engine.endswith("MergeTree") and "Repl" not in engine else ()
    )


def test_the_servers_default_counts() -> None:
    defaults = DEFAULTS | {"non_replicated_deduplication_window": 50}
    assert windows_of(TABLE, [row("flows", "MergeTree")], defaults).window == 50


def test_every_views_target_needs_a_window_of_its_own_down_to_the_last() -> None:
    full = "MergeTree SETTINGS non_replicated_deduplication_window = 5"
    rows = [
        row("flows", "MergeTree", full, dependents=[("db", "inner_view"), ("db", "to_view"), ("db", "plain_view")]),
        row("inner_view", "MaterializedView", uuid="u-1"),
        row(".inner_id.u-1", "SummingMergeTree", full),
        row(
            "to_view",
            "MaterializedView",
            create="CREATE MATERIALIZED VIEW db.to_view TO db.`my target` (`a` UInt8) AS SELECT",
        ),
        row("my target", "MergeTree", full, dependents=[("db", "second")]),
        row("second", "MaterializedView", create="CREATE MATERIALIZED VIEW db.second TO db.last (`a` UInt8) AS"),
        row("last", "MergeTree"),
        row("plain_view", "View"),
    ]
    windows = windows_of(TABLE, rows, DEFAULTS)
    assert windows.without == (("db", "last"),)
    assert windows.can_be_set == (("db", "last"),)


def test_a_target_that_cannot_be_seen_counts_as_one_without_a_window() -> None:
    full = "MergeTree SETTINGS non_replicated_deduplication_window = 5"
    rows = [
        row("flows", "MergeTree", full, dependents=[("db", "v")]),
        row("v", "MaterializedView", create="CREATE MATERIALIZED VIEW db.v TO other.t (`a` UInt8) AS SELECT"),
    ]
    windows = windows_of(TABLE, rows, DEFAULTS)
    assert (windows.without, windows.can_be_set) == ((("other", "t"),), ())


def test_views_that_feed_each_other_in_a_circle_are_looked_at_once() -> None:
    full = "MergeTree SETTINGS non_replicated_deduplication_window = 5"
    create = "CREATE MATERIALIZED VIEW db.v TO db.flows (`a` UInt8) AS SELECT"
    rows = [row("flows", "MergeTree", full, dependents=[("db", "v")]), row("v", "MaterializedView", create=create)]
    assert windows_of(TABLE, rows, DEFAULTS).is_exactly_once


@pytest.mark.parametrize(("window", "without"), [(9, ()), (0, (("db", "v"),))])
def test_a_view_whose_inner_table_has_no_name_to_be_known_by_is_read_itself(window: int, without: object) -> None:
    full = "MergeTree SETTINGS non_replicated_deduplication_window = 5"
    settings = f"SETTINGS non_replicated_deduplication_window = {window}, index_granularity = 8192"
    create = f"CREATE MATERIALIZED VIEW db.v (`a` UInt8) ENGINE = SummingMergeTree ORDER BY a {settings} AS SELECT a"
    rows = [row("flows", "MergeTree", full, dependents=[("db", "v")]), row("v", "MaterializedView", create=create)]
    windows = windows_of(TABLE, rows, DEFAULTS)
    assert (windows.without, windows.can_be_set) == (without, ())
