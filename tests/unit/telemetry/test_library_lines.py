"""Libraries' own lines are lines of our log, in its form."""

from __future__ import annotations

import io
import json
import logging

import pytest

from flowjoin._telemetry.library_lines import libraries_told
from flowjoin._telemetry.logs import Logs


def told(stream: io.StringIO) -> list[tuple[str, str, str, str]]:
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {line["component"] for line in lines} <= {"libraries"}
    return [(line["level"], line["event"], line["name"], line["text"]) for line in lines]


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def test_a_librarys_error_is_a_warning_of_ours(stream: io.StringIO) -> None:
    with libraries_told(Logs(stream, log_format="json")):
        logging.getLogger("made.up").error("lost %d of %s", 2, "three\nlines")
    assert told(stream) == [("warning", "library_said", "made.up", "lost 2 of three\nlines")]


def test_a_librarys_warning_is_told_for_debugging(stream: io.StringIO) -> None:
    with libraries_told(Logs(stream, log_format="json", level="debug")):
        logging.getLogger("made.up").warning("once more")
        logging.getLogger("made.up").info("nothing happened")
    assert told(stream) == [("debug", "library_said", "made.up", "once more")]


def test_a_text_that_its_arguments_do_not_fit_is_told_as_it_is(stream: io.StringIO) -> None:
    with libraries_told(Logs(stream, log_format="json")):
        lines = logging.getLogger().handlers[-1]  # those of the tests would raise
        lines.handle(logging.LogRecord("made.up", logging.ERROR, __file__, 1, "%d", ("no number",), None))
    assert told(stream) == [("warning", "library_said", "made.up", "%d")]


def test_nothing_of_a_librarys_words_reaches_standard_error(
    stream: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    with libraries_told(Logs(stream, log_format="json")):
        logging.getLogger("made.up").warning("once more")
    assert capfd.readouterr() == ("", "")


def test_afterwards_the_log_hears_nothing_any_more(stream: io.StringIO) -> None:
    with libraries_told(Logs(stream, log_format="json")):
        handlers = list(logging.getLogger().handlers)
    assert len(logging.getLogger().handlers) == len(handlers) - 1
    logging.getLogger("made.up").error("late")
    assert told(stream) == []
