"""The manifests applied to a real API server, and flowjoin run as the Pod that they describe.

It has the Pod's address, user, file system, service account and rights; an agent of Antrea finds its certificates
where agents look. Only kubelet and image are not real.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
import threading
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from denied_flow import DENIED, send_record
from deployed import NAMESPACE, Deployed
from deployment import MANIFESTS, objects
from pod import Pod, require_pods
from real_kubernetes import RealKubernetes, require_kubernetes
from running_flowjoin import Program
from waiting import wait_until

pytest.importorskip("flowjoin_kubernetes", reason="the kubernetes plugin is not installed")
pytest.importorskip("flowjoin_ipfix", reason="the ipfix plugin is not installed")
pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE = 120.0
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "replace-antreas-flow-aggregator.md"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ME = f"system:serviceaccount:{NAMESPACE}:flow-aggregator"


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    programs, ip = require_kubernetes(), require_pods()
    pod = Pod(ip, tmp_path)
    with pod.network():
        folder = tmp_path / "kubernetes"
        folder.mkdir()
        cluster = RealKubernetes(programs, folder, pod.host)
        with cluster.running():
            deployed = Deployed(cluster, pod, tmp_path)
            try:
                deployed.prepare()
                yield deployed
            finally:
                deployed.end()


def wait_for(condition: Callable[[], Any]) -> Any:
    """What it gives at last; it may fail as requests do."""

    def unless_it_fails() -> Any:
        with contextlib.suppress(OSError, urllib.error.URLError):
            return condition()

    return wait_until(unless_it_fails, patience=PATIENCE)


def wait_events(program: Program, *events: str) -> None:
    """Until each was logged, in any order; one that comes twice within ten seconds may be logged once."""
    missing = set(events)
    assert program.process.stderr is not None
    patience = threading.Timer(PATIENCE, program.process.kill)
    patience.start()
    try:
        while missing:
            line = program.process.stderr.readline()
            assert line, f"no {missing}: {program.text}"
            program.errors.append(line)
            if line.startswith("{"):
                missing.discard(json.loads(line)["event"])
    finally:
        patience.cancel()


def assert_nothing_more_than_the_manifest_allows(program: Program) -> None:
    """Its user, its capabilities and its file system are those of the security context."""
    process = Path("/proc", str(program.process.pid))
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
    assert status["Uid"].split() == status["Gid"].split() == ["10001"] * 4
    assert (status["CapEff"], status["CapBnd"], status["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    root = [mount for mount in mounts if mount[4] == "/"][-1]
    assert root[5].split(",")[0] == "ro", root


def test_deployed_as_it_is_agents_connect_unchanged_and_flows_get_their_names(deployed: Deployed) -> None:
    program = deployed.start()
    wait_events(program, "ready", "api_ready", "certificate_replaced", "lookup_opened")
    assert_nothing_more_than_the_manifest_allows(program)
    edge = deployed.start_edge(deployed.folder / "edge")
    send_record(edge.wait_ready(), DENIED)

    def held() -> Any:
        done = deployed.ask("reader", "get", "flowrecords", "--output", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    (flow,) = wait_for(held)
    assert (flow["sourceIPv4Address"], flow["destinationTransportPort"]) == ("10.10.0.79", 5201)

    # The ConfigMap is changed, and the kubelet swaps the volume's link.
    changed = yaml.safe_load(deployed.configuration["flow-aggregator.conf"])
    changed["recordContents"]["podLabels"] = True
    deployed.pod.config.write({"flow-aggregator.conf": yaml.safe_dump(changed)})
    assert program.wait_line("configuration_reloaded")["keys"] == ["recordContents.podLabels"]

    edge.process.terminate()
    assert edge.finish() == 0, edge.text
    program.process.terminate()
    assert program.finish() == 0, program.text
    (row,) = csv.reader((deployed.pod.logs / "flows.log").read_text().splitlines())
    assert row[2:13] == [
        "10.10.0.79", "10.10.0.80", "44752", "5201", "TCP",
        "client", "default", "node-1", "server", "shop", "node-2",
    ]  # fmt: skip
    assert "Traceback" not in program.text
    assert sorted(path.name for path in deployed.pod.logs.iterdir()) == ["flows.log"]


def rights_of(account: str) -> set[tuple[str, str, str, str, str]]:
    """What the manifests let a service account do with objects: namespace, group, resource, verb, name."""
    deployed = objects(MANIFESTS.read_text())
    rules = {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one["rules"]
        for one in deployed
        if "rules" in one
    }
    found = set()
    for binding in deployed:
        if not any(subject["name"] == account for subject in binding.get("subjects", ())):
            continue
        namespace = binding["metadata"].get("namespace", "")
        for rule in rules[binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]]:
            found |= {
                (namespace, group, resource, verb, name)
                for group in rule.get("apiGroups", ())
                for resource in rule.get("resources", ())
                for verb in rule["verbs"]
                for name in rule.get("resourceNames", ("",))
            }
    return found


def asked_by(deployed: Deployed, user: str) -> set[tuple[str, str, str, str, str]]:
    """The same of what the API server was asked for; all of it was allowed."""
    found = set()
    whole, _, _being_written = deployed.cluster.audit_log.read_text().rpartition("\n")
    for line in whole.splitlines():
        event = json.loads(line)
        if event["user"]["username"] != user or "objectRef" not in event:
            continue
        assert event["annotations"]["authorization.k8s.io/decision"] == "allow", line
        what, verb = event["objectRef"], event["verb"]
        name = "" if verb == "create" else what.get("name", "")
        found.add((what.get("namespace", ""), what.get("apiGroup", ""), what["resource"], verb, name))
    return found


def test_every_right_of_the_pod_is_used_and_it_asks_for_nothing_more(deployed: Deployed) -> None:
    program = deployed.start()
    wait_events(program, "ready", "api_ready", "certificate_replaced", "lookup_opened")
    assert deployed.ask("reader", "get", "recordmetrics").returncode == 0  # reviews
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/flow-aggregator-ca-tls"
    spoilt = deployed.cluster.request("GET", secret)
    spoilt["data"] = {"tls.crt": "", "tls.key": ""}
    deployed.cluster.request("PUT", secret, spoilt)  # told by its watch, and all three are written anew
    published = (NAMESPACE, "", "configmaps", "update", "flow-aggregator-ca")
    wait_for(lambda: published in asked_by(deployed, ME))
    deployed.start_edge(deployed.folder / "edge").wait_ready()
    program.process.terminate()
    assert program.finish() == 0, program.text
    wait_for(lambda: asked_by(deployed, ME) >= rights_of("flow-aggregator"))  # a watch is in the log when it ends
    assert asked_by(deployed, ME) == rights_of("flow-aggregator")
    agent = "system:serviceaccount:kube-system:antrea-agent"
    assert asked_by(deployed, agent) == rights_of("antrea-agent")
    token = deployed.cluster.make_token("kube-system", "antrea-agent")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        deployed.cluster.request("GET", secret, token=token)


def test_the_api_is_asked_from_outside_of_the_pod_and_inside_of_it(deployed: Deployed) -> None:
    program = deployed.start()
    wait_events(program, "ready", "api_ready", "lookup_opened")
    level = ("log-level",)
    for who, arguments, outcome in (
        ("reader", ("get", "recordmetrics"), 0),
        ("reader", ("get", "flowrecords", "--output", "json"), 0),
        ("reader", ("top", "--once", "--interval", "0.1", "--output", "json"), 0),
        ("reader", level, "you may not get /loglevel"),
        ("operator", (*level, "debug"), 0),
        ("operator", level, 0),
        ("flow-aggregator", ("get", "recordmetrics"), 0),
        ("flow-aggregator", level, "you may not get /loglevel"),
        ("nobody", ("get", "recordmetrics"), "this bearer token is nobody's"),
    ):
        done = deployed.ask(who, *arguments)
        if outcome == 0:
            assert done.returncode == 0, (who, arguments, done.stderr)
        else:
            assert done.returncode == 1, (who, arguments, done.stdout)
            assert str(outcome) in done.stderr
    assert deployed.ask("operator", *level).stdout.split()[-1] == "debug"
    (shown,) = re.findall(r'^ask="(.*)"$', HOW_TO.read_text(), re.M)
    for command in (("get", "recordmetrics"), ("top", "--once", "--interval", "0.1")):
        done = deployed.pod.execute(program, *command, *shown.split())
        assert done.returncode == 0, done.stderr
    program.process.terminate()
    assert program.finish() == 0, program.text


def test_without_the_right_to_read_pods_agents_connect_and_flows_pass_without_names(deployed: Deployed) -> None:
    role = deployed.cluster.request("GET", f"{ROLES}/flow-aggregator")
    role["rules"] = [rule for rule in role["rules"] if "pods" not in rule["resources"]]
    deployed.cluster.request("PUT", f"{ROLES}/flow-aggregator", role)
    program = deployed.start()
    wait_events(program, "watch_failed", "ready", "api_ready", "certificate_replaced", "lookup_opened")
    assert deployed.ask("reader", "get", "recordmetrics").returncode == 0
    edge = deployed.start_edge(deployed.folder / "edge")
    send_record(edge.wait_ready(), DENIED)
    edge.process.terminate()
    assert edge.finish() == 0, edge.text
    program.process.terminate()
    assert program.finish() == 0, program.text
    (row,) = csv.reader((deployed.pod.logs / "flows.log").read_text().splitlines())
    assert (row[2], row[3], row[7], row[10]) == ("10.10.0.79", "10.10.0.80", "", "")


def test_without_its_api_server_it_goes_on_and_starts_again(deployed: Deployed) -> None:
    program = deployed.start()
    wait_events(program, "ready", "api_ready", "certificate_replaced", "lookup_opened")
    edge = deployed.start_edge(deployed.folder / "edge")
    address = edge.wait_ready()
    deployed.cluster.kill()
    send_record(address, DENIED)  # the agent's connection is made now, and what is known of Pods still counts
    wait_events(program, "watch_failed")
    edge.process.terminate()
    assert edge.finish() == 0, edge.text
    program.process.terminate()
    assert program.finish() == 0, program.text
    (row,) = csv.reader((deployed.pod.logs / "flows.log").read_text().splitlines())
    assert (row[7], row[10]) == ("client", "server")

    again = deployed.start()  # it knows which cluster it is in from before
    wait_events(again, "watch_failed")
    deployed.cluster.start()
    wait_events(again, "lookup_opened", "certificate_replaced")
    edge = deployed.start_edge(deployed.folder / "edge-again")
    send_record(edge.wait_ready(), {**DENIED, "sourceTransportPort": 44753})
    edge.process.terminate()
    assert edge.finish() == 0, edge.text
    again.process.terminate()
    assert again.finish() == 0, again.text
    rows = list(csv.reader((deployed.pod.logs / "flows.log").read_text().splitlines()))
    assert [(row[4], row[7], row[10]) for row in rows] == [("44752", "client", "server"), ("44753", "client", "server")]
