from __future__ import annotations

from math import inf

from flowjoin._pipeline.patience import Patience


def looks(patience: Patience, count: int, *, elapsed: float = 1.0) -> list[str]:
    return [patience.look(elapsed) for _ in range(count)]


def test_what_takes_so_long_is_told_once() -> None:
    patience = Patience(3)
    patience.begin("export")
    assert looks(patience, 6) == ["", "", "export", "", "", ""]


def test_what_ends_or_has_no_end_is_no_hang() -> None:
    patience = Patience(3)
    assert looks(patience, 6) == [""] * 6
    with patience.during("export"):
        assert looks(patience, 2) == [""] * 2
    assert looks(patience, 6) == [""] * 6
    endless = Patience(inf)
    endless.begin("export")
    assert looks(endless, 6) == [""] * 6


def test_each_thing_has_the_whole_time() -> None:
    patience = Patience(3)
    for _ in range(4):
        with patience.during("export"):
            assert looks(patience, 2) == [""] * 2


def test_the_time_begins_anew_with_each_sign_of_progress() -> None:
    patience = Patience(3)
    patience.begin("export")
    for _ in range(5):
        assert looks(patience, 2) == [""] * 2
        patience.progressed()
        assert patience.look(1.0) == ""
    assert looks(patience, 3) == ["", "", "export"]


def test_what_ended_by_an_exception_is_over() -> None:
    patience = Patience(3)
    try:
        with patience.during("export"):
            raise OSError
    except OSError:
        assert looks(patience, 4) == [""] * 4


def test_time_that_nobody_had_is_not_counted() -> None:
    patience = Patience(3)
    patience.begin("export")
    assert patience.look(3600.0) == "", "the process was stopped"
    assert patience.look(3600.0) == "export"
