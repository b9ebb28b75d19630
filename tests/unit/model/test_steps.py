from __future__ import annotations

from collections.abc import Generator

from flowjoin._model.steps import at_once


def test_all_steps_are_taken_and_what_they_come_to_is_given():
    taken = []

    def steps() -> Generator[None, None, str]:
        for number in range(3):
            taken.append(number)
            yield
        return "done"

    assert at_once(steps()) == "done"
    assert taken == [0, 1, 2]
