"""A flowjoin that is stopped or killed under traffic and started again: rows compared with what was sent.

``FLOWJOIN_KILLS`` says how often it is killed: a fifth as often as in the crash test of the spool.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hand_made import AGENT, Record, data_set, message, template_set
from running_flowjoin import Program, Run

pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")

pytestmark = pytest.mark.slow

KILLS = max(3, int(os.environ.get("FLOWJOIN_KILLS", "20")) // 5)
FLOWS = 200
KEY = ["sourceIPv4Address", "destinationIPv4Address", "sourceTransportPort", "protocolIdentifier"]
TOLD_BY_TOTALS = [*KEY, "octetTotalCount"]
TOLD_BY_DELTAS = [*KEY, "octetDeltaCount"]


class Bench:
    """Starts on one state directory, in one form of the kernel after the other."""

    def __init__(self, run: Run, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._run = run
        self._environment = monkeypatch
        self._directory = directory
        self._starts = 0
        self.config = directory / "flowjoin.yaml"
        self.config.write_text(
            f"stateDirectory: {directory}/state\n"
            "checkpoint: {interval: 1s}\n"
            "activeFlowRecordTimeout: 1s\n"
            'collectors: [{protocol: udp, address: "127.0.0.1:0"}]\n'
            "apiServer: {address: none}\n"
            f"exporters: [{{type: log, path: {directory}/flows.log, format: jsonLines}}]\n"
        )

    def start(self) -> tuple[Program, tuple[str, int]]:
        self._starts += 1
        self._environment.setenv("FLOWJOIN_KERNEL", ("auto", "python")[self._starts % 2])
        program = self._run("-c", str(self.config))
        host, _, port = program.wait_ready().rpartition(":")
        return program, (host, int(port))

    def rows(self) -> list[dict[str, Any]]:
        """What the log has."""
        return [json.loads(line) for line in (self._directory / "flows.log").read_text().splitlines()]


class Traffic:
    """Records of plain flows, each counted before it is sent; totals grow with each record."""

    def __init__(self, kinds: tuple[str, ...] = ("totals", "deltas")) -> None:
        self._kinds = kinds
        self.totals: Counter[int] = Counter()
        self.deltas: Counter[int] = Counter()
        self._choose = random.Random(5)

    def send_for(self, seconds: float, address: tuple[str, int]) -> None:
        until = time.monotonic() + seconds
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            while time.monotonic() < until:
                port = self._choose.randrange(FLOWS)
                by_total = self._kinds[port % len(self._kinds)] == "totals"
                record: Record = {
                    "sourceIPv4Address": "10.0.0.1",
                    "destinationIPv4Address": "10.0.0.2",
                    "sourceTransportPort": port,
                    "protocolIdentifier": 17,
                }
                if by_total:
                    self.totals[port] += 7
                    record["octetTotalCount"] = self.totals[port]
                else:
                    self.deltas[port] += 7
                    record["octetDeltaCount"] = 7
                names = TOLD_BY_TOTALS if by_total else TOLD_BY_DELTAS
                out.sendto(message(template_set(names), data_set(names, record)), address)
                time.sleep(0.0005)  # a rate that either form of the kernel can take


def deltas(rows: list[dict[str, Any]]) -> dict[int, int]:
    """By flow, what all its rows add up to."""
    sums: dict[int, int] = defaultdict(int)
    for row in rows:
        sums[row["sourceTransportPort"]] += row["octetDeltaCount"]
    return sums


def books(program: Program) -> dict[str, Any]:
    """The books of a run that is over."""
    lines = [json.loads(line) for line in program.text.splitlines() if line.startswith("{")]
    found: dict[str, Any] = [line for line in lines if line["event"] == "books"][-1]
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["deltas", "totals"])
def test_after_orderly_stops_under_traffic_every_record_is_in_the_rows_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    bench, traffic = Bench(run, tmp_path, monkeypatch), Traffic((kind,))
    records = 0
    for _ in range(3):
        program, address = bench.start()
        traffic.send_for(0.8, address)
        program.process.send_signal(signal.SIGTERM)
        traffic.send_for(0.1, address)  # what comes too late is refused by the system, or is among those received
        assert program.finish() == 0
        assert "books_do_not_balance" not in program.text
        records += books(program)["records"]
    rows, found = bench.rows(), deltas(bench.rows())
    assert len(found) > FLOWS // 2
    if kind == "deltas":
        assert sum(found.values()) == 7 * records
    else:
        assert found == {row["sourceTransportPort"]: row["octetTotalCount"] for row in rows}  # the last ones


@pytest.mark.timeout(3600)
def test_after_kills_under_traffic_nothing_is_doubled(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, traffic = Bench(run, tmp_path, monkeypatch), Traffic()
    choose = random.Random(int(os.environ.get("FLOWJOIN_SEED", "7")))
    continued = 0
    for kill in range(KILLS):
        program, address = bench.start()
        restored = [json.loads(line) for line in program.errors if '"checkpoint_restored"' in line]
        continued += bool(restored and restored[0]["flows"])
        traffic.send_for(choose.uniform(0.2, 1.0) + 1.5 * (kill % 2), address)
        program.process.kill()
        program.finish()
    program, address = bench.start()
    traffic.send_for(0.5, address)
    program.process.terminate()
    assert program.finish() == 0
    assert "books_do_not_balance" not in program.text

    found = deltas(bench.rows())
    sent = traffic.totals + traffic.deltas
    doubled = {port: (octets, sent[port]) for port, octets in found.items() if octets > sent[port]}
    summary = (
        f"{KILLS} kills, {continued} starts from a checkpoint, {sum(sent.values()) // 7} records sent, "
        f"{sum(found.values()) // 7} in rows, {len(doubled)} flows doubled"
    )
    print(summary)
    assert not doubled, summary
    assert continued, summary
    assert found, summary


def test_a_half_that_waited_is_joined_after_the_restart(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(run, tmp_path, monkeypatch)
    bench.config.write_text(bench.config.read_text().replace("activeFlowRecordTimeout: 1s\n", ""))
    for side in ("source", "destination"):
        program, address = bench.start()
        record: Record = {
            "sourceIPv4Address": "10.0.0.1",
            "destinationIPv4Address": "10.0.0.2",
            "sourceTransportPort": 1,
            "destinationTransportPort": 80,
            "protocolIdentifier": 6,
            "flowType": 2,
            "flowStartSeconds": 1,
            "flowEndSeconds": 10,
            "octetDeltaCount": 100,
            "octetTotalCount": 100,
            "sourcePodName": "client" if side == "source" else "",
            "destinationPodName": "server" if side == "destination" else "",
        }
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.sendto(message(template_set(AGENT), data_set(AGENT, record)), address)
        program.process.terminate()
        assert program.finish() == 0
        assert len(bench.rows()) == (side == "destination")
    (row,) = bench.rows()
    assert (row["sourcePodName"], row["destinationPodName"]) == ("client", "server")
    assert row["octetDeltaCountFromSourceNode"] == row["octetDeltaCountFromDestinationNode"] == 100
    assert (books(program)["flows_restored"], books(program)["flows_held"]) == (1, 1)
