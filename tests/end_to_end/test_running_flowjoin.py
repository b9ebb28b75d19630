"""The program of a test's own tells the test all that it said."""

from __future__ import annotations

import pytest
from running_flowjoin import Run

# Both lines are in the pipe at once, as those of a program that ends while the test waits for the first.
TWO_LINES = """
import os
os.write(2, b'{"event": "first"}\\n{"event": "second"}\\n')
"""


@pytest.mark.slow
def test_what_came_with_the_line_that_was_waited_for_is_not_lost(run: Run) -> None:
    program = run(code=TWO_LINES)
    program.wait_line("first")

    assert program.finish() == 0
    assert program.text.splitlines() == ['{"event": "first"}', '{"event": "second"}']
