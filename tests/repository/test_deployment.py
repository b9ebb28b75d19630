"""What is deployed: the chart, the manifests made from it, the container build and the systemd unit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from deployment import AGENT, CHART, DEPLOY, MANIFESTS, REPOSITORY, assert_valid, manifest

from flowjoin._config.load import load_config


@pytest.mark.parametrize("file", [MANIFESTS, AGENT], ids=lambda file: file.name)
def test_the_manifests_are_valid_kubernetes_objects(file):
    assert_valid(file.read_text())


def test_the_manifests_are_what_the_chart_makes(require_program, tmp_path, monkeypatch):
    monkeypatch.setenv("HELM", require_program("helm"))
    subprocess.run([DEPLOY / "render", tmp_path], check=True)
    for file in (MANIFESTS, AGENT):
        assert (tmp_path / file.name).read_text() == file.read_text()


def test_agents_find_the_service_where_antrea_has_it():
    service = manifest("Service")
    assert service["metadata"]["namespace"] == "flow-aggregator"
    ports = {(port["protocol"], port["port"]) for port in service["spec"]["ports"]}
    assert {("TCP", 4739), ("UDP", 4739)} <= ports
    pod = manifest("Deployment")["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    named = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= named


def test_agents_may_read_what_they_connect_with_and_no_more():
    rules = manifest("Role", "flow-aggregator-exporter")["rules"]
    assert {(rule["resources"][0], *rule["resourceNames"], *rule["verbs"]) for rule in rules} == {
        ("configmaps", "flow-aggregator-ca", "get"),
        ("secrets", "flow-aggregator-client-tls", "get"),
    }


def test_no_secret_can_be_read_but_by_its_name():
    for name in ("flow-aggregator", "flow-aggregator-exporter"):
        for rule in manifest("Role", name)["rules"]:
            assert rule["verbs"] == ["create"] or rule["resourceNames"]
    for rule in manifest("ClusterRole")["rules"]:
        assert "secrets" not in rule["resources"]
        assert "configmaps" not in rule["resources"]


def test_the_pod_can_change_nothing_but_its_volumes():
    spec = manifest("Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    configuration = yaml.safe_load(
        manifest("ConfigMap", "flow-aggregator-configmap")["data"]["flow-aggregator.conf"],
    )
    assert configuration["stateDirectory"] in mounted
    assert str(Path(configuration["flowLogger"]["path"]).parent) in mounted


def test_the_configuration_is_mounted_as_a_directory_so_that_a_change_is_seen():
    spec = manifest("Deployment")["spec"]["template"]["spec"]
    (mount,) = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == "config"]
    assert mount == {"name": "config", "mountPath": "/etc/flow-aggregator", "readOnly": True}


def test_the_grace_of_the_pod_is_longer_than_the_one_of_flowjoin():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    own = int(values["config"]["shutdownGracePeriod"].removesuffix("s"))
    assert values["terminationGracePeriodSeconds"] >= own + 10


@pytest.mark.parametrize("name", ["flowjoin.service", "flowjoin-agent.service"])
def test_systemd_gives_time_to_end_and_starts_nothing_again_that_no_restart_mends(name):
    settings = dict(
        line.split("=", 1) for line in (DEPLOY / "systemd" / name).read_text().splitlines() if re.match(r"\w+=", line)
    )
    assert int(settings["TimeoutStopSec"].removesuffix("s")) >= load_config("").config.shutdown_grace_period + 10
    assert settings["RestartPreventExitStatus"] == "2"
    # systemd asks the main process alone for its exit status: what ExecStartPre refuses is started for ever
    assert "ExecStartPre" not in settings


def test_the_charts_configuration_is_accepted(tmp_path):
    file = tmp_path / "flow-aggregator.conf"
    file.write_text(manifest("ConfigMap", "flow-aggregator-configmap")["data"]["flow-aggregator.conf"])
    command = [sys.executable, "-m", "flowjoin", "check", "--strict", "-c", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_the_container_is_built_from_what_is_there():
    text = (DEPLOY / "container" / "Containerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (REPOSITORY / source).exists(), source
    (default,) = re.findall(r'^ARG PLUGINS="(.*)"$', text, re.MULTILINE)
    assert sorted(default.split()) == sorted(
        path.parent.name for path in (REPOSITORY / "plugins").glob("*/pyproject.toml")
    )


def test_the_containers_user_is_the_pods():
    text = (DEPLOY / "container" / "Containerfile").read_text()
    security = manifest("Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert f"USER {security['runAsUser']}:{security['runAsGroup']}" in text
    assert f"--uid {security['runAsUser']} " in text


def test_an_agent_has_one_right_on_its_node():
    spec = manifest("DaemonSet", "flowjoin-agent", AGENT)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["hostNetwork"] is True
    assert not {"hostPID", "hostIPC"} & set(spec)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
    }
    on_the_node = [volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume]
    assert on_the_node == ["/var/lib/flowjoin-agent"]


def test_an_agent_reads_of_the_cluster_what_it_names_and_connects_with():
    (rule,) = manifest("ClusterRole", "flowjoin-agent", AGENT)["rules"]
    assert (rule["resources"], rule["verbs"]) == (["pods", "nodes", "services"], ["list", "watch"])
    binding = manifest("RoleBinding", "flowjoin-agent", AGENT)
    assert (binding["metadata"]["namespace"], binding["roleRef"]["name"]) == (
        "flow-aggregator",
        manifest("Role", "flow-aggregator-exporter")["metadata"]["name"],
    )
    account = manifest("ServiceAccount", "flowjoin-agent", AGENT)["metadata"]
    for each in (binding, manifest("ClusterRoleBinding", "flowjoin-agent", AGENT)):
        assert each["subjects"] == [
            {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
        ]
    template = manifest("DaemonSet", "flowjoin-agent", AGENT)["spec"]["template"]["spec"]
    assert template["serviceAccountName"] == account["name"]


def test_the_agents_configuration_is_accepted_and_finds_the_aggregators_service(tmp_path):
    daemon_set = manifest("DaemonSet", "flowjoin-agent", AGENT)["spec"]["template"]["spec"]
    (container,) = daemon_set["containers"]
    command, _, path = container["args"]
    text = manifest("ConfigMap", "flowjoin-agent", AGENT)["data"][Path(path).name]
    file = tmp_path / "flowjoin-agent.conf"
    file.write_text(text)
    check = [sys.executable, "-m", "flowjoin", "check", "--strict", f"--{command}", "-c", str(file)]
    ended = subprocess.run(check, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    configuration = yaml.safe_load(text)
    # A cluster does not tell each Node of every Pod.
    (lookup,) = configuration["lookups"]
    assert (lookup["type"], lookup["onlyNode"]) == ("kubernetes", True)
    environment = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}
    assert environment["NODE_NAME"] == "spec.nodeName"
    service = manifest("Service")["metadata"]
    assert configuration["flowExporter"]["flowCollectorAddr"] == f"{service['namespace']}/{service['name']}:4739:tls"
    port = int(configuration["apiServer"]["address"].rpartition(":")[2])
    assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness", "readiness")} == {port}
    mounted = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert configuration["stateDirectory"] in mounted


def test_the_agents_unit_has_one_right():
    text = (DEPLOY / "systemd" / "flowjoin-agent.service").read_text()
    assert re.findall(r"^(\w+)=.*CAP_.*$", text, re.MULTILINE) == ["AmbientCapabilities", "CapabilityBoundingSet"]
    assert set(re.findall(r"CAP_\w+", text)) == {"CAP_NET_ADMIN"}
    assert "DynamicUser=yes" in text


@pytest.mark.parametrize("name", ["flowjoin.service", "flowjoin-agent.service"])
def test_the_unit_is_one_that_systemd_understands(require_program, tmp_path, name):
    analyze = require_program("systemd-analyze")
    text = (DEPLOY / "systemd" / name).read_text()
    unit = tmp_path / name
    unit.write_text(text.replace("/opt/flowjoin/bin/flowjoin", sys.executable))
    ended = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "script", [DEPLOY / "render", DEPLOY / "container" / "build-from-debian"], ids=lambda path: path.name
)
def test_each_script_can_be_run_and_is_sh(script):
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", str(script)], check=True)
