"""How long trio's thread is held with a million flows: ``python tests/benchmarks/hold.py [--flows N] [--seconds S]``.

The whole program runs, with a log exporter, while records come in over TCP as fast as they are read: all flows are
made, then updated and exported again and again. Of every step of every task the CPU time and the time on the clock are
taken; the longest of each task are printed, with where they began and ended and with what the collector of garbage took
of them. On a busy machine only CPU time says something: on the clock, other processes' turns count, too.

``--checkpoint`` keeps the flows, writes them every ten seconds, stops the program and runs it again with what was kept.
``--ask`` reads flows, figures and the stream of rows over HTTP all the while. ``--reload`` changes the configuration
every five seconds. ``--spool`` takes the log's ``spool`` as a configuration has it.
"""

from __future__ import annotations

import argparse
import gc
import http.client
import itertools
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
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
inactiveFlowRecordTimeout: 10m
collectors: [{{protocol: tcp, address: "127.0.0.1:{port}"}}]
apiServer: {{address: "127.0.0.1:{api_port}"}}
exporters: [{{type: log, path: {directory}/flows.log, spool: {spool}, maxBackups: {backups}}}]
checkpoint: {checkpoint}
limits: {{flows: 2000000}}
"""


START_SECONDS = 5.0
TOO_LONG = 0.010
TOLD = 24
RELOAD_SECONDS = 5.0
ASK_SECONDS = 1.0
PATHS = ("/flowrecords", "/flowstream", "/metrics", "/recordmetrics", "/readyz")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a task, in seconds."""

    cpu: float = 0.0
    clock: float = 0.0
    garbage: float = 0.0  # CPU time of the collector of garbage, which is part of it
    began: str = ""
    ended: str = ""


class Steps(trio.abc.Instrument):
    """The longest step of each task, and the longest run of the collector of garbage."""

    def __init__(self) -> None:
        self.longest: dict[str, Step] = {}
        self.too_long: dict[str, int] = {}
        self._started = 0.0
        self._began = self._collection_began = 0.0, 0.0
        self._place = ""
        self._garbage = 0.0

    def before_run(self) -> None:
        self._started = time.perf_counter()
        gc.callbacks.append(self._collected)

    def after_run(self) -> None:
        gc.callbacks.remove(self._collected)

    def before_task_step(self, task: Any) -> None:
        self._place = _place(task)
        self._garbage = 0.0
        self._began = self._now()

    def after_task_step(self, task: Any) -> None:
        self._note(task.name, self._began, task)

    def _collected(self, phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began = self._now()
        else:
            self._garbage += self._note(f"gc, generation {facts['generation']}", self._collection_began)

    def _now(self) -> tuple[float, float]:
        return time.thread_time(), time.perf_counter()

    def _note(self, name: str, began: tuple[float, float], task: Any = None) -> float:
        now = self._now()
        cpu = now[0] - began[0]
        if now[1] - self._started < START_SECONDS:
            name += ", start"
        if cpu > TOO_LONG:
            self.too_long[name] = self.too_long.get(name, 0) + 1
        if cpu > self.longest.get(name, Step()).cpu:
            began_at, ended_at = (self._place, _place(task)) if task is not None else ("", "")
            garbage = self._garbage if task is not None else cpu
            self.longest[name] = Step(cpu, now[1] - began[1], garbage, began_at, ended_at)
        return cpu

    def table(self) -> Table:
        """The longest first."""
        table = Table(
            "task", "longest step, CPU ms", "of it garbage", "on the clock", "steps over 10 ms", "began", "ended"
        )
        for name, step in sorted(self.longest.items(), key=lambda item: -item[1].cpu)[:TOLD]:
            times = (f"{1e3 * seconds:.1f}" for seconds in (step.cpu, step.garbage, step.clock))
            table.add_row(_short(name), *times, str(self.too_long.get(name, 0)), step.began, step.ended)
        return table


def _place(task: Any) -> str:
    """Where a task waits, in code that is not trio's: ``writer.py:158``."""
    waits, place = task.coro, ""
    while waits is not None:
        frame = getattr(waits, "cr_frame", None) or getattr(waits, "gi_frame", None)
        if frame is not None and "/trio/" not in frame.f_code.co_filename:
            place = f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}"
        waits = getattr(waits, "cr_await", None) or getattr(waits, "gi_yieldfrom", None)
    return place


def _short(name: str) -> str:
    return name.removeprefix("flowjoin.").rsplit(".<locals>", 1)[0]


def run_measured(config: str) -> None:
    """``flowjoin run``, and at its end the table."""
    steps, run = Steps(), trio.run
    trio.run = lambda main, *args, **named: run(main, *args, **named, instruments=[steps])  # type: ignore[assignment]
    flowjoin_exit = 0
    sys.argv = ["flowjoin", "run", "-c", config]
    try:
        flowjoin_exit = flowjoin() or 0
    finally:
        Console(width=170).print(steps.table())
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


def send(port: int, flows: int, seconds: float, ends: Iterator[int]) -> None:
    """Records of all flows, both halves, again and again; ``ends`` are the times of the flows' last packets."""
    traffic = Traffic(is_ipv6=False, per_message=60)
    with connected(port) as sender:
        sender.sendall(message(template_set(traffic.names)))
        began = time.monotonic()
        while True:
            for octets in traffic.messages(0, flows, next(ends), (0, 1)):
                sender.sendall(octets)
            took = time.monotonic() - began
            print(f"{took:.0f} s: {2 * flows:,} records sent", file=sys.stderr)
            if took > seconds:
                return


def ask(port: int, path: str, ended: threading.Event) -> None:
    """Ask for it and read the reply to its end, or for as long as there is somebody to ask."""
    while not ended.is_set():
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30.0)
            connection.request("GET", path)
            reply = connection.getresponse()
            while not ended.is_set() and reply.read1(1 << 20):
                pass
            connection.close()
        ended.wait(ASK_SECONDS)


def reload(process: subprocess.Popen[bytes], write: Callable[[int], None], ended: threading.Event) -> None:
    """Change the configuration, and say so."""
    for number in itertools.count(1):
        if ended.wait(RELOAD_SECONDS):
            return
        write(number)
        process.send_signal(signal.SIGHUP)


@contextmanager
def beside(function: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """A thread of it, whose last argument is an event that tells it to end."""
    ended = threading.Event()
    thread = threading.Thread(target=function, args=(*arguments, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--spool", default="none", help="of the log's lane, as the configuration has it")
    parser.add_argument("--checkpoint", action="store_true", help="keep the flows, and run again with them")
    parser.add_argument("--ask", action="store_true", help="read over HTTP what there is")
    parser.add_argument("--reload", action="store_true", help="change the configuration again and again")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        run_measured(given.run)
        return
    port, api_port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as directory:
        config, ends = Path(directory) / "flowjoin.yaml", itertools.count(10, 10)

        def write(number: int) -> None:
            text = CONFIG.format(
                directory=directory,
                port=port,
                api_port=api_port,
                spool=given.spool,
                backups=1 + number % 2,
                checkpoint="{interval: 10s}" if given.checkpoint else "none",
            )
            config.with_suffix(".new").write_text(text)
            config.with_suffix(".new").replace(config)

        for _ in range(2 if given.checkpoint else 1):
            write(0)
            command = [sys.executable, __file__, "--run", str(config)]
            with (
                (Path(directory) / "log").open("wb") as log,
                subprocess.Popen(command, stderr=log) as process,
                ExitStack() as stack,
            ):
                try:
                    if given.ask:
                        for path in PATHS:
                            stack.enter_context(beside(ask, api_port, path))
                    if given.reload:
                        stack.enter_context(beside(reload, process, write))
                    send(port, given.flows, given.seconds, ends)
                finally:
                    stack.close()
                    process.send_signal(signal.SIGTERM)
                    process.wait(120)
            told = (Path(directory) / "log").read_text(errors="replace").splitlines()
            seen = ("checkpoint_", "reload", "error", "refused", "dropped")
            print(*[line[:200] for line in told if any(word in line for word in seen)][-12:], sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
