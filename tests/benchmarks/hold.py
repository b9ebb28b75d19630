"""How long trio's thread is held with a million flows: ``python tests/benchmarks/hold.py [--flows N] [--seconds S]``.

The whole program runs, with a log exporter, while records come in over TCP as fast as they are read: all flows are
made, then updated and exported again and again. Of every step of every task the CPU time and the time on the clock are
taken; the longest of each task are printed. On a busy machine only the first says something: on the clock, other
processes' turns count, too.
"""

from __future__ import annotations

import argparse
import gc
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import trio
from kernel_table import Traffic
from rich.console import Console
from rich.table import Table

from flowjoin.__main__ import main as flowjoin

from hand_made import message, template_set  # isort: skip

CONFIG = """
stateDirectory: {directory}/state
activeFlowRecordTimeout: 10s
inactiveFlowRecordTimeout: 30s
collectors: [{{protocol: tcp, address: "127.0.0.1:{port}"}}]
exporters: [{{type: log, path: {directory}/flows.log, spool: {spool}}}]
limits: {{flows: 2000000}}
"""


START_SECONDS = 5.0


class Steps(trio.abc.Instrument):
    """The longest step of each task, and the longest run of the collector of garbage, which is part of one."""

    def __init__(self) -> None:
        self.longest: dict[str, tuple[float, float]] = {}
        self._started = 0.0
        self._began = self._collection_began = 0.0, 0.0

    def before_run(self) -> None:
        self._started = time.perf_counter()
        gc.callbacks.append(self._collected)

    def after_run(self) -> None:
        gc.callbacks.remove(self._collected)

    def before_task_step(self, task: Any) -> None:
        self._began = self._now()

    def after_task_step(self, task: Any) -> None:
        self._note(task.name, self._began)

    def _collected(self, phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began = self._now()
        else:
            self._note(f"gc, generation {facts['generation']}", self._collection_began)

    def _now(self) -> tuple[float, float]:
        return time.thread_time(), time.perf_counter()

    def _note(self, name: str, began: tuple[float, float]) -> None:
        now = self._now()
        if now[1] - self._started < START_SECONDS:
            name += ", start"
        before = self.longest.get(name, (0.0, 0.0))
        self.longest[name] = max(before[0], now[0] - began[0]), max(before[1], now[1] - began[1])


def run_measured(config: str) -> None:
    """``flowjoin run``, and at its end the table."""
    steps, run = Steps(), trio.run
    trio.run = lambda main, *args, **named: run(main, *args, **named, instruments=[steps])  # type: ignore[assignment]
    flowjoin_exit = 0
    sys.argv = ["flowjoin", "run", "-c", config]
    try:
        flowjoin_exit = flowjoin() or 0
    finally:
        table = Table("task", "longest step, CPU ms", "on the clock, ms")
        for name, (cpu, clock) in sorted(steps.longest.items(), key=lambda item: -item[1][0])[:16]:
            table.add_row(name, f"{1e3 * cpu:.1f}", f"{1e3 * clock:.1f}")
        Console(width=120).print(table)
    sys.exit(flowjoin_exit)


def connected(port: int) -> socket.socket:
    """A connection, as soon as somebody listens."""
    until = time.monotonic() + 60.0
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def send(port: int, flows: int, seconds: float) -> None:
    traffic = Traffic(is_ipv6=False, per_message=60)
    with connected(port) as sender:
        sender.sendall(message(template_set(traffic.names)))
        until, end = time.monotonic() + seconds, 10
        while True:
            for octets in traffic.messages(0, flows, end, (0, 1)):
                sender.sendall(octets)
            end += 10
            print(f"{time.monotonic() - until + seconds:.0f} s: {2 * flows:,} records sent", file=sys.stderr)
            if time.monotonic() > until:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--spool", default="none", help="of the log's lane, as the configuration has it")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        run_measured(given.run)
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "flowjoin.yaml"
        config.write_text(CONFIG.format(directory=directory, port=port, spool=given.spool))
        with subprocess.Popen([sys.executable, __file__, "--run", str(config)], stderr=subprocess.DEVNULL) as process:
            try:
                send(port, given.flows, given.seconds)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


if __name__ == "__main__":
    main()
