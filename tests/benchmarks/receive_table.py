"""CPU seconds per million records with receiving, beside C collectors: ``python tests/benchmarks/receive_table.py``.

Every collector gets the same Messages of an agent over loopback, at the same rate, from one sender. Over UDP the
rates are those at which no collector should lose any; over TCP the sender goes as fast as it is read, for seconds, and
writes many Messages with one system call (an agent writes one: then the system calls are what is measured). flowjoin
decodes, joins and exports once a second into nothing; ``nfcapd`` and ``nfacctd`` (all of its processes) skip the
elements they do not know and join nothing. A collector that is not installed is left out.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import trio
from kernel_table import STARTED, Traffic
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
UDP_CASES = [(1, 40_000.0), (8, 20_000.0)]  # records a Message, Messages a second
TCP_CASES = [(1, True), (1, False), (60, False)]  # records a Message; whether each is written alone
PLAIN = "flowjoin, plain"  # once, and over UDP at a twentieth of the rate
HEADERS = 20  # of a Message and of its Set
SEQUENCE_AT = 8
SET = struct.Struct(">HH")
NUMBER = struct.Struct(">I")
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


def send(port: int, messages: list[bytes], rate: float) -> None:
    """Datagrams, so many a second."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        sender.sendall(messages[0])
        time.sleep(0.1)
        began = time.perf_counter()
        for number, octets in enumerate(messages):
            if not number & 15:
                ahead = number / rate - (time.perf_counter() - began)
                if ahead > 0.0005:
                    time.sleep(ahead)
            sender.sendall(octets)


class Rounds:
    """All flows' records in Messages that are made once: from round to round only times and sequence change."""

    def __init__(self, traffic: Traffic) -> None:
        self.octets = bytearray()
        self.messages: list[tuple[int, int]] = []  # where each begins and ends
        self._times: list[int] = []
        records = [traffic.patched(flow, half, 10) for flow in range(FLOWS) for half in range(2)]
        self.records = len(records)
        for first in range(0, len(records), traffic.per_message):
            of_message = records[first : first + traffic.per_message]
            begins, at = len(self.octets), len(self.octets) + HEADERS
            for record in of_message:
                self._times.append(at + traffic.at["flowEndSeconds"])
                at += len(record)
            body = b"".join(of_message)
            self.octets += message(SET.pack(256, 4 + len(body)) + body)
            self.messages.append((begins, len(self.octets)))

    def make(self, number: int) -> bytearray:
        """A round's octets; its records end ten seconds after those of the round before."""
        a_message = self.records // len(self.messages)
        for position, (begins, _) in enumerate(self.messages):
            NUMBER.pack_into(self.octets, begins + SEQUENCE_AT, (number * len(self.messages) + position) * a_message)
        end = NUMBER.pack(STARTED + 10 * (number + 1))
        for at in self._times:
            self.octets[at : at + 4] = end
        return self.octets


class Sent(NamedTuple):
    """What a sender did."""

    records: int
    seconds: float
    cpu_seconds: float


def send_rounds(port: int, traffic: Traffic, seconds: float, *, is_each_alone: bool) -> Sent:
    """Send over TCP for so long, as fast as it is read: each Message alone, or all of a round at once."""
    rounds = Rounds(traffic)
    number = 0
    with socket.create_connection(("127.0.0.1", port)) as sender:
        sender.sendall(message(template_set(traffic.names)))
        began, spent = time.perf_counter(), time.thread_time()
        while time.perf_counter() - began < seconds:
            octets = memoryview(rounds.make(number))
            if is_each_alone:
                for begins, ends in rounds.messages:
                    sender.sendall(octets[begins:ends])
            else:
                sender.sendall(octets)
            number += 1
        return Sent(number * rounds.records, time.perf_counter() - began, time.thread_time() - spent)


def send_paced(port: int, traffic: Traffic, seconds: float, rate: float) -> Sent:
    """Send over UDP, so many Messages a second."""
    messages = [message(template_set(traffic.names))]
    end = 10
    while len(messages) <= rate * seconds:
        messages += traffic.messages(0, FLOWS, end, (0, 1))
        end += 10
    del messages[int(rate * seconds) + 1 :]
    began, spent = time.perf_counter(), time.thread_time()
    send(port, messages, rate)
    records = (len(messages) - 1) * traffic.per_message
    return Sent(records, time.perf_counter() - began, time.thread_time() - spent)


def measure(start: Any, give: Callable[[int], Sent]) -> dict[str, float]:
    """One run of one collector."""
    with start as (process, port, received):
        before = cpu_seconds(process)
        sent = give(port)
        after = cpu_seconds(process)
        while True:  # until it is quiet
            time.sleep(1.0)
            now = cpu_seconds(process)
            if now - after < 0.02:
                break
            after = now
        count = received()
    figures = {"CPU s a million records": 1e6 * (now - before) / sent.records}
    if count is not None:
        figures |= {"records lost": sent.records - count, "records/s": sent.records / sent.seconds}
        figures["sender's CPU s a million records"] = 1e6 * sent.cpu_seconds / sent.records
    return figures


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


def cases(seconds: float, slower: float) -> Iterator[tuple[str, str, Callable[..., Sent]]]:
    """Protocol, what is measured, and what sends it, given a port and whether it is to the plain form."""
    for per_message, rate in UDP_CASES:
        traffic = Traffic(is_ipv6=False, per_message=per_message)
        rate /= slower
        yield (
            "udp",
            f"UDP, {records_of(per_message)}, {rate:,.0f} Messages/s",
            lambda port, is_plain, traffic=traffic, rate=rate: send_paced(
                port, traffic, seconds, rate / (20 if is_plain else 1)
            ),
        )
    for per_message, is_each_alone in TCP_CASES:
        traffic = Traffic(is_ipv6=False, per_message=per_message)
        yield (
            "tcp",
            f"TCP, {records_of(per_message)}, {'each written alone' if is_each_alone else 'many written at once'}",
            lambda port, is_plain, traffic=traffic, is_each_alone=is_each_alone: send_rounds(
                port, traffic, seconds, is_each_alone=is_each_alone
            ),
        )


def records_of(per_message: int) -> str:
    return f"{per_message} record{'s' * (per_message > 1)} a Message"


def figures(runs: int, seconds: float, slower: float) -> Iterator[Figure]:
    """All of them; the collectors take turns, so that what else the machine does meets each."""
    starts = collectors()
    for protocol, case, give in cases(seconds, slower):
        found: dict[str, list[dict[str, float]]] = {}
        for run in range(runs):
            for name, start in starts.items():
                is_plain = name == PLAIN
                if (protocol == "tcp" and not name.startswith("flowjoin")) or (is_plain and run):
                    continue
                figure = measure(start(protocol), partial(give, is_plain=is_plain))
                found.setdefault(name, []).append(figure)
        for name, values in found.items():
            for figure in values[0]:
                yield Figure(case, figure, name, statistics.median(value[figure] for value in values))


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
