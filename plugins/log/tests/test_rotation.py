"""Names of rotated files, and which of them go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from flowjoin_log._rotation import backup_name, backups_among, plan_tidying

NOW = datetime(2026, 11, 30, 14, 5, 9, 123_999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("file_name", "expected"),
    [
        ("flows.log", "flows-2026-11-30T14-05-09.123.log"),
        ("antrea-flows.log", "antrea-flows-2026-11-30T14-05-09.123.log"),
        ("flows", "flows-2026-11-30T14-05-09.123"),
        ("flows.a.log", "flows.a-2026-11-30T14-05-09.123.log"),
        (".flows", "-2026-11-30T14-05-09.123.flows"),
        ("flows.gz", "flows-2026-11-30T14-05-09.123.gz"),
    ],
)
def test_a_rotated_file_has_the_time_in_utc_before_its_extension(file_name: str, expected: str) -> None:
    assert backup_name(file_name, NOW, ()) == expected
    assert [backup.name for backup in backups_among(file_name, [expected])] == [expected]
    assert [backup.name for backup in backups_among(file_name, [expected + ".gz"])] == [expected]


def test_a_name_that_is_taken_compressed_or_not_is_not_used_again() -> None:
    taken = {"flows-2026-11-30T14-05-09.123.log", "flows-2026-11-30T14-05-09.124.log.gz"}
    assert backup_name("flows.log", NOW, taken) == "flows-2026-11-30T14-05-09.125.log"


def test_only_files_of_the_exact_form_are_ours() -> None:
    others = [
        "flows.log",
        "flows-1.log",
        "flows-2026-11-30T14-05-09.123.log.bz2",
        "flows-2026-11-30T14-05-09.log",
        "flows-2026-13-30T14-05-09.123.log",
        "flows-2026-02-30T14-05-09.123.log",
        "other-2026-11-30T14-05-09.123.log",
        "flows-2026-11-30T14-05-09.123.log.gz.gz",
        "my-flows-2026-11-30T14-05-09.123.log",
    ]
    assert backups_among("flows.log", others) == []


def test_a_dot_in_the_name_is_a_dot() -> None:
    assert backups_among("flows.log", ["flows-2026-11-30T14-05-09.123xlog"]) == []


def names(*days: int, suffix: str = "") -> list[str]:
    return [backup_name("flows.log", NOW - timedelta(days=days_ago), ()) + suffix for days_ago in days]


def test_the_newest_files_stay_and_a_file_counts_once_with_its_compressed_form() -> None:
    present = [*names(0, 1), *names(1, 2, 3, suffix=".gz"), "flows.log"]
    plan = plan_tidying("flows.log", present, now=NOW, max_backups=3, max_age=0, compress=True)
    assert set(plan.remove) == {*names(1), *names(3, suffix=".gz")}
    assert plan.compress == tuple(names(0))


def test_zero_keeps_all_of_any_age() -> None:
    present = names(*range(50))
    plan = plan_tidying("flows.log", present, now=NOW, max_backups=0, max_age=0, compress=False)
    assert (plan.remove, plan.compress) == ((), ())


def test_a_file_goes_when_it_is_older_than_so_many_days() -> None:
    present = [*names(6), *names(7), *names(8, suffix=".gz")]
    now = NOW.replace(microsecond=123_000)  # as the names have it
    plan = plan_tidying("flows.log", present, now=now, max_backups=0, max_age=7, compress=False)
    assert plan.remove == tuple(names(8, suffix=".gz"))
    later = plan_tidying(
        "flows.log", present, now=now + timedelta(milliseconds=1), max_backups=0, max_age=7, compress=False
    )
    assert set(later.remove) == {*names(7), *names(8, suffix=".gz")}


def test_what_a_crash_left_of_a_compression_goes_and_it_is_done_again() -> None:
    partial = names(1, suffix=".gz.partial")
    present = [*names(1), *partial, "stranger.gz.partial"]
    plan = plan_tidying("flows.log", present, now=NOW, max_backups=3, max_age=0, compress=True)
    assert plan.remove == tuple(partial)
    assert plan.compress == tuple(names(1))


def test_the_plain_form_goes_when_the_compressed_one_is_whole() -> None:
    plan = plan_tidying(
        "flows.log", [*names(1), *names(1, suffix=".gz")], now=NOW, max_backups=3, max_age=0, compress=True
    )
    assert (plan.remove, plan.compress) == (tuple(names(1)), ())
