"""Two agents and one aggregator on two Nodes made of network namespaces: what crossed the wires is what is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pod_traffic
import pytest
from real_programs import nfdump_reads, tshark_reads
from two_nodes import CLUSTER, DENIED_PORT, POD_NETWORKS, Counted, Flow, TwoNodes, flow_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE = 90.0
SHORT = 20  # connections of each kind that are opened, asked once, and closed
# What the source needs: an answer to a request for the table.
NEEDED = """
import socket, struct
table = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
table.settimeout(30)
table.send(struct.pack("=IHHIIBBH", 20, 1 << 8 | 1, 0x301, 1, 0, socket.AF_INET, 0, 0))  # dump connections
length, kind = struct.unpack_from("=IH", table.recv(65536))
assert kind != 2, "it answers with an error"
"""
SERVER, NEIGHBOUR, SERVICE = ("10.66.2.2", "fd66:2::2"), "10.66.3.2", ("10.96.0.10", "fd96::10")
OUTSIDE = "10.68.1.2"
PLAN = {
    "tcp": [
        *([host, 8080, 3, 1] for host in SERVER),
        *([host, 8080, 1, SHORT] for host in SERVER),
        *([host, 80, 2, 1] for host in SERVICE),
        *([host, 80, 1, SHORT] for host in SERVICE),
        [NEIGHBOUR, 8080, 2, 1],
        [OUTSIDE, 8080, 2, 1],
    ],
    "udp": [
        *([host, 5353, 3, 1] for host in SERVER),
        *([host, 5353, 1, SHORT] for host in SERVER),
        *([host, 53, 1, 1] for host in SERVICE),
    ],
    "echo": [*SERVER, NEIGHBOUR],
    "denied": [[host, DENIED_PORT] for host in SERVER],
}
Wires = dict[str, dict[Flow, Counted]]


@dataclass(frozen=True, kw_only=True)
class Told:
    """What came of the traffic.

    Attributes:
        made: what the client opened: kind, address, port, host and port there.
        seen: rows of each agent.
        joined: rows of the aggregator.
        sent: what agent 1 sent over UDP besides, to whoever wants to read it.
        wires: what nft counted on each Node.
    """

    made: list[list[Any]]
    seen: list[list[dict[str, Any]]]
    joined: list[dict[str, Any]]
    sent: list[bytes]
    wires: Wires


@pytest.fixture(scope="module")
def nodes(require_program: Callable[[str], str]) -> Iterator[TwoNodes]:
    made = TwoNodes(require_program("ip"), require_program("nft"))
    try:
        made.make()
        for node in ("node1", "node2"):
            subprocess.run(made.inside(node, sys.executable, "-c", NEEDED), check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as exc:
        made.drop()
        said = (exc.stderr.strip().splitlines() or [f"{exc.cmd[-1]} ended with {exc.returncode}"])[-1]
        pytest.skip(f"no two Nodes with connection tracking can be made here: {said}")
    yield made
    made.drop()


class Processes:
    """What runs in the namespaces; all of it ends with the test."""

    def __init__(self, nodes: TwoNodes, folder: Path) -> None:
        self._nodes = nodes
        self._folder = folder
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._logs: dict[str, IO[str]] = {}

    def start(
        self, name: str, host: str, *command: str, before: tuple[str, ...] = (), **environment: str
    ) -> subprocess.Popen[str]:
        self._logs[name] = (self._folder / f"{name}.log").open("w")
        started = subprocess.Popen(
            self._nodes.inside(host, *before, sys.executable, *command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._logs[name],
            text=True,
            env={**os.environ, **environment},
        )
        self._running[name] = started
        return started

    def said(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def wait_said(self, name: str, event: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while f'"{event}"' not in self.said(name):
            assert self._running[name].poll() is None, self.said(name)
            assert time.monotonic() < deadline, f"{name} never said {event}: {self.said(name)}"
            time.sleep(0.05)

    def end(self, name: str) -> None:
        running = self._running[name]
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=PATIENCE)
        assert running.returncode == 0, self.said(name)

    def kill(self) -> None:
        for running in self._running.values():
            if running.poll() is None:
                running.kill()
            running.communicate()
        for log in self._logs.values():
            log.close()


@pytest.fixture(scope="module")
def told(
    nodes: TwoNodes, tmp_path_factory: pytest.TempPathFactory, require_program: Callable[[str], str]
) -> Iterator[Told]:
    """All the traffic, once; the aggregator comes when the first agents' rows have waited for it."""
    # As in the DaemonSet: root, with CAP_NET_ADMIN and nothing else.
    with_one_right = (require_program("setpriv"), "--bounding-set", "-all,+net_admin", "--no-new-privs")
    folder = tmp_path_factory.mktemp("two-nodes")
    processes = Processes(nodes, folder)
    try:
        yield ran(nodes, processes, folder, with_one_right)
    finally:
        processes.kill()


def ran(nodes: TwoNodes, processes: Processes, folder: Path, with_one_right: tuple[str, ...]) -> Told:
    files = configured(folder)
    traffic = str(Path(pod_traffic.__file__))
    for host in ("server", "neighbour", "outside"):
        wait_up(processes.start(f"{host} of traffic", host, traffic, "serve"))
    wait_up(processes.start("recorder", "outside", traffic, "record", str(folder / "sent")))
    for number in (1, 2):
        name = f"agent{number}"
        command = ("-m", "flowjoin", "agent", "-c", str(files[name]))
        processes.start(name, f"node{number}", *command, before=with_one_right, NODE_NAME=f"node-{number}")
        processes.wait_said(name, "source_opened")

    client = processes.start("client", "client", traffic, "talk", json.dumps(PLAN))
    assert client.stdin is not None
    assert client.stdout is not None
    for round_ in (1, 2, 3):
        assert json.loads(client.stdout.readline()) == {"round": round_}, processes.said("client")
        if round_ == 1:
            for number in (1, 2):
                wait_seen(folder / f"seen-{number}", nodes, f"node{number}")
            processes.start("aggregator", "outside", "-m", "flowjoin", "run", "-c", str(files["aggregator"]))
            processes.wait_said("aggregator", "ready")
        wait_told(nodes, folder)  # each round is told before the next begins
        client.stdin.write("\n")
        client.stdin.flush()
    made = json.loads(client.stdout.readline())
    wires = wait_told(nodes, folder)
    for name in ("agent1", "agent2", "aggregator"):
        processes.end(name)
    return Told(
        made=made,
        seen=[rows_of(folder / f"seen-{number}") for number in (1, 2)],
        joined=rows_of(folder / "joined"),
        sent=pod_traffic.recorded(folder / "sent"),
        wires=wires,
    )


def configured(folder: Path) -> dict[str, Path]:
    """The files of the aggregator and of both agents; one of these is Antrea's, the other our own."""
    pki = folder / "pki"
    for words in (("init", pki), ("issue", pki, "--server", "aggregator"), ("issue", pki, "--client", "agent")):
        subprocess.run([sys.executable, "-m", "flowjoin", "certs", *map(str, words)], check=True, capture_output=True)
    (folder / "cluster.yaml").write_text(CLUSTER)
    texts = {
        "aggregator": f"""
stateDirectory: {folder}/state-aggregator
collectors:
  - {{protocol: tcp, address: "[::]:4739"}}
  - {{protocol: tls, address: "[::]:4740",
      tls: {{certificate: {pki}/aggregator.crt, key: {pki}/aggregator.key, clientCA: {pki}/ca.crt}}}}
activeFlowRecordTimeout: 1h
inactiveFlowRecordTimeout: 1h
exporters: [{{type: log, path: {folder}/joined, format: jsonLines}}]
""",
        "agent1": f"""
stateDirectory: {folder}/state-1
apiServer: {{address: none}}
lookups: [{{type: file, path: {folder}/cluster.yaml}}]
sources: [{_source(events=True)}]
exporters:
  - {{type: ipfix, address: "10.68.1.2:4740", protocol: tls, template: agent,
      tls: {{ca: {pki}/ca.crt, certificate: {pki}/agent.crt, key: {pki}/agent.key, serverName: aggregator}}}}
  - {{type: log, path: {folder}/seen-1, format: jsonLines}}
  - {{type: ipfix, name: sample, address: "10.68.1.2:4739", protocol: udp, template: agent}}
""",
        "agent2": f"""
stateDirectory: {folder}/state-2
apiServer: {{address: none}}
lookups: [{{type: file, path: {folder}/cluster.yaml}}]
featureGates: {{AntreaProxy: true}}
ovsBridge: br-int
flowExporter: {{enable: true, flowCollectorAddr: "[fd68:2::2]:4739:tcp", protocolFilter: null}}
sources: [{_source(events=True)}]
exporters: [{{type: log, path: {folder}/seen-2, format: jsonLines}}]
""",
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return {name: folder / f"{name}.yaml" for name in texts}


def _source(*, events: bool) -> str:
    keys = "zones: [65520, 65510], podsOnly: true, pollInterval: 1s, activeTimeout: 1s, idleTimeout: 3s"
    rules = (
        "{prefix: refused, direction: egress, action: reject, rule: 3}, {prefix: dropped, direction: egress, rule: 4}"
    )
    return (
        f"{{type: conntrack, {keys}, events: {str(events).lower()}, podCIDRs: {json.dumps(POD_NETWORKS)}, "
        f"denied: {{group: 5, rules: [{rules}]}}}}"
    )


def test_each_flow_of_two_nodes_is_joined_once_with_what_crossed_the_wires(told: Told) -> None:
    print(table(told))
    crossed = told.wires["node1"]
    assert len(told.made) == len(crossed)
    assert set(map(flow_of, told.joined)) == set(crossed)
    for flow, packets in crossed.items():
        rows = [row for row in told.joined if flow_of(row) == flow]
        assert len({row["flowStartSeconds"] for row in rows}) == 1, rows  # one flow, however often it was exported
        deltas = [totals(row, "FromSourceNode", kind="Delta") for row in rows]
        assert summed(deltas) == packets, rows
        assert_told_truly(rows[-1], told.wires)


def test_what_an_agent_sends_is_read_by_nfdump(
    told: Told, require_program: Callable[[str], str], tmp_path: Path
) -> None:
    programs = require_program("nfcapd"), require_program("nfdump")
    read: dict[tuple[str, int, str, int, int], list[tuple[int, int]]] = {}
    for way in nfdump_reads(*programs, tmp_path, told.sent):
        ports = (0, 0) if way.protocol in (1, 58) else (way.source_port, way.destination_port)
        key = (way.source, ports[0], way.destination, ports[1], way.protocol)
        read.setdefault(key, []).append((way.packets, way.octets))
    for flow, packets in told.wires["node1"].items():
        there, back = (read.get(tuple(direction), []) for direction in (flow, flow.reply))
        assert Counted(
            *map(sum, zip(*there, strict=True)), *(map(sum, zip(*back, strict=True)) if back else (0, 0))
        ) == (packets)


def test_what_an_agent_sends_is_read_by_tshark(
    told: Told, require_program: Callable[[str], str], tmp_path: Path
) -> None:
    records = tshark_reads(require_program("tshark"), tmp_path, told.sent)
    assert len(records) == len(told.seen[0])
    read = Counter(
        (int.from_bytes(record["cflow.srcport"], "big"), int.from_bytes(record["cflow.protocol"], "big"))
        for record in records
    )
    assert read == Counter((flow.source_port, flow.protocol) for flow in map(flow_of, told.seen[0]))
    assert len(told.sent) < len(records)  # several in a Message


def wait_up(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"


def wait_seen(path: Path, nodes: TwoNodes, node: str) -> None:
    """Wait until an agent has given rows of every flow of its Node."""
    deadline = time.monotonic() + PATIENCE
    while missing := set(nodes.counted(node)) - set(map(flow_of, rows_of(path))):
        assert time.monotonic() < deadline, f"no row of {sorted(missing)[:5]}"
        time.sleep(0.2)


def wait_told(nodes: TwoNodes, folder: Path) -> Wires:
    """Wait until each agent tells what nft counts on its Node of every flow, and the aggregator has all they told."""
    deadline = time.monotonic() + PATIENCE
    while True:
        wires = {node: nodes.counted(node) for node in ("node1", "node2")}
        seen = {node: rows_of(folder / f"seen-{node[-1]}") for node in wires}
        told = {node: {flow_of(row): totals(row) for row in rows} for node, rows in seen.items()}  # the last row counts
        received = asked(nodes, "recordmetrics").get("numRecordsReceived", 0)  # left out while there is none
        joined = {flow_of(record): totals(record) for record in asked(nodes, "flowrecords")}
        if told == wires and joined == wires["node1"] and received == sum(map(len, seen.values())):
            return wires
        if time.monotonic() > deadline:
            wrong = {node: sorted(told[node].items() ^ wires[node].items())[:6] for node in wires}
            wrong["joined"] = sorted(joined.items() ^ wires["node1"].items())[:6]
            raise AssertionError(f"flows are not told as they are, {received} records received: {wrong}")
        time.sleep(0.2)


def asked(nodes: TwoNodes, what: str) -> Any:
    command = nodes.inside("outside", sys.executable, "-m", "flowjoin", "get", what, "--output", "json")
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout or "[]")


def totals(row: dict[str, Any], side: str = "", *, kind: str = "Total") -> Counted:
    return Counted(
        *(int(row[f"{what}{kind}Count{side}"]) for what in ("packet", "octet", "reversePacket", "reverseOctet"))
    )


def assert_told_truly(row: dict[str, Any], wires: Wires) -> None:
    flow = flow_of(row)
    assert totals(row) == wires["node1"][flow], row
    assert totals(row, "FromSourceNode") == wires["node1"][flow], row
    assert totals(row, "FromDestinationNode") == wires["node2"].get(flow, wires["node1"][flow]), row
    source = (row["sourcePodNamespace"], row["sourcePodName"], row["sourceNodeName"])
    assert source == ("shop", "client", "node-1"), row
    if flow.destination_port == DENIED_PORT:
        assert_told_as_denied(row, flow)
        return
    destination = (row["destinationPodName"], row["destinationNodeName"], row["flowType"])
    if flow.destination in SERVER:
        assert destination == ("server", "node-2", 2), row
        assert (row["egressNetworkPolicyName"], row["ingressNetworkPolicyName"]) == ("let-out", "let-in"), row
        assert row["egressNetworkPolicyRuleName"] == "out", row
    elif flow.destination == NEIGHBOUR:
        assert destination == ("neighbour", "node-1", 1), row
    else:
        assert destination == ("", "", 3), row
    egress = (row["egressName"], row["egressIP"], row["egressNodeName"])
    assert egress == (("shop-out", "10.68.1.1", "node-1") if flow.destination == OUTSIDE else ("", "", "")), row
    cluster = row.get("destinationClusterIPv4") or row.get("destinationClusterIPv6")
    if row["destinationServicePortName"]:
        assert (row["destinationServicePortName"], cluster, row["destinationServicePort"]) in {
            ("shop/web:http", SERVICE[0], 80),
            ("shop/web:http", SERVICE[1], 80),
            ("shop/web:dns", SERVICE[0], 53),
            ("shop/web:dns", SERVICE[1], 53),
        }, row
    if flow.protocol == 6:
        assert (row["flowEndReason"], row["tcpState"]) == (3, "TIME_WAIT"), row


def assert_told_as_denied(row: dict[str, Any], flow: Flow) -> None:
    policy = ("shop", "not-out", "refuse", 3) if flow.protocol == 6 else ("shop", "not-out", "drop", 2)
    names = ("PolicyNamespace", "PolicyName", "PolicyRuleName", "PolicyRuleAction")
    assert tuple(row[f"egressNetwork{name}"] for name in names) == policy, row
    assert (row["flowType"], row["flowEndReason"], row["ingressNetworkPolicyName"]) == (2, 3, ""), row


def summed(several: Iterable[Counted]) -> Counted:
    return Counted(*map(sum, zip(*several, strict=True)))


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a flow log, as long as it is there."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def table(told: Told) -> str:
    """What was sent, what each Node saw and the aggregator joined, by kind of connection."""
    ports: dict[tuple[str, int], str] = {}
    for kind, _, port, host, _ in told.made:
        version = "IPv6" if ":" in host else "IPv4"
        to = "Service" if host in SERVICE else "neighbour" if host == NEIGHBOUR else "outside"
        to = "Pod of the other Node" if host in SERVER else to
        ports[kind, port or hash(host)] = f"{kind} {version}, {to}"
    lines = [f"{'kind':38}{'sent':>6}{'node 1':>8}{'node 2':>8}{'joined':>8}{'packets':>9}{'octets':>9}"]

    def kind_of(flow: Flow) -> str:
        kind = {6: "tcp", 17: "udp"}.get(flow.protocol, "echo")
        kind = f"denied {kind}" if flow.destination_port == DENIED_PORT else kind
        return ports[kind, flow.source_port or hash(flow.destination)]

    sent = Counter(ports.values())
    node1, node2, joined = (Counter(map(kind_of, set(map(flow_of, rows)))) for rows in (*told.seen, told.joined))
    for kind, count in sent.items():
        crossed = [packets for flow, packets in told.wires["node1"].items() if kind_of(flow) == kind]
        packets = sum(each.packets + each.reverse_packets for each in crossed)
        octets = sum(each.octets + each.reverse_octets for each in crossed)
        lines.append(f"{kind:38}{count:6}{node1[kind]:8}{node2[kind]:8}{joined[kind]:8}{packets:9}{octets:9}")
    return "\n".join(lines)
