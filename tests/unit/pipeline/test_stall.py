from __future__ import annotations

from flowjoin._pipeline.stall import LOOK_SECONDS, StallWatch, Verdict


def looks(watch: StallWatch, beats: list[int], elapsed: float = LOOK_SECONDS) -> list[Verdict]:
    return [watch.look(beat, elapsed) for beat in beats]


def test_a_loop_that_turns_is_left_alone() -> None:
    assert set(looks(StallWatch(2.0), list(range(100)))) == {Verdict.NOTHING}


def test_a_blocked_loop_is_named_once_after_a_second_and_then_free() -> None:
    verdicts = looks(StallWatch(30.0), [1] * 10 + [2])
    assert verdicts == [Verdict.NOTHING] * 4 + [Verdict.NAME] + [Verdict.NOTHING] * 5 + [Verdict.FREE]


def test_each_episode_is_named() -> None:
    assert looks(StallWatch(30.0), [1] * 6 + [2] * 6).count(Verdict.NAME) == 2


def test_a_loop_blocked_for_the_limit_is_stalled() -> None:
    watch = StallWatch(2.0)
    assert looks(watch, [1] * 9)[-1] is Verdict.STALLED
    assert watch.blocked == 2.0


def test_an_hour_in_which_the_process_was_stopped_is_no_stall_and_no_overdue_closing() -> None:
    watch = StallWatch(30.0)
    watch.allow(10.0)
    assert looks(watch, [1, 1], 3600.0) == [Verdict.NOTHING, Verdict.NOTHING]


def test_a_closing_beyond_its_time_is_overdue_though_the_loop_turns() -> None:
    watch = StallWatch(30.0)
    watch.allow(1.0)
    assert looks(watch, list(range(5))) == [Verdict.NOTHING] * 4 + [Verdict.OVERDUE]


def test_a_closing_may_take_as_long_as_it_likes_again() -> None:
    watch = StallWatch(30.0)
    watch.allow(1.0)
    watch.allow(None)
    assert set(looks(watch, list(range(100)))) == {Verdict.NOTHING}


def test_rows_that_are_being_written_down_have_ten_seconds_more() -> None:
    watch = StallWatch(30.0)
    watch.allow(1.0)
    verdicts = [watch.look(beat, LOOK_SECONDS, is_saving=True) for beat in range(45)]
    assert verdicts == [Verdict.NOTHING] * 44 + [Verdict.OVERDUE]
