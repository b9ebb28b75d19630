"""An agent that is stopped and started again: what its rows add is what the kernel counted."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from network_namespace import Inside, network_namespace

PORT = 7777
RULES = f"""
table inet t {{
  chain in {{ type filter hook input priority 0; ct state new,established udp dport {PORT} counter; }}
}}
"""
# Some ports that are connections of their own, used by every run of it; nothing answers.
SENDER = f"""
import socket, sys
for port in range(5000, 5000 + int(sys.argv[1])):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", port))
        for size in range(int(sys.argv[2])):
            sender.sendto(b"x" * (100 + size), ("127.0.0.1", {PORT}))
"""
LONG_LIVES = """
import pathlib
for name in ("nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"):
    pathlib.Path("/proc/sys/net/netfilter", name).write_text("3600")
"""


@pytest.fixture
def inside(require_program: Callable[[str], str]) -> Iterator[Inside]:
    with network_namespace(require_program, RULES) as made:
        subprocess.run(made(sys.executable, "-c", LONG_LIVES), check=True)
        yield made


class Agent:
    """An agent whose first poll after its start is far away: what it tells, it tells at its end."""

    def __init__(self, inside: Inside, folder: Path) -> None:
        self._inside = inside
        self._flows = folder / "flows"
        self._config = folder / "flowjoin.yaml"
        self._config.write_text(
            f"stateDirectory: {folder}/state\napiServer: {{address: none}}\n"
            "sources: [{type: conntrack, events: true, protocols: [udp]}]\n"
            f"exporters: [{{type: log, path: {self._flows}, format: jsonLines}}]\n"
        )

    def run(self, then: Callable[[], object], *, end: signal.Signals = signal.SIGTERM) -> int:
        """From its start to its end, with something that happens meanwhile; the exit code."""
        program = subprocess.Popen(
            self._inside(sys.executable, "-m", "flowjoin", "agent", "-c", str(self._config)),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert program.stderr is not None
            assert any('"source_opened"' in line for line in program.stderr)
            then()
        finally:
            program.send_signal(end)
            _, errors = program.communicate(timeout=60)
        assert "told_totals_unknown" not in errors
        return program.returncode

    def told(self) -> tuple[int, int]:
        """Packets and octets that its rows add up to."""
        rows = [json.loads(line) for line in self._flows.read_text().splitlines()] if self._flows.exists() else []
        return sum(row["packetDeltaCount"] for row in rows), sum(row["octetDeltaCount"] for row in rows)


class Traffic:
    """Datagrams inside, and what nft counted of them."""

    def __init__(self, inside: Inside, nft: str) -> None:
        self._inside = inside
        self._nft = nft

    def send(self, connections: int, packets: int) -> None:
        words = (sys.executable, "-c", SENDER, str(connections), str(packets))
        subprocess.run(self._inside(*words), check=True, timeout=60)

    def counted(self) -> tuple[int, int]:
        words = (self._nft, "list", "ruleset")
        text = subprocess.run(self._inside(*words), check=True, capture_output=True, text=True).stdout
        found = re.search(r"counter packets (\d+) bytes (\d+)", text)
        assert found is not None
        return int(found[1]), int(found[2])


@pytest.fixture
def traffic(inside: Inside, require_program: Callable[[str], str]) -> Traffic:
    return Traffic(inside, require_program("nft"))


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_told_twice_however_often_it_is_restarted(
    inside: Inside, traffic: Traffic, tmp_path: Path
) -> None:
    agent = Agent(inside, tmp_path)
    traffic.send(2, 2)  # before it is there
    assert agent.run(lambda: traffic.send(5, 3)) == 0
    assert agent.told()[0] == 2 * 2 + 5 * 3
    assert agent.told() == traffic.counted()
    traffic.send(6, 1)  # while it is away
    assert agent.run(lambda: traffic.send(3, 2)) == 0
    assert agent.told() == traffic.counted()
    assert agent.run(lambda: None) == 0
    assert agent.told() == traffic.counted()
    told = agent.told()
    assert agent.run(lambda: traffic.send(1, 1), end=signal.SIGKILL) == -signal.SIGKILL
    assert agent.told() == told  # a kill is as a loss of power: nothing was told
    assert agent.run(lambda: None) == 0
    packets, octets = traffic.counted()
    assert agent.told() == (told[0] + packets, told[1] + octets)  # and what was told before is not known


@pytest.mark.slow
def test_a_table_that_is_emptied_and_a_thousand_short_connections_lose_nothing(
    inside: Inside, traffic: Traffic, require_program: Callable[[str], str], tmp_path: Path
) -> None:
    flush = inside(require_program("conntrack"), "-F")

    def emptied() -> None:
        for _ in range(3):  # the same ports each time, within a second
            traffic.send(300, 2)
            subprocess.run(flush, check=True, capture_output=True)
        traffic.send(100, 1)

    agent = Agent(inside, tmp_path)
    for _ in range(2):
        assert agent.run(emptied) == 0
        assert agent.told() == traffic.counted()
    assert agent.told()[0] == 2 * (3 * 300 * 2 + 100)
