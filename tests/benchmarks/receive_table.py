"""CPU seconds per million records with receiving, beside C collectors: ``python tests/benchmarks/receive_table.py``.

Every collector gets the same Messages of an agent over loopback, at the same rate, from one sender. Over UDP the
rates are those at which no collector should lose any; over TCP the sender goes as fast as it is read. flowjoin decodes,
joins and exports once a second into nothing; ``nfcapd`` and ``nfacctd`` (all of its processes) skip the elements they
do not know and join nothing. A collector that is not installed is left out.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import trio
from kernel_table import Traffic
from one_table import Figure, show

from flowjoin._aggregator.process import Aggregation
from flowjoin._collector.config import CollectorConfig, CollectorLimits
from flowjoin._collector.process import open_collector
from flowjoin._config.endpoint import Endpoint
from flowjoin._kernel import create_kernel
from flowjoin._model.schemas import build_schemas
from flowjoin._preprocessor.compile_plan import PlanCompiler
from flowjoin.testing.context import RecordingContext
from flowjoin.wire import Decoder, default_registry

from hand_made import message, template_set  # isort: skip

FLOWS = 4_800  # each round of records fills whole Messages
CASES = [("udp", 1, 40_000.0), ("udp", 8, 20_000.0), ("tcp", 1, 0.0), ("tcp", 60, 0.0)]
PLAIN = "flowjoin, plain"  # once, and at a twentieth of the rate
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


async def receive(protocol: Any, form: str) -> None:
    """flowjoin's receiving half; says its port, and at the end of its input how many records it received."""
    registry = default_registry()
    schemas = build_schemas(registry)
    kernel = create_kernel(
        decoder=Decoder(registry), compile_plan=PlanCompiler(registry, schemas), schemas=schemas, form=form
    )
    config = CollectorConfig(
        protocol=protocol,
        address=Endpoint(host="127.0.0.1", port=0),
        limits=CollectorLimits(receive_buffer_octets=64 << 20),
    )
    gc.freeze()  # as flowjoin run does
    aggregation = Aggregation(kernel, lambda batch: None, trio.lowlevel.checkpoint)
    async with (
        open_collector(
            config, ingest=kernel.ingest, close_session=kernel.close_session, log=RecordingContext().log
        ) as collectors,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(collectors.run)
        nursery.start_soon(aggregation.run)
        print(collectors.addresses[0].port, flush=True)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        print(kernel.statistics().records_received, flush=True)
        nursery.cancel_scope.cancel()


def processes_of(parent: int) -> list[int]:
    """A process and what it started."""
    found = [parent]
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(entry.parent.name))
    return found


def cpu_seconds(parent: int) -> float:
    ticks = 0
    for process in processes_of(parent):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_SECOND


@contextmanager
def flowjoin(form: str, protocol: str) -> Iterator[tuple[int, int, Callable[[], int | None]]]:
    with subprocess.Popen(
        [sys.executable, __file__, "--receive", protocol, form],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(process.stdout.readline())

        def received() -> int:
            process.stdin.close()  # type: ignore[union-attr]  # a pipe
            return int(process.stdout.readline())  # type: ignore[union-attr]  # a pipe

        yield process.pid, port, received


@contextmanager
def other(
    command: Callable[[int, str], list[str]], stop: signal.Signals
) -> Iterator[tuple[int, int, Callable[[], None]]]:
    with tempfile.TemporaryDirectory() as directory:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with subprocess.Popen(
            command(port, directory), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(1.0)  # they do not say when they are ready
            try:
                yield process.pid, port, lambda: None
            finally:
                process.send_signal(stop)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()


def send(protocol: str, port: int, messages: list[bytes], rate: float) -> None:
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as sender:
        sender.connect(("127.0.0.1", port))
        sender.sendall(messages[0])
        time.sleep(0.1)
        began = time.perf_counter()
        for number, octets in enumerate(messages):
            if rate and not number & 15:
                ahead = number / rate - (time.perf_counter() - began)
                if ahead > 0.0005:
                    time.sleep(ahead)
            sender.sendall(octets)


def measure(
    protocol: str, start: Any, per_message: int, rate: float, seconds: float, unpaced: int
) -> tuple[float, float, float]:
    """CPU seconds per million records, records lost, records a second."""
    traffic = Traffic(is_ipv6=False, per_message=per_message)
    records = int(rate * seconds) * per_message if rate else unpaced
    messages = [message(template_set(traffic.names))]
    end = 10
    while len(messages) * per_message < records:
        messages += traffic.messages(0, FLOWS, end, (0, 1))
        end += 10
    del messages[records // per_message + 1 :]
    sent = (len(messages) - 1) * per_message
    with start as (process, port, received):
        before, began = cpu_seconds(process), time.perf_counter()
        send(protocol, port, messages, rate)
        lasted = time.perf_counter() - began
        after = cpu_seconds(process)
        while True:  # until it is quiet
            time.sleep(1.0)
            now = cpu_seconds(process)
            if now - after < 0.02:
                break
            after = now
        count = received()
    return 1e6 * (now - before) / sent, 0.0 if count is None else sent - count, sent / lasted


def collectors() -> dict[str, Callable[[str], Any]]:
    """Those that are installed."""
    starts: dict[str, Callable[[str], Any]] = {
        "flowjoin": lambda protocol: flowjoin("compiled", protocol),
        PLAIN: lambda protocol: flowjoin("python", protocol),
    }
    if shutil.which("nfcapd"):
        starts["nfcapd"] = lambda _: other(
            lambda port, directory: ["nfcapd", "-b", "127.0.0.1", "-p", str(port), "-w", directory], signal.SIGTERM
        )
    nfacctd = shutil.which("nfacctd", path=os.environ["PATH"] + ":/usr/sbin")
    if nfacctd:
        keys = "src_host,dst_host,src_port,dst_port,proto"
        options = ["-P", "print", "-c", keys, "-r", "60"]
        starts["nfacctd"] = lambda _: other(
            lambda port, directory: [nfacctd, "-L", "127.0.0.1", "-l", str(port), *options, "-o", f"{directory}/out"],
            signal.SIGINT,
        )
    return starts


def figures(runs: int, seconds: float, slower: float) -> Iterator[Figure]:
    """All of them; the collectors take turns, so that what else the machine does meets each."""
    starts = collectors()
    for protocol, per_message, rate in CASES:
        found: dict[str, list[tuple[float, float, float]]] = {}
        for run in range(runs):
            for name, start in starts.items():
                is_plain = name == PLAIN
                if (protocol == "tcp" and not name.startswith("flowjoin")) or (is_plain and run):
                    continue
                asked = rate / slower / (20 if is_plain else 1)
                unpaced = 30_000 if is_plain else 600_000
                figure = measure(protocol, start(protocol), per_message, asked, seconds, unpaced)
                found.setdefault(name, []).append(figure)
        pace = f"{rate / slower:,.0f} Messages/s" if rate else "as fast as they are read"
        case = f"{protocol.upper()}, {per_message} record{'s' * (per_message > 1)} a Message, {pace}"
        for name, values in found.items():
            cpu, lost, speed = (statistics.median(each) for each in zip(*values, strict=True))
            yield Figure(case, "CPU s a million records", name, cpu)
            if name.startswith("flowjoin"):
                yield Figure(case, "records lost", name, lost)
                yield Figure(case, "records/s", name, speed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--slower", type=float, default=1.0, help="divide the rates by this, on a busy machine")
    parser.add_argument("--receive", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.receive:
        trio.run(receive, *given.receive)
        return
    show(figures(given.runs, given.seconds, given.slower))


if __name__ == "__main__":
    main()
