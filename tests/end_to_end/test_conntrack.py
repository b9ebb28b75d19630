"""Real connections through a real kernel's connection tracking, in network namespaces of the test's own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SERVER = """
import socket, sys
tcp, udp = socket.socket(socket.AF_INET6), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
tcp.bind(("::", 8080)); tcp.listen(); udp.bind(("::", 5353)); print("up", flush=True)
for _ in range(2):
    stream, _ = tcp.accept()
    while stream.recv(65536):
        pass
    stream.sendall(b"r" * 20000); stream.close()
for _ in range(2):
    octets, sender = udp.recvfrom(2000); udp.sendto(octets * 2, sender)
"""
# What the source needs: counters that can be switched on, and an answer to a request for the table.
NEEDED = """
import pathlib, socket
for name in ("nf_conntrack_acct", "nf_conntrack_timestamp"):
    pathlib.Path("/proc/sys/net/netfilter", name).write_text("1")
from flowjoin_conntrack._netlink import dump_request, read
table = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
table.settimeout(30); table.send(dump_request(socket.AF_INET, zone=None, sequence=1)); read(table.recv(65536), ())
"""
CLIENT = """
import socket
for family, address in ((socket.AF_INET, "10.77.1.2"), (socket.AF_INET6, "fd77:1::2")):
    stream = socket.create_connection((address, 8080)); stream.sendall(b"q" * 5000); stream.shutdown(socket.SHUT_WR)
    while stream.recv(65536):
        pass
    stream.close()
for family, address in ((socket.AF_INET, "10.77.1.2"), (socket.AF_INET6, "fd77:1::2")):
    datagram = socket.socket(family, socket.SOCK_DGRAM); datagram.settimeout(30)
    datagram.sendto(b"x" * 100, (address, 5353)); datagram.recv(4000)
"""
RULES = """
table inet t {
  chain tracked { type filter hook input priority 0; ct state new ct mark set 0x2a;
    meta l4proto tcp tcp dport 8080 counter; meta l4proto udp udp dport 5353 counter; }
  chain answers { type filter hook output priority 0;
    meta l4proto tcp tcp sport 8080 counter; meta l4proto udp udp sport 5353 counter; }
}
"""

# More begins at once than the kernel keeps for who does not listen: events are lost, connections are not.
BURST = """
import socket, trio
from contextlib import aclosing
from flowjoin.api import Duration
from flowjoin.testing import RecordingContext
from flowjoin_conntrack import ConntrackConfig, _events
from flowjoin_conntrack._open import open_conntrack

_events._RECEIVE_BUFFER = 8192
COUNT = 3000

async def main():
    context = RecordingContext()
    config = ConntrackConfig(events=True, active_timeout=Duration(1.0), poll_interval=Duration(5.0))
    async with open_conntrack(config, context) as batches, aclosing(batches):
        for port in range(COUNT):  # nothing is awaited here
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                one.sendto(b"x", ("127.0.0.1", 10000 + port))
        told = set()
        async for batch in batches:
            told |= {row["destinationTransportPort"] for row in batch.to_dicts() if row["protocolIdentifier"] == 17}
            if len(told & set(range(10000, 10000 + COUNT))) == COUNT:
                break
    counts = {name: int(counter.value) for name, counter in context.counters.items()}
    print(counts["lost_events"] > 0, counts["events"] < COUNT, counts["polls"] > 1)

trio.run(main)
"""

# Datagrams of both families in two zones and in none: how many each way of reading finds of which zones.
ZONES = """
import socket, trio
from contextlib import aclosing
from flowjoin_conntrack._dumper import NetlinkDumper
from flowjoin_conntrack._entry import ROW
from flowjoin_conntrack._text_dumpers import ProcDumper

for port in (*range(11000, 11010), *range(12000, 12020), *range(13000, 13040)):
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.sendto(b"x", (address, port))

async def count(dumper):
    rows = b""
    async with aclosing(dumper.dump()) as portions:
        async for portion in portions:
            rows += portion.rows
    ports = [fields[7] for fields in ROW.iter_unpack(rows)]
    return sum(11000 <= port < 14000 for port in ports)

async def main():
    for dumper in (NetlinkDumper, ProcDumper):
        print([await count(dumper(zones)) for zones in ((), (5,), (5, 65520), (0,), (7,))])

trio.run(main)
"""
ZONE_RULES = """
table inet z {
  chain marks { type filter hook output priority -300;
    udp dport 11000-11999 ct zone set 5; udp dport 12000-12999 ct zone set 65520; }
}
"""


class Namespaces:
    """Two hosts and the cable between them."""

    def __init__(self, ip: str) -> None:
        self._ip = ip
        self.client, self.server = f"fjc{os.getpid()}", f"fjs{os.getpid()}"

    def make(self) -> None:
        self._run("netns", "add", self.client)
        self._run("netns", "add", self.server)
        self._run(
            "link", "add", "fj0", "netns", self.client, "type", "veth", "peer", "name", "fj1", "netns", self.server
        )
        for name, device, number in ((self.client, "fj0", 1), (self.server, "fj1", 2)):
            self._run("-n", name, "addr", "add", f"10.77.1.{number}/24", "dev", device)
            self._run("-n", name, "addr", "add", f"fd77:1::{number}/64", "dev", device, "nodad")
            self._run("-n", name, "link", "set", device, "up")
            self._run("-n", name, "link", "set", "lo", "up")

    def drop(self) -> None:
        for name in (self.client, self.server):
            subprocess.run([self._ip, "netns", "del", name], capture_output=True, check=False)

    def inside(self, name: str, *command: str) -> list[str]:
        return [self._ip, "netns", "exec", name, *command]

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._ip, *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts(require_program: Callable[[str], str]) -> Iterator[Namespaces]:
    made = Namespaces(require_program("ip"))
    try:
        made.make()
    except subprocess.CalledProcessError as exc:
        made.drop()
        pytest.skip(f"no network namespaces here: {exc.stderr.strip()}")
    yield made
    made.drop()


def counted(nft: str, hosts: Namespaces) -> dict[str, tuple[int, int]]:
    """Packets and octets by what nft counted: direction, protocol and port."""
    text = subprocess.run(
        hosts.inside(hosts.server, nft, "list", "table", "inet", "t"), check=True, capture_output=True, text=True
    ).stdout
    found = re.findall(r"(tcp|udp) (dport|sport) \d+ counter packets (\d+) bytes (\d+)", text)
    return {f"{protocol} {direction}": (int(packets), int(octets)) for protocol, direction, packets, octets in found}


def tracked(hosts: Namespaces, require: Callable[[str], str]) -> str:
    """The server's connections are tracked from now on, or the test is skipped; where nft is."""
    nft = require("nft")
    ruled = subprocess.run(
        hosts.inside(hosts.server, nft, "-f", "-"), input=RULES, capture_output=True, text=True, check=False
    )
    if ruled.returncode:
        pytest.skip(f"nftables cannot track connections here: {ruled.stderr.strip()}")
    asked = subprocess.run(
        hosts.inside(hosts.server, sys.executable, "-c", NEEDED), capture_output=True, text=True, check=False
    )
    if asked.returncode:
        pytest.skip(f"this kernel does not tell its connections: {asked.stderr.strip().splitlines()[-1]}")
    return nft


@pytest.mark.slow
def test_where_the_kernel_had_more_to_tell_than_was_read_no_connection_is_missed(
    hosts: Namespaces, require_program: Callable[[str], str]
) -> None:
    tracked(hosts, require_program)
    done = subprocess.run(
        hosts.inside(hosts.server, sys.executable, "-c", BURST),
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.stdout == "True True True\n", done.stderr


@pytest.mark.slow
def test_zones_are_told_apart_by_netlink_and_in_proc(hosts: Namespaces, require_program: Callable[[str], str]) -> None:
    nft = tracked(hosts, require_program)
    subprocess.run(hosts.inside(hosts.server, nft, "-f", "-"), input=ZONE_RULES, check=True, text=True)
    done = subprocess.run(
        hosts.inside(hosts.server, sys.executable, "-c", ZONES),
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    by_netlink, *in_proc = done.stdout.splitlines()
    assert by_netlink == "[140, 20, 60, 80, 0]", done.stderr
    if not in_proc:
        pytest.skip(f"this kernel has no /proc/net/nf_conntrack: {done.stderr.splitlines()[-1]}")
    assert in_proc == ["[140, 20, 60, 80, 0]"]


@pytest.mark.slow
def test_each_connection_is_told_with_the_packets_and_octets_that_crossed_the_wire(
    hosts: Namespaces, require_program: Callable[[str], str], tmp_path: Path
) -> None:
    nft = tracked(hosts, require_program)
    config = tmp_path / "flowjoin.yaml"
    config.write_text(
        f"stateDirectory: {tmp_path}/state\napiServer: {{address: none}}\n"
        "sources: [{type: conntrack, pollInterval: 1s, activeTimeout: 1s, idleTimeout: 2s, events: true}]\n"
        f"exporters: [{{type: log, path: {tmp_path}/flows, format: jsonLines}}]\n"
    )
    server = subprocess.Popen(
        hosts.inside(hosts.server, sys.executable, "-c", SERVER), stdout=subprocess.PIPE, text=True
    )
    program = subprocess.Popen(
        hosts.inside(hosts.server, sys.executable, "-m", "flowjoin", "run", "-c", str(config)),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert program.stderr is not None
        assert server.stdout.readline() == "up\n"
        assert any('"source_opened"' in line for line in program.stderr)
        subprocess.run(hosts.inside(hosts.client, sys.executable, "-c", CLIENT), check=True, timeout=60)
        assert server.wait(timeout=60) == 0
        rows = wait_for(tmp_path / "flows", lambda: counted(nft, hosts))
    finally:
        server.kill()
        server.communicate()
        program.send_signal(signal.SIGTERM)
        _, errors = program.communicate(timeout=60)
    assert program.returncode == 0, errors
    ends = {(row.get("sourceIPv4Address") or row["sourceIPv6Address"], row["protocolIdentifier"]) for row in rows}
    assert ends == {("10.77.1.1", 6), ("fd77:1::1", 6), ("10.77.1.1", 17), ("fd77:1::1", 17)}
    assert {row["flowEndReason"] for row in rows if row["protocolIdentifier"] == 6} == {3}  # closed, and told once


def wait_for(path: Path, count: Callable[[], dict[str, tuple[int, int]]]) -> list[dict[str, object]]:
    """The connections' last rows, once what they say adds up to what nft counted."""
    deadline = time.monotonic() + 60
    while True:
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [row for row in map(json.loads, lines) if row["destinationTransportPort"] in (8080, 5353)]
        last = {(row["sourceTransportPort"], row["protocolIdentifier"]): row for row in rows}
        told, wire = sums(list(last.values()), "Total"), count()
        if told == sums(rows, "Delta") == wire:
            return list(last.values())
        assert time.monotonic() < deadline, (told, sums(rows, "Delta"), wire)
        time.sleep(0.1)


def sums(rows: list[dict[str, int]], kind: str) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for name, number in (("tcp", 6), ("udp", 17)):
        for direction, prefix in (("dport", ("packet", "octet")), ("sport", ("reversePacket", "reverseOctet"))):
            of_it = [row for row in rows if row["protocolIdentifier"] == number]
            packets, octets = (sum(row[f"{part}{kind}Count"] for row in of_it) for part in prefix)
            found[f"{name} {direction}"] = (packets, octets)
    return found
