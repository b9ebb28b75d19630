"""Plugins that hold everybody up, and signals that come late: real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

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


def start(folder: Path, exporters: str, rest: str = "", *, code: str | None = None) -> subprocess.Popen[str]:
    site = folder / "site"
    info = site / "flowjoin_bad-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flowjoin-bad\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[flowjoin.plugins]\nbad = flowjoin_bad\n")
    (site / "flowjoin_bad.py").write_text(PLUGIN)
    path = folder / "flowjoin.yaml"
    path.write_text(
        f"stateDirectory: {folder}/state\n"
        'collectors: [{protocol: tcp, address: "127.0.0.1:0"}]\n'
        f"exporters: [{exporters}]\n{rest}"
    )
    program = ["-m", "flowjoin"] if code is None else ["-c", code]
    return subprocess.Popen(
        [sys.executable, *program, "run", "-c", str(path)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(site)},
    )


def wait_line(process: subprocess.Popen[str], event: str, said: list[str]) -> dict[str, Any]:
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if line.startswith("{"):
            facts: dict[str, Any] = json.loads(line)
            if facts["event"] == event:
                return facts
    raise AssertionError(f"no line {event}: {''.join(said)}")


def books_of(said: list[str]) -> dict[str, Any]:
    """The books that were told at the end."""
    told = [json.loads(line) for line in "".join(said).splitlines() if '"event": "books"' in line]
    books: dict[str, Any] = told[-1]
    return books


def finish(process: subprocess.Popen[str], said: list[str]) -> int:
    try:
        _, rest = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    said.append(rest)
    return process.returncode


def test_a_plugin_that_blocks_everything_is_named_with_its_stack_once(tmp_path: Path) -> None:
    said: list[str] = []
    process = start(tmp_path, "{type: bad, name: slow, does: block}")
    blocked = wait_line(process, "loop_blocked", said)
    assert blocked["plugin"] == "exporters/slow"
    assert "time.sleep(1.6)" in blocked["stack"]
    wait_line(process, "loop_free", said)
    process.terminate()

    assert finish(process, said) == 0
    assert "".join(said).count('"loop_blocked"') == 1


def test_after_limits_stall_the_process_ends_with_1_and_the_books(tmp_path: Path) -> None:
    said: list[str] = []
    process = start(tmp_path, "{type: bad, does: stall}", "limits: {stall: 2s}\n")
    stalled = wait_line(process, "loop_stalled", said)

    assert finish(process, said) == 1
    assert stalled["plugin"] == "exporters/bad"
    assert list(books_of(said)["lanes"]) == ["bad"]


def test_code_that_lets_no_thread_run_is_shown_and_ends_the_process(tmp_path: Path) -> None:
    said: list[str] = []
    process = start(tmp_path, "{type: bad, does: hold}", "limits: {stall: 1s}\n")

    assert finish(process, said) == -signal.SIGPROF
    assert "flowjoin_bad.py" in "".join(said)
    assert "in _open" in "".join(said)


def test_a_plugin_that_shields_itself_while_it_closes_does_not_outlive_the_grace_period(tmp_path: Path) -> None:
    said: list[str] = []
    process = start(tmp_path, "{type: bad, name: clinging, does: shield}", "shutdownGracePeriod: 100ms\n")
    wait_line(process, "exporter_opened", said)
    process.terminate()
    before = time.monotonic()

    assert wait_line(process, "close_overdue", said)["plugin"] == "exporters/clinging"
    assert finish(process, said) == 1
    assert time.monotonic() - before < 15
    assert list(books_of(said)["lanes"]) == ["clinging"]


def test_a_second_signal_is_not_ignored_by_a_plugin_that_shields_itself(tmp_path: Path) -> None:
    said: list[str] = []
    process = start(tmp_path, "{type: bad, does: shield}", "shutdownGracePeriod: 1h\n")
    wait_line(process, "exporter_opened", said)
    process.terminate()
    wait_line(process, "draining", said)
    process.terminate()

    assert finish(process, said) == 1


def test_sys_exit_in_a_plugins_own_nursery_fails_that_plugin_only(tmp_path: Path) -> None:
    said: list[str] = []
    process = start(tmp_path, "{type: bad, does: exit}, {type: bad, name: well, does: nothing}")
    assert "it called sys.exit('enough')" in wait_line(process, "plugin_failed", said)["exception"]
    process.terminate()

    assert finish(process, said) == 0
    assert "core_failed" not in "".join(said)


def test_signals_that_come_late_change_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    process = start(tmp_path, "{type: bad, does: nothing}", code=LATE)
    wait_line(process, "ready", said)
    process.send_signal(signal.SIGTERM)

    assert finish(process, said) == 0
