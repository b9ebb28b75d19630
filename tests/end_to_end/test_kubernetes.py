"""flowjoin as a process beside an API server: records in, names, labels and UIDs out."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from denied_flow import DENIED, send_record
from kubernetes_objects import cluster_identity, node, pod, service
from kubernetes_process import KubernetesProcess
from running_flowjoin import Program
from waiting import wait_until

pytest.importorskip("flowjoin_kubernetes", reason="the kubernetes plugin is not installed")
pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")

pytestmark = pytest.mark.slow

CLUSTER = "27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e02"
UIDS = {name: str(uuid.uuid5(uuid.NAMESPACE_DNS, name)) for name in ("client", "server", "node-1", "node-2", "web")}
OBJECTS: list[tuple[str, dict[str, Any]]] = [
    ("pods", pod("client", "10.10.0.79", labels={"app": "client", "tier": "a"}, uid=UIDS["client"])),
    ("pods", pod("server", "10.10.0.80", namespace="shop", node="node-2", uid=UIDS["server"])),
    ("nodes", node("node-1", uid=UIDS["node-1"])),
    ("nodes", node("node-2", uid=UIDS["node-2"])),
    ("services", service("web", "10.10.1.10", namespace="shop", uid=UIDS["web"])),
    ("configmaps", cluster_identity(CLUSTER)),
]


@pytest.fixture
def cluster() -> Iterator[KubernetesProcess]:
    process = KubernetesProcess(OBJECTS)
    with process.running():
        yield process


@pytest.fixture
def run() -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def start(*arguments: str) -> Program:
        programs.append(Program(*arguments))
        return programs[-1]

    yield start
    for program in programs:
        if program.process.poll() is None:
            program.process.kill()
        program.process.communicate()


def configuration(folder: Path, url: str, *, pod_labels: str = "true") -> Path:
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
                "clusters": [{"name": "here", "cluster": {"server": url}}],
                "users": [{"name": "me", "user": {"token": "t"}}],
            }
        )
    )
    path = folder / "flowjoin.yaml"
    path.write_text(
        f"""
stateDirectory: {folder / "state"}
collectors: [{{protocol: tcp, address: "127.0.0.1:0"}}]
lookups: [{{type: kubernetes, kubeconfig: {kubeconfig}}}]
enrichers: [{{type: kubernetes}}]
recordContents: {{podLabels: {pod_labels}}}
activeFlowRecordTimeout: 1s
exporters: [{{type: log, path: {folder / "flows.jsonl"}, format: jsonLines}}]
apiServer: {{address: none}}
log: {{format: json}}
"""
    )
    return path


def rows(folder: Path) -> list[dict[str, Any]]:
    path = folder / "flows.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_rows(folder: Path, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(rows(folder)) >= count)
    return rows(folder)


def test_a_denied_flow_gets_the_names_labels_and_uids_of_the_cluster(
    cluster: KubernetesProcess, run: Callable[..., Program], tmp_path: Path
) -> None:
    program = run("-c", str(configuration(tmp_path, cluster.url)))
    send_record(program.wait_ready(), DENIED)
    program.process.terminate()
    assert program.finish() == 0, program.text

    (row,) = rows(tmp_path)
    assert (row["sourcePodName"], row["sourcePodNamespace"], row["sourceNodeName"]) == ("client", "default", "node-1")
    assert (row["destinationPodName"], row["destinationPodNamespace"]) == ("server", "shop")
    assert row["destinationNodeName"] == "node-2"
    assert row["sourcePodLabels"] == '{"app":"client","tier":"a"}'
    assert row["destinationPodLabels"] == "{}"
    assert row["clusterId"] == CLUSTER
    for element, name in (
        ("sourcePodUUID", "client"),
        ("destinationPodUUID", "server"),
        ("sourceNodeUUID", "node-1"),
        ("destinationNodeUUID", "node-2"),
        ("destinationServiceUUID", "web"),
    ):
        assert row[element].replace("-", "") == UIDS[name].replace("-", ""), element


def test_without_a_cluster_that_says_who_it_is_it_does_not_start_and_says_why(
    cluster: KubernetesProcess, run: Callable[..., Program], tmp_path: Path
) -> None:
    path = configuration(tmp_path, cluster.url)
    cluster.kill()
    try:
        program = run("-c", str(path))
        assert program.finish() == 2
    finally:
        cluster.start()
    sentence = "unable to retrieve cluster UUID from ConfigMap 'kube-system/antrea-cluster-identity': no connection to"
    assert sentence in program.text
    assert "Traceback" not in program.text


def test_labels_wanted_while_it_runs_are_those_of_flows_not_yet_exported(
    cluster: KubernetesProcess, run: Callable[..., Program], tmp_path: Path
) -> None:
    program = run("-c", str(configuration(tmp_path, cluster.url, pod_labels="false")))
    address = program.wait_ready()
    send_record(address, DENIED)
    (before,) = wait_rows(tmp_path, 1)
    assert (before["sourcePodName"], before["sourcePodLabels"]) == ("client", "")

    configuration(tmp_path, cluster.url, pod_labels="true")
    assert program.wait_line("configuration_reloaded")["keys"] == ["recordContents.podLabels"]
    send_record(address, {**DENIED, "flowEndSeconds": 1767225720})
    send_record(address, {**DENIED, "sourceTransportPort": 44753})
    after = wait_rows(tmp_path, 3)[1:]
    program.process.terminate()
    assert program.finish() == 0, program.text
    assert {row["sourceTransportPort"]: row["sourcePodLabels"] for row in after} == {
        44752: "",
        44753: '{"app":"client","tier":"a"}',
    }
