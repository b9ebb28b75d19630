"""What a poll of the kernel's connections costs, with ``conntrack -L`` beside it.

    sudo python tests/benchmarks/conntrack_table.py [ENTRIES] [RECORDED]

ENTRIES are made by real datagrams over the loopback of a network namespace of its own; they go through the source's
own dumper and store, in each form. RECORDED many come of a netlink stream: the dump of the real ones, told again with
other ids. Needs root, ``unshare``, ``nft`` and ``conntrack``. CPU is this process's, kernel included: a dump is made by
the kernel in the reader's time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import trio
from one_table import Figure, show

from flowjoin_conntrack._dumper import NetlinkDumper, NetlinkReceiver, open_netlink
from flowjoin_conntrack._entry import ID_AT, ROW
from flowjoin_conntrack._exports import Timeouts
from flowjoin_conntrack._forms import FORM, read
from flowjoin_conntrack._netlink import dump_request
from flowjoin_conntrack._store import ConnectionStore

ROUNDS = 5
SETTINGS = {"nf_conntrack_udp_timeout": 3600, "nf_conntrack_acct": 1, "nf_conntrack_timestamp": 1}
RULES = """add table inet t
add chain inet t c { type filter hook output priority 0; }
add rule inet t c ct state new counter"""
TIMEOUTS = Timeouts(active=5.0, idle=15.0, stale=300.0)
PORTS = 50_000


class Steps(trio.abc.Instrument):
    """The longest step of any task, CPU seconds."""

    longest = 0.0

    def before_task_step(self, task: Any) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: Any) -> None:
        self.longest = max(self.longest, time.thread_time() - self._began)


def send(entries: int) -> None:
    """One datagram of each connection."""
    for first in range(0, entries, PORTS):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind(("127.0.0.1", 20_000 + first // PORTS))
            for number in range(min(PORTS, entries - first)):
                sender.sendto(b"x", (f"127.0.{number % 8}.1", 1000 + number))


def prepare(entries: int) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["nft", RULES], check=True)
    for name, value in SETTINGS.items():
        Path("/proc/sys/net/netfilter", name).write_text(str(value))
    send(entries)


async def poll(store: ConnectionStore[str], at: float) -> int:
    """As the source does it."""
    entries = 0
    for _ in store.begin_poll(at, int(at * 10**9)):
        await trio.lowlevel.checkpoint()
    async with aclosing(NetlinkDumper(()).dump()) as portions:
        async for portion in portions:
            for _ in store.see(portion.rows):
                await trio.lowlevel.checkpoint()
            entries += portion.entries
    list(store.end_poll())
    return entries


def measured(store: ConnectionStore[str], at: float) -> tuple[float, float]:
    """CPU microseconds an entry, and the longest step of the loop in milliseconds."""
    steps = Steps()
    before = time.process_time()
    entries = trio.run(poll, store, at, instruments=[steps])
    return (time.process_time() - before) / entries * 1e6, steps.longest * 1000


def polls(entries: int) -> dict[str, float]:
    """Of this form: first poll, polls of what did not change, polls of what did."""
    store = ConnectionStore(TIMEOUTS, lambda _row: "known")
    first, hold = measured(store, 0.0)
    at, holds = 0.0, [hold]
    found: dict[str, list[float]] = {"poll, nothing changed": [], "poll, everything changed": []}
    for name, costs in found.items():
        for _ in range(ROUNDS):
            at += 5.0
            if "everything" in name:
                send(entries)
            while store.expire(at, 4096):
                pass
            cost, hold = measured(store, at)
            costs.append(cost)
            holds.append(hold)
    return {
        "first poll": first,
        **{name: statistics.median(costs) for name, costs in found.items()},
        "longest step, ms": max(holds),
    }


def conntrack_list(entries: int) -> float:
    costs = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["conntrack", "-L"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(costs) / entries * 1e6


async def record() -> list[bytes]:
    datagrams = []
    with open_netlink(0) as netlink:
        receiver = NetlinkReceiver(netlink)
        netlink.send(dump_request(socket.AF_UNSPEC, zone=None, sequence=1))
        while True:
            datagrams.append(bytes(await receiver.some()))
            if read(datagrams[-1], ()).is_done:
                return datagrams


def recorded(many: int) -> dict[str, float]:
    """A stream of so many entries, read and held: CPU and memory of each."""
    datagrams = trio.run(record)
    store = ConnectionStore(TIMEOUTS, lambda _row: "known")
    spent = {"read": 0.0, "first seen": 0.0, "seen again": 0.0}
    before = resident()
    counts = []
    for round_of in ("first seen", "seen again"):
        for _ in store.begin_poll(0.0, 0):
            pass
        taken = copy = 0
        while taken < many:
            for datagram in datagrams:
                began = time.process_time()
                rows = read(datagram, ()).rows
                spent["read"] += time.process_time() - began
                rows = renumbered(rows, copy)
                began = time.process_time()
                for _ in store.see(rows):
                    pass
                spent[round_of] += time.process_time() - began
                taken += len(rows) // ROW.size
            copy += 1
        list(store.end_poll())
        counts.append(taken)
    held = resident() - before
    return {
        "recorded stream, read": spent["read"] / sum(counts) * 1e6,
        "recorded stream, store, first seen": spent["first seen"] / counts[0] * 1e6,
        "recorded stream, store, seen again": spent["seen again"] / counts[1] * 1e6,
        "octets held an entry": held / len(store),
    }


def renumbered(rows: bytes, copy: int) -> bytes:
    """The same connections with ids of their own."""
    made = bytearray(rows)
    made[ID_AT :: ROW.size] = bytes([copy]) * (len(rows) // ROW.size)
    return bytes(made)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def inside(arguments: argparse.Namespace) -> None:
    prepare(arguments.entries)
    (there,) = (int(Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text()),)
    figures = [Figure("CPU, µs an entry", f"list of {there:,} entries", "conntrack -L", conntrack_list(there))]
    for form in ("compiled", "python"):
        command = [sys.executable, __file__, str(arguments.entries), str(arguments.recorded), "--one"]
        made = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"FLOWJOIN_KERNEL": form}
        )
        facts: dict[str, Any] = json.loads(made.stdout)
        figures += [
            Figure("" if name[0] in "lo" else "CPU, µs an entry", name, form, value) for name, value in facts.items()
        ]
    figures.append(Figure("CPU, µs an entry", f"list of {there:,} entries", "conntrack -L", conntrack_list(there)))
    show(figures)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a poll of the kernel's connections costs.")
    parser.add_argument("entries", type=int, nargs="?", default=100_000)
    parser.add_argument("recorded", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        assert os.environ["FLOWJOIN_KERNEL"] == FORM
        print(json.dumps(polls(arguments.entries) | recorded(arguments.recorded)))
    elif arguments.inside:
        inside(arguments)
    else:
        command = [sys.executable, __file__, str(arguments.entries), str(arguments.recorded), "--inside"]
        raise SystemExit(subprocess.run(["unshare", "-n", *command], check=False).returncode)


if __name__ == "__main__":
    main()
