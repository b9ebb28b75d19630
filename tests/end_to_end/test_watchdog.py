"""Plugins that hold everybody up, and signals that come late: real processes."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running_flowjoin import Program, Run

pytestmark = pytest.mark.slow

Start = Callable[..., Program]

PLUGIN = """
import signal, sys, time
from contextlib import asynccontextmanager
from dataclasses import dataclass
import trio
from flowjoin.api import ExporterType, hookimpl

@dataclass(frozen=True, kw_only=True)
class Settings:
    does: str

class Quiet:
    async def export(self, batch):
        pass

async def leave():
    sys.exit("enough")

@asynccontextmanager
async def _open(config, context):
    if config.does == "block":
        time.sleep(1.6)
    if config.does == "stall":
        time.sleep(600)
    if config.does == "hold":
        sum(range(10**15))  # one call, which lets no other thread of Python's run
    if config.does == "exit":
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
            yield Quiet()
    else:
        try:
            yield Quiet()
        finally:
            if config.does == "shield":
                with trio.CancelScope(shield=True):
                    await trio.sleep_forever()

@hookimpl
def flowjoin_exporter_types():
    return [ExporterType("bad", Settings, _open, api_version=1)]
"""

LATE = """
import os, signal, sys
from flowjoin import __main__
from flowjoin._pipeline import books

facts = books.Books.facts

def late(self):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(os.getpid(), number)
    return facts(self)

books.Books.facts = late
code = __main__.main()
os.kill(os.getpid(), signal.SIGTERM)
sys.exit(code)
"""


@pytest.fixture
def start(run: Run, tmp_path: Path) -> Start:
    def begin(exporters: str, rest: str = "", *, code: str | None = None) -> Program:
        site = tmp_path / "site"
        info = site / "flowjoin_bad-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flowjoin-bad\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[flowjoin.plugins]\nbad = flowjoin_bad\n")
        (site / "flowjoin_bad.py").write_text(PLUGIN)
        path = tmp_path / "flowjoin.yaml"
        path.write_text(
            f"stateDirectory: {tmp_path}/state\n"
            'collectors: [{protocol: tcp, address: "127.0.0.1:0"}]\n'
            f"exporters: [{exporters}]\n{rest}"
        )
        return run("-c", str(path), path=site, code=code)

    return begin


def books_of(program: Program) -> dict[str, Any]:
    """The books that were told at the end."""
    books: dict[str, Any] = json.loads([line for line in program.text.splitlines() if '"event": "books"' in line][-1])
    return books


def test_a_plugin_that_blocks_everything_is_named_with_its_stack_once(start: Start) -> None:
    program = start("{type: bad, name: slow, does: block}")
    blocked = program.wait_line("loop_blocked")
    assert blocked["plugin"] == "exporters/slow"
    assert "time.sleep(1.6)" in blocked["stack"]
    program.wait_line("loop_free")
    program.process.terminate()

    assert program.finish() == 0
    assert program.text.count('"loop_blocked"') == 1


def test_after_limits_stall_the_process_ends_with_1_and_the_books(start: Start) -> None:
    program = start("{type: bad, does: stall}", "limits: {stall: 2s}\n")
    stalled = program.wait_line("loop_stalled")

    assert program.finish() == 1
    assert stalled["plugin"] == "exporters/bad"
    assert list(books_of(program)["lanes"]) == ["bad"]


def test_code_that_lets_no_thread_run_is_shown_and_ends_the_process(start: Start) -> None:
    program = start("{type: bad, does: hold}", "limits: {stall: 1s}\n")

    assert program.finish() == -signal.SIGPROF
    assert "flowjoin_bad.py" in program.text
    assert "in _open" in program.text


def test_a_plugin_that_shields_itself_while_it_closes_does_not_outlive_the_grace_period(start: Start) -> None:
    program = start("{type: bad, name: clinging, does: shield}", "shutdownGracePeriod: 100ms\n")
    program.wait_line("exporter_opened")
    program.process.terminate()

    assert program.wait_line("close_overdue")["plugin"] == "exporters/clinging"
    assert program.finish() == 1
    assert list(books_of(program)["lanes"]) == ["clinging"]


def test_a_second_signal_is_not_ignored_by_a_plugin_that_shields_itself(start: Start) -> None:
    program = start("{type: bad, does: shield}", "shutdownGracePeriod: 1h\n")
    program.wait_line("exporter_opened")
    program.process.terminate()
    program.wait_line("draining")
    program.process.terminate()

    assert program.finish() == 1


def test_sys_exit_in_a_plugins_own_nursery_fails_that_plugin_only(start: Start) -> None:
    program = start("{type: bad, does: exit}, {type: bad, name: well, does: nothing}")
    assert "it called sys.exit('enough')" in program.wait_line("plugin_failed")["exception"]
    program.process.terminate()

    assert program.finish() == 0
    assert "core_failed" not in program.text


def test_signals_that_come_late_change_nothing(start: Start) -> None:
    program = start("{type: bad, does: nothing}", code=LATE)
    program.wait_line("ready")
    program.process.send_signal(signal.SIGTERM)

    assert program.finish() == 0
