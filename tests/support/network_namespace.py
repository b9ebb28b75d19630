"""A network namespace of a test's own, whose kernel tracks connections and tells of them; or the test is skipped."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

import pytest

__all__ = ["ASKED", "GROUP", "Inside", "network_namespace"]

Inside: TypeAlias = Callable[..., list[str]]

GROUP: Final = 7
_numbers = itertools.count()

# What the source asks a kernel for: the table, and a group; a program that has asked has the group.
ASKED: Final = f"""
import socket
from flowjoin_conntrack._netlink import dump_request
from flowjoin_conntrack._nflog import bind_request, logged_packets
asked = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
asked.settimeout(30)
for request in (
    dump_request(socket.AF_INET, zone=None, sequence=1),
    bind_request({GROUP}, copy_octets=128, batch=1, flush_seconds=1, with_connection=False, sequence=2),
):
    asked.send(request)
    list(logged_packets(asked.recv(65536)))
"""
_SWITCHED_ON: Final = """
import pathlib
for name in ("nf_conntrack_acct", "nf_conntrack_timestamp"):
    pathlib.Path("/proc/sys/net/netfilter", name).write_text("1")
"""


@contextmanager
def network_namespace(
    require_program: Callable[[str], str], rules: str, *, switched_on: bool = True
) -> Iterator[Inside]:
    """Gives a function that makes a command one that runs in the namespace.

    Args:
        rules: of nftables, so that something is tracked.
        switched_on: whether counters and times are kept from the beginning.
    """
    ip, nft = require_program("ip"), require_program("nft")
    name = f"fjn{os.getpid()}-{next(_numbers)}"
    made = subprocess.run([ip, "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")

    def inside(*words: str) -> list[str]:
        return [ip, "netns", "exec", name, *words]

    try:
        subprocess.run([ip, "-n", name, "link", "set", "lo", "up"], check=True, capture_output=True)
        needed = ASKED + _SWITCHED_ON if switched_on else ASKED
        for words, text in (((nft, "-f", "-"), rules), ((sys.executable, "-c", needed), None)):
            asked = subprocess.run(inside(*words), input=text, capture_output=True, text=True, check=False)
            if asked.returncode:
                pytest.skip(f"this kernel does not tell its connections: {asked.stderr.strip().splitlines()[-1]}")
        yield inside
    finally:
        subprocess.run([ip, "netns", "del", name], capture_output=True, check=False)
