"""Packets that a real nftables ruleset denies and logs to a group, in a network namespace of the test's own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from network_namespace import GROUP, Inside, network_namespace
from policy_server import PolicyServer

# As the guide has it: rules that log what they deny, to a group, with a prefix that says why.
RULES = f"""
table inet t {{
  chain in {{
    type filter hook input priority 0;
    ct state invalid drop
    udp dport 9 counter log prefix "fj:ingress:drop:7" group {GROUP} drop
    tcp dport 9 counter log prefix "fj:ingress:reject:8" group {GROUP} reject with tcp reset
    icmpv6 type echo-request counter log prefix "fj:ingress:drop:implicit" group {GROUP} drop
  }}
  chain out {{
    type filter hook output priority 0;
    sctp dport 9 counter meta mark set 0x42 log prefix "to the outside: " group {GROUP} drop
  }}
}}
"""
SENDER = """
import socket, struct
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    sender = socket.socket(family, socket.SOCK_DGRAM)
    sender.bind((address, 4000 + family))
    for size in (100, 300):
        sender.sendto(b"x" * size, (address, 9))
try:
    socket.create_connection(("127.0.0.1", 9), timeout=30)
except ConnectionRefusedError:
    pass
echo = struct.pack(">BBHHH", 128, 0, 0, 1, 0)
socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58).sendto(echo, ("::1", 0))
init = struct.pack(">HHII", 4132, 9, 0, 0) + bytes([1, 0, 0, 20]) + bytes(16)
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 132).sendto(init, ("127.0.0.1", 0))
except PermissionError:
    pass  # what the output chain drops is told to the sender
"""
POLICIES: list[dict[str, object]] = [
    {
        "rule": rule,
        "generation": 1,
        "policyName": "no-discard",
        "policyNamespace": "shop",
        "policyType": "antrea",
        "ruleName": name,
    }
    for rule, name in ((7, "udp"), (8, "tcp"))
]


@pytest.fixture
def inside(require_program: Callable[[str], str]) -> Iterator[Inside]:
    with network_namespace(require_program, RULES) as made:
        yield made


@pytest.fixture(params=["file", "policy_rules"])
def lookup(request: pytest.FixtureRequest, inside: Inside, tmp_path: Path) -> Iterator[str]:
    """An entry of ``lookups:`` that knows the rules, from a file or from a server in the namespace."""
    server = PolicyServer(tmp_path)
    server.write(*POLICIES)
    if request.param == "file":
        yield f"{{type: file, path: {tmp_path}/rules.json}}"
    else:
        with server.running(inside):
            yield f'{{type: policy_rules, url: "{server.url}"}}'


@pytest.mark.slow
def test_denied_packets_become_flows_with_their_rule(inside: Inside, lookup: str, tmp_path: Path) -> None:
    config = tmp_path / "flowjoin.yaml"
    config.write_text(
        f"stateDirectory: {tmp_path}/state\napiServer: {{address: none}}\n"
        f"lookups: [{lookup}]\n"
        "sources:\n"
        "  - type: conntrack\n    activeTimeout: 1s\n    idleTimeout: 2s\n    pollInterval: 1s\n"
        f"    denied: {{group: {GROUP}, rules: [{{mark: 0x42, action: reject, direction: egress}}]}}\n"
        f"exporters: [{{type: log, path: {tmp_path}/flows, format: jsonLines}}]\n"
    )
    program = subprocess.Popen(
        inside(sys.executable, "-m", "flowjoin", "run", "-c", str(config)), stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stderr is not None
        said = []
        for line in program.stderr:
            said.append(line)
            if '"source_opened"' in line:
                break
            if "denied.group" in line or '"source_failed"' in line:
                break
        assert '"source_opened"' in said[-1], said
        subprocess.run(inside(sys.executable, "-c", SENDER), check=True, timeout=100)
        wanted = {
            # family, protocol: packets, octets, ingress policy and rule, its type and action, egress action
            (4, 17): (2, 456, "no-discard", "udp", 2, 2, 0),
            (6, 17): (2, 496, "no-discard", "udp", 2, 2, 0),
            (4, 6): (1, 60, "no-discard", "tcp", 2, 3, 0),
            (6, 58): (1, 48, "", "", 1, 2, 0),
            (4, 132): (1, 52, "", "", 0, 0, 3),
        }
        assert rows_once_there(tmp_path / "flows", wanted) == wanted
    finally:
        program.send_signal(signal.SIGTERM)
        _, errors = program.communicate(timeout=60)
    assert program.returncode == 0, errors
    rows = denied(tmp_path / "flows")
    assert {row["flowEndReason"] for row in rows} == {3}
    assert {row["sourceTransportPort"] for row in rows if row["protocolIdentifier"] in (17, 132)} == {4002, 4010, 4132}


Rows = dict[tuple[int, int], tuple[object, ...]]


def denied(path: Path) -> list[dict[str, object]]:
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if row["ingressNetworkPolicyRuleAction"] or row["egressNetworkPolicyRuleAction"]]


def rows_once_there(path: Path, wanted: Rows) -> Rows:
    """What is told, once it is what was wanted; what it is after a minute."""
    deadline = time.monotonic() + 60
    while True:
        found: Rows = {}
        for row in denied(path):
            key = (6 if "sourceIPv6Address" in row else 4, row["protocolIdentifier"])
            packets, octets, *_ = found.get(key, (0, 0))  # type: ignore[arg-type]  # both numbers
            found[key] = (  # type: ignore[index]  # both numbers
                packets + row["packetDeltaCount"],  # type: ignore[operator]  # as that
                octets + row["octetDeltaCount"],  # type: ignore[operator]  # as that
                *(row[f"ingressNetworkPolicy{name}"] for name in ("Name", "RuleName", "Type", "RuleAction")),
                row["egressNetworkPolicyRuleAction"],
            )
        if found == wanted or time.monotonic() > deadline:
            return found
        time.sleep(0.1)
