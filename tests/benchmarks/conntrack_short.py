"""How many short connections each way of looking catches.

    sudo python tests/benchmarks/conntrack_short.py [CONNECTIONS]

Real TCP and UDP connections over the loopback of a network namespace of its own, spread over 20 s; each is over at
once. What is asked is which of them the source tells, and with which share of their octets. Needs root, ``unshare``
and ``nft``.
"""

from __future__ import annotations

import argparse
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from flowjoin.testing import RecordingContext
from flowjoin_conntrack._config import ConntrackConfig
from flowjoin_conntrack._open import open_conntrack

SECONDS = 20.0
RULES = """add table inet t
add chain inet t c { type filter hook output priority 0; }
add rule inet t c ct state new
add rule inet t c tcp sport 7777 counter comment "same"
add rule inet t c tcp dport 7777 counter comment "same_back"
add rule inet t c udp sport 5353 counter comment "udp_back"
add rule inet t c udp dport 5353 counter comment "udp"
add rule inet t c tcp dport 8080 tcp sport != 7777 counter comment "tcp"
add rule inet t c tcp sport 8080 tcp dport != 7777 counter comment "tcp_back\""""
# Seconds that the kernel keeps a connection after its last packet.
KEPT = {
    "the kernel's timeouts": {"tcp_timeout_time_wait": 120, "tcp_timeout_close": 10, "udp_timeout": 30},
    "timeouts of 1 s": {"tcp_timeout_time_wait": 1, "tcp_timeout_close": 1, "udp_timeout": 1},
}
WAYS = {
    "poll, 5 s": ConntrackConfig(),
    "events, poll 60 s": ConntrackConfig(events=True),
}


class Server(threading.Thread):
    """Answers TCP on 8080 and UDP on 5353."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.tcp, self.udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.tcp.bind(("127.0.0.1", 8080))
        self.tcp.listen(1024)
        self.udp.bind(("127.0.0.1", 5353))

    def run(self) -> None:
        threading.Thread(target=self._udp, daemon=True).start()
        while True:
            stream, _ = self.tcp.accept()
            with stream:
                stream.recv(1000)
                stream.sendall(b"r" * 500)

    def _udp(self) -> None:
        while True:
            octets, sender = self.udp.recvfrom(2000)
            self.udp.sendto(octets * 2, sender)


def tcp() -> int:
    with socket.create_connection(("127.0.0.1", 8080)) as stream:
        stream.sendall(b"q" * 100)
        while stream.recv(1000):
            pass
        return int(stream.getsockname()[1])


def udp() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("127.0.0.1", 5353))
        one.send(b"x" * 100)
        one.recv(2000)
        return int(one.getsockname()[1])


def same_ports() -> int:
    """One pair of ports for one connection after the other; the kernel keeps one of them at a time."""
    with socket.socket() as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed by a reset
        stream.bind(("127.0.0.1", 7777))
        stream.connect(("127.0.0.1", 8080))
        stream.sendall(b"q" * 100)
        return len(stream.recv(1000))


@dataclass(slots=True)
class Kind:
    """Connections of one kind: how one is made, by which rows it is known, and what was counted."""

    make: Callable[[], int]
    wanted: Callable[[dict[str, Any]], bool]
    rule: str
    made: int = 0
    told: int = 0
    octets: int = 0


def kinds() -> dict[str, Kind]:
    return {
        "TCP": Kind(tcp, lambda row: row["protocolIdentifier"] == 6 and row["sourceTransportPort"] != 7777, "tcp"),
        "UDP": Kind(udp, lambda row: row["protocolIdentifier"] == 17, "udp"),
        "TCP, one pair of ports": Kind(same_ports, lambda row: row["sourceTransportPort"] == 7777, "same"),
    }


def talk(kind: Kind, count: int) -> None:
    """So many connections, evenly."""
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + SECONDS * number / count - time.monotonic()))
        kind.make()
        kind.made += 1


def counted() -> dict[str, int]:
    """Octets by what nft counted."""
    text = subprocess.run(["nft", "list", "table", "inet", "t"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return {name: int(octets) for octets, name in re.findall(r"bytes (\d+) comment \"(\w+)\"", text)}


async def observe(config: ConntrackConfig, of: dict[str, Kind], count: int) -> None:
    """Make connections and take what the source tells of them."""
    async with open_conntrack(config, RecordingContext()) as batches, aclosing(batches), trio.open_nursery() as nursery:

        async def take() -> None:
            async for batch in batches:
                for row in batch.to_dicts():
                    for kind in of.values():
                        if kind.wanted(row):
                            kind.told += row["packetDeltaCount"] == row["packetTotalCount"] > 0  # its first row
                            kind.octets += row["octetDeltaCount"] + row["reverseOctetDeltaCount"]

        nursery.start_soon(take)
        async with trio.open_nursery() as talking:
            for kind in of.values():
                talking.start_soon(trio.to_thread.run_sync, talk, kind, count)
        await trio.sleep(config.poll + config.active + 5)
        nursery.cancel_scope.cancel()


def inside(count: int) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["nft", RULES], check=True)
    Server().start()
    print("| the kernel keeps | connections | way | told | octets told |\n|---|---|---|---|---|")
    for kept, settings in KEPT.items():
        for name, seconds in settings.items():
            Path("/proc/sys/net/netfilter", f"nf_conntrack_{name}").write_text(str(seconds))
        for way, config in WAYS.items():
            subprocess.run(["conntrack", "-F"], check=True, capture_output=True)
            subprocess.run(["nft", "reset", "counters"], check=True, capture_output=True)
            before, of = counted(), kinds()
            trio.run(observe, config, of, count)
            for name, kind in of.items():
                now = counted()
                sent = sum(now[one] - before[one] for one in (kind.rule, f"{kind.rule}_back"))
                print(
                    f"| {kept} | {name} | {way} | {kind.told} of {kind.made} | {kind.octets / sent:.1%} |", flush=True
                )


def main() -> None:
    parser = argparse.ArgumentParser(description="How many short connections each way of looking catches.")
    parser.add_argument("connections", type=int, nargs="?", default=1000)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.connections)
    else:
        command = [sys.executable, __file__, str(arguments.connections), "--inside"]
        raise SystemExit(subprocess.run(["unshare", "-n", *command], check=False).returncode)


if __name__ == "__main__":
    main()
