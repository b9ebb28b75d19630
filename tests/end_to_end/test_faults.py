"""The tables of docs/explanation/faults.md are what the program does, row by row."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from faults import ENRICHER_FAULTS, EXPORTER_FAULTS, TRAFFIC, suffer, written
from running_flowjoin import Run

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "faults.md"
ROW = re.compile(r"\| ([a-z ]+: [^|]+) \| ([^|]*) \| (?:([^|]*) \| )?([a-z-]+) \| ([^|]*) \| (-?\d+) \|")
# A machine with more to do than it can does this to anybody.
OF_SLOW_MACHINES = {"loop_blocked", "loop_free", "grace_period_over"}


def told(kind: str) -> dict[str, tuple[str, str, str, str, int]]:
    """What the page says by fault: the other exporter's rows, its own, health, events, exit code."""
    of_exporters, _, of_enrichers = PAGE.read_text().partition("| An enricher's |")
    found = ROW.finditer(of_exporters if kind == "exporters" else of_enrichers)
    return {row[1]: (row[2], row[3] or "-", row[4], row[5], int(row[6])) for row in found}


@pytest.mark.parametrize(("kind", "faults"), [("exporters", EXPORTER_FAULTS), ("enrichers", ENRICHER_FAULTS)])
def test_the_page_has_a_row_for_each_fault_that_is_tried(kind: str, faults: tuple[str, ...]) -> None:
    assert tuple(told(kind)) == faults


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "fault"),
    [("exporters", fault) for fault in EXPORTER_FAULTS] + [("enrichers", fault) for fault in ENRICHER_FAULTS],
)
def test_a_plugin_that_fails_does_to_others_what_the_page_says(kind: str, fault: str, tmp_path: Path, run: Run) -> None:
    others, own, health, events, exit_code = told(kind)[fault]
    outcome = suffer(kind, fault, tmp_path, run)

    assert outcome.exit_code == exit_code
    if others == "60 of 60":
        assert outcome.others == outcome.rows >= TRAFFIC.flows
    else:
        assert others == "-", "what was written before nobody could any more is not known beforehand"
    if own != "-":
        is_delivered = own.startswith("60,")
        assert outcome.own == f"{outcome.rows if is_delivered else 0}, 0 dead"
        assert is_delivered or outcome.is_spooled
    assert outcome.health == health
    wanted = set(re.findall(r"`(\w+)`", events))
    assert set(outcome.said) - (OF_SLOW_MACHINES - wanted) == wanted, outcome.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_heard_while_a_plugin_is_asked_which_cluster_this_is(
    tmp_path: Path, run: Run, number: signal.Signals
) -> None:
    program = run("-c", str(written("enrichers", "cluster: hangs", tmp_path)), path=tmp_path / "site")
    program.wait_line("asking")
    program.process.send_signal(signal.SIGHUP)  # which asks for nothing yet
    program.process.send_signal(number)

    assert program.finish() == 0
    assert '"event": "stopped"' in program.text or '"event":"stopped"' in program.text
    assert "cluster_uuid" not in program.text
