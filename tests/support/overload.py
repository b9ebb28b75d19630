"""A running flowjoin, and more than it can take: what a test and a benchmark of overload share."""

from __future__ import annotations

import http.client
import json
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from running_flowjoin import Program, Run

SUPPORT = Path(__file__).parent
LOOK_SECONDS = 0.25


@dataclass
class Figures:
    """What one phase showed.

    Attributes:
        sent: Messages given to the way.
        taken: Messages that flowjoin read.
        dropped: what flowjoin says the system dropped before it could read it.
        lost: Data Records that are missing by sequence numbers.
        resident: the most memory, MiB.
        latencies: seconds from a probe's sending until its row was seen in the log.
        loop: the longest that a question to the HTTP API took.
    """

    sent: int = 0
    seconds: float = 0.0
    taken: int = 0
    dropped: int = 0
    lost: int = 0
    resident: float = 0.0
    latencies: list[float] = field(default_factory=list)
    loop: float = 0.0

    def line(self) -> list[str]:
        latencies = sorted(self.latencies) or [float("nan")]
        return [
            f"{self.sent / self.seconds:,.0f}",
            f"{(self.sent - self.dropped) / self.seconds:,.0f}",
            f"{self.dropped:,}",
            f"{self.sent - self.taken:,}",
            f"{self.resident:.0f}",
            f"{statistics.median(latencies):.2f}",
            f"{latencies[-1]:.2f}",
            f"{self.loop:.2f}",
        ]


class Overloaded:
    """flowjoin with a UDP and a TCP collector and the log exporter, looked at while it works."""

    def __init__(self, directory: Path, *, start: Run = Program, receive_buffer: str = "64MiB") -> None:
        directory.mkdir(exist_ok=True)
        self._log = directory / "flows.log"
        config = directory / "flowjoin.yaml"
        config.write_text(
            f"stateDirectory: {directory}/state\n"
            'collectors: [{protocol: udp, address: "127.0.0.1:0"}, {protocol: tcp, address: "127.0.0.1:0"}]\n'
            f"limits: {{receiveBuffer: {receive_buffer}}}\n"
            'apiServer: {address: "127.0.0.1:0"}\n'
            f"exporters: [{{type: log, path: {self._log}, format: jsonLines}}]\n"
        )
        self.program = start("-c", str(config))
        api = self.program.wait_line("api_ready")["addresses"][0].rpartition(":")
        ready = self.program.wait_line("ready")["addresses"]
        self._api = ("127.0.0.1", int(api[2]))
        self._ports = {way: int(address.rpartition(":")[2]) for way, address in zip(("udp", "tcp"), ready, strict=True)}
        self._sent = 0
        self._read = 0

    def phase(self, way: str, rate: int, seconds: float, *, is_stopped: bool = False) -> Figures:
        """Send, and look, until what was sent is read or known to be dropped.

        Args:
            way: ``udp`` or ``tcp``.
            rate: Messages a second; 0 is as many as go.
            seconds: for so long.
            is_stopped: the process gets no processor while this is sent.
        """
        figures = Figures()
        before = self.counters()
        stop = threading.Event()
        watching = threading.Thread(target=self._watch, args=(figures, stop))
        watching.start()
        if is_stopped:
            self.program.process.send_signal(signal.SIGSTOP)
        arguments = [way, "127.0.0.1", str(self._ports[way]), str(rate), str(seconds), str(self._sent)]
        told = subprocess.run(
            [sys.executable, str(SUPPORT / "flood.py"), *arguments], check=True, capture_output=True, text=True
        ).stdout
        if is_stopped:
            self.program.process.send_signal(signal.SIGCONT)
        sent, took = told.split()
        figures.sent, figures.seconds = int(sent), float(took)
        self._sent += figures.sent
        self._wait_still(figures, before)
        stop.set()
        watching.join()
        return figures

    def counters(self) -> dict[str, float]:
        """The figures of the HTTP API, summed over their labels."""
        connection = http.client.HTTPConnection(*self._api, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        sums: dict[str, float] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    def _wait_still(self, figures: Figures, before: dict[str, float]) -> None:
        """Until nothing of it is on its way any more; a minute at most."""
        until = time.monotonic() + 60
        probes = -1
        while time.monotonic() < until:
            now = self.counters()
            figures.taken = int(now["flowjoin_kernel_messages_total"] - before["flowjoin_kernel_messages_total"]) - 1
            drops = "flowjoin_collector_kernel_drops_total"
            figures.dropped = int(now.get(drops, 0.0) - before.get(drops, 0.0))
            lost = "flowjoin_kernel_sequence_lost"
            figures.lost = int(now[lost] - before[lost])
            is_read = figures.taken + figures.dropped >= figures.sent
            if is_read and now["flowjoin_lane_held_rows"] == 0 and len(figures.latencies) == probes:
                return
            probes = len(figures.latencies)
            time.sleep(1.5)  # longer than a tick of the table

    def _watch(self, figures: Figures, stop: threading.Event) -> None:
        status = Path(f"/proc/{self.program.process.pid}/status")
        while not stop.wait(LOOK_SECONDS):
            resident = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
            figures.resident = max(figures.resident, int(resident.split()[1]) / 1024)
            asked = time.monotonic()
            self.counters()
            figures.loop = max(figures.loop, time.monotonic() - asked)
            self._read_log(figures)

    def _read_log(self, figures: Figures) -> None:
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            file.seek(self._read)
            octets = file.read()
        whole = octets[: octets.rfind(b"\n") + 1]
        self._read += len(whole)
        seen = time.time()
        for line in whole.splitlines():
            row = json.loads(line)
            if row["ingressInterface"] == 1:
                figures.latencies.append(seen - row["flowEndMilliseconds"] / 1000)
