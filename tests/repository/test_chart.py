"""The chart with values of an operator's: what it makes of them, and what it refuses with a sentence."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from deployment import CHART, DEPLOY, OPTIONS, assert_valid, objects

PROXY = ["config.mode=Proxy", "replicas=3"]

Template = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(name="template")
def _template(require_program: Callable[[str], str]) -> Template:
    helm = require_program("helm")

    def template(*settings: str, chart: Path = CHART, more: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        command = [helm, "template", "x", str(chart), "--namespace", "flows", "--kube-version", "1.30.0", *more]
        settings_of = [part for each in settings for part in ("--set", each)]
        return subprocess.run([*command, *settings_of], capture_output=True, text=True, check=False)

    return template


def made(template: Template, kind: str, *settings: str) -> dict[str, Any]:
    done = template(*settings)
    assert done.returncode == 0, done.stderr
    (found,) = [one for one in objects(done.stdout) if one["kind"] == kind]
    return found


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_the_chart_makes_valid_objects_with(template: Template, settings: list[str]) -> None:
    done = template(*settings)
    assert done.returncode == 0, done.stderr
    assert_valid(done.stdout)
    assert "kind: Deployment" in done.stdout


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["replicas=2"], "more than one needs config.mode: Proxy"),
        ([*PROXY, "state.persistence.enabled=true"], "more than one cannot have state.persistence.enabled"),
        (["config.apiServer.address=[::]:8443"], "another port than apiPort, 10348"),
        (["agent.enabled=true", "agent.config.apiServer.address=127.0.0.1:1"], "than agent.probePort, 10352"),
        (["serviceMonitor.enabled=true", "service.api=false"], "needs service.api"),
        (["replica=1"], "'replica' not allowed"),
        (["state.persistance.enabled=true"], "'persistance' not allowed"),
        (["state.persistence.enabled=yes"], "/state/persistence/enabled"),
        (["secrets.aws="], "/secrets/aws"),
        (["service.protocols={SCTP}"], "/service/protocols/0"),
        (["service.protocols=TCP"], "/service/protocols"),
        (["extraEnv.TOKEN=x"], "/extraEnv"),
        (["apiPort=0"], "/apiPort"),
    ],
)
def test_the_chart_refuses(template: Template, settings: list[str], sentence: str) -> None:
    done = template(*settings)
    assert done.returncode != 0
    assert sentence in done.stderr


def test_the_schema_knows_every_value_and_no_other() -> None:
    def keys(value: Any, schema: dict[str, Any], path: str) -> Iterator[tuple[str, set[str], set[str]]]:
        if not isinstance(value, dict) or schema.get("additionalProperties", True) is not False:
            return
        yield path, set(value), set(schema["properties"])
        for key in set(value) & set(schema["properties"]):
            yield from keys(value[key], schema["properties"][key], f"{path}.{key}")

    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    seen = list(keys(values, schema, ""))
    assert len(seen) > 10
    for path, given, known in seen:
        parents = {"global", "enabled"} if not path else set()  # Helm's own, and the condition of a chart around it
        assert given == known - parents, path


@pytest.mark.parametrize(
    ("settings", "strategy"),
    [
        ([], "Recreate"),
        (PROXY, "RollingUpdate"),
        (["config.mode=Proxy", "state.persistence.enabled=true"], "Recreate"),
        (["existingConfigMap=mine"], "Recreate"),
    ],
)
def test_a_new_pod_starts_beside_the_old_one_only_where_both_may_run(
    template: Template, settings: list[str], strategy: str
) -> None:
    assert made(template, "Deployment", *settings)["spec"]["strategy"] == {"type": strategy}


def test_another_port_of_the_api_is_the_probes_and_the_services(template: Template) -> None:
    settings = OPTIONS["another port of the API"]
    (container,) = made(template, "Deployment", *settings)["spec"]["template"]["spec"]["containers"]
    assert {"name": "api", "containerPort": 8443, "protocol": "TCP"} in container["ports"]
    assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness", "readiness")} == {"api"}
    (port,) = [port for port in made(template, "Service", *settings)["spec"]["ports"] if port["name"] == "api"]
    assert (port["port"], port["targetPort"]) == (8443, "api")
    (endpoint,) = made(template, "ServiceMonitor", *settings)["spec"]["endpoints"]
    assert endpoint["port"] == port["name"]


def test_the_job_that_prometheus_gets_is_the_one_of_the_rules(template: Template) -> None:
    monitor = made(template, "ServiceMonitor", *OPTIONS["Prometheus"])["spec"]
    labels = made(template, "Service")["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    rules = (DEPLOY / "prometheus" / "alerts.yaml").read_text()
    assert set(re.findall(r'job="(\w+)"', rules)) == {labels[monitor["jobLabel"]]}


def test_a_policy_names_the_ports_and_who_may_reach_them(template: Template) -> None:
    pod = made(template, "Deployment")["spec"]["template"]
    named = {port["name"]: port["protocol"] for port in pod["spec"]["containers"][0]["ports"]}
    for option, are_narrowed in (("a policy for the network", True), ("a policy that lets everybody in", False)):
        policy = made(template, "NetworkPolicy", *OPTIONS[option])["spec"]
        assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert policy["policyTypes"] == ["Ingress"]
        assert {port["port"]: port["protocol"] for rule in policy["ingress"] for port in rule["ports"]} == named
        assert [("from" in rule) for rule in policy["ingress"]] == [are_narrowed, are_narrowed]


@pytest.mark.parametrize(
    ("settings", "there", "not_there"),
    [
        ([], ["flowCollectorAddr: flows/flow-aggregator:4739:tls", "is lost with the Pod"], ["No destination"]),
        (["state.persistence.enabled=true"], [], ["is lost with the Pod"]),
        (["config.flowLogger.enable=false"], ["No destination is configured"], []),
        (["config.flowLogger=null"], ["No destination is configured"], []),
        (["config.flowLogger.enable=false", "config.exporters[0].type=log"], [], ["No destination"]),
        (["existingConfigMap=mine"], ["the ConfigMap mine "], ["No destination"]),
    ],
)
def test_the_notes_say_what_comes_next(
    template: Template, tmp_path: Path, settings: list[str], there: list[str], not_there: list[str]
) -> None:
    chart = tmp_path / "flowjoin"
    shutil.copytree(CHART, chart)
    notes = (chart / "templates" / "NOTES.txt").read_text()  # which Helm shows only when it installs
    wrapped = '{{ define "notes" }}' + notes + '{{ end }}\nnotes: {{ include "notes" . | toJson }}\n'
    (chart / "templates" / "notes.yaml").write_text(wrapped)
    done = template(*settings, chart=chart, more=("--show-only", "templates/notes.yaml"))
    assert done.returncode == 0, done.stderr
    text = yaml.safe_load(done.stdout)["notes"]
    assert [part for part in there if part not in text] == []
    assert [part for part in not_there if part in text] == []
    assert "<no value>" not in text
