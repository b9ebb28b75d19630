"""Antrea's configuration file and two agents' records in, Antrea's flow log out: the program as it is installed."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hand_made import Record, file_of_halves

pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")

pytestmark = pytest.mark.slow

COMMON: Record = {
    "flowStartSeconds": 1637706961,
    "flowEndSeconds": 1637706973,
    "flowEndReason": 3,
    "sourceTransportPort": 44752,
    "destinationTransportPort": 5201,
    "protocolIdentifier": 6,
    "packetTotalCount": 823188,
    "octetTotalCount": 30472817041,
    "sourceIPv4Address": "10.10.0.79",
    "destinationIPv4Address": "10.10.0.80",
    "sourceIPv6Address": "2001:0:3238:dfe1:63::fefb",
    "destinationIPv6Address": "2001:0:3238:dfe1:63::fefc",
    "tcpState": "TIME_WAIT",
    "flowType": 2,
}
SOURCE: Record = {
    **COMMON,
    "sourcePodName": "perftest-a",
    "sourcePodNamespace": "antrea-test",
    "sourceNodeName": "k8s-node-control-plane",
    "destinationClusterIPv4": "10.10.1.10",
    "destinationClusterIPv6": "2001:0:3238:dfe1:64::a",
    "destinationServiceIPv4": "10.10.2.10",
    "destinationServiceIPv6": "2001:0:3238:dfe1:65::a",
    "destinationServicePort": 5202,
    "destinationServicePortName": "perftest",
    "egressNetworkPolicyName": "allow-out",
    "egressNetworkPolicyNamespace": "antrea-test-ns-e",
    "egressNetworkPolicyRuleName": "rule-e",
    "egressNetworkPolicyRuleAction": 1,
    "egressNetworkPolicyType": 3,
    "egressName": "test-egress",
    "egressIP": "172.18.0.1",
    "egressNodeName": "test-egress-node",
}
DESTINATION: Record = {
    **COMMON,
    "destinationPodName": "perftest-b",
    "destinationPodNamespace": "antrea-test-b",
    "destinationNodeName": "k8s-node-control-plane-b",
    "ingressNetworkPolicyName": "allow-in",
    "ingressNetworkPolicyNamespace": "antrea-test-ns",
    "ingressNetworkPolicyRuleName": "rule",
    "ingressNetworkPolicyRuleAction": 1,
    "ingressNetworkPolicyType": 1,
}
AFTER_THE_PORTS = (
    "44752,5201,TCP,perftest-a,antrea-test,k8s-node-control-plane,perftest-b,antrea-test-b,k8s-node-control-plane-b,"
)
POLICIES = (
    "5202,perftest,allow-in,antrea-test-ns,rule,Allow,K8sNetworkPolicy,"
    "allow-out,antrea-test-ns-e,rule-e,Allow,AntreaClusterNetworkPolicy,test-egress,172.18.0.1,"
)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "agents.ipfix"
    path.write_bytes(file_of_halves(SOURCE, DESTINATION))
    return path


def replayed(capture: Path, configuration: str) -> None:
    path = capture.with_name("flow-aggregator.conf")
    path.write_text(configuration, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "flowjoin", "replay", str(capture), "-c", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("compatibility", "addresses", "last"),
    [
        ("antrea-2.7", ("10.10.1.10,10.10.2.10,", "2001:0:3238:dfe1:64::a,2001:0:3238:dfe1:65::a,"), ""),
        ("antrea-2.3", ("10.10.1.10,", "2001:0:3238:dfe1:64::a,"), ",,"),
    ],
)
def test_antreas_configuration_gives_antreas_lines(
    capture: Path, compatibility: str, addresses: tuple[str, str], last: str
) -> None:
    log = capture.with_name("antrea-flows.log")
    replayed(capture, f"compatibility: {compatibility}\nflowLogger: {{enable: true, path: {log}}}\n")
    assert sorted(log.read_text(encoding="utf-8").splitlines()) == [
        f"1637706961,1637706973,10.10.0.79,10.10.0.80,{AFTER_THE_PORTS}{addresses[0]}{POLICIES}{last}test-egress-node",
        "1637706961,1637706973,2001:0:3238:dfe1:63::fefb,2001:0:3238:dfe1:63::fefc,"
        f"{AFTER_THE_PORTS}{addresses[1]}{POLICIES}{last}test-egress-node",
    ]


def test_two_logs_of_one_run_have_their_own_filters_and_formats(capture: Path) -> None:
    everything, denied = capture.with_name("all.jsonl"), capture.with_name("denied.csv")
    replayed(
        capture,
        f"""
exporters:
  - {{type: log, name: all, path: {everything}, format: jsonLines, omitDefaults: true, timeFormat: iso8601}}
  - type: log
    name: denied
    path: {denied}
    header: true
    filters: [{{ingressNetworkPolicyRuleActions: [Drop, Reject]}}]
""",
    )
    flows = [json.loads(line) for line in everything.read_text(encoding="utf-8").splitlines()]
    assert [flow["octetTotalCount"] for flow in flows] == [30472817041, 30472817041]
    assert {flow["flowStartSeconds"] for flow in flows} == {"2021-11-23T22:36:01Z"}
    assert "appProtocolName" not in flows[0]
    with denied.open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == []
