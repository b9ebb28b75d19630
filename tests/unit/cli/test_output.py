from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from flowjoin._cli.output import write_rows
from flowjoin._cli.printable import printable

COLUMNS = ("name", "count", "kinds", "note")
ROWS: list[dict[str, Any]] = [
    {"name": "log", "count": 2, "kinds": ["exporter", "enricher"], "note": 'a "b", c'},
    {"name": "[bold]x\x1b[31m", "count": 10, "kinds": [], "note": None},
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(output: Any, out: io.StringIO | None = None, rows: list[dict[str, Any]] = ROWS) -> str:
    out = out or io.StringIO()
    write_rows(COLUMNS, rows, output, out=out, empty="nothing there")
    return out.getvalue()


def test_json_keeps_types_and_lists() -> None:
    assert json.loads(written("json")) == ROWS
    assert json.loads(written("json", rows=[])) == []


def test_csv_is_rfc_4180_with_a_header() -> None:
    text = written("csv")
    assert list(csv.reader(io.StringIO(text, newline=""), strict=True)) == [
        list(COLUMNS),
        ["log", "2", "exporter,enricher", 'a "b", c'],
        ["[bold]x\x1b[31m", "10", "", ""],
    ]
    assert text.count("\r\n") == 3


def test_a_table_for_a_pipe_is_aligned_uncut_and_without_control_characters() -> None:
    assert written("table") == (
        "name             count  kinds              note\n"
        'log              2      exporter,enricher  a "b", c\n'
        "[bold]x\\x1b[31m  10\n"
    )


def test_a_table_for_a_terminal_shows_every_value_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    text = written("table", Terminal())
    assert "[bold]x\\x1b[31m" in text
    assert "exporter,enricher" in text
    assert "\x1b[31m" not in text


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()])
def test_an_empty_table_says_so(out: io.StringIO) -> None:
    assert written("table", out, rows=[]) == "nothing there\n"


def test_what_could_steer_a_terminal_is_escaped_and_nothing_else() -> None:
    assert printable("Grüße 10.0.0.1 – ok") == "Grüße 10.0.0.1 – ok"
    assert printable("\x1b[2J\n\u202e\ud800\x9b") == "\\x1b[2J\\n\\u202e\\ud800\\x9b"
