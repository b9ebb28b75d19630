"""What the chart makes, with each of its options, as a real API server takes it: a field unknown to it is an error."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from deployment import CHART, MANIFESTS, OPTIONS, objects
from real_kubernetes import RealKubernetes, real_cluster

__all__ = ["real_cluster"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(name="cluster", scope="module")
def _cluster(real_cluster: RealKubernetes) -> RealKubernetes:
    """With the namespace that people make before they install."""
    real_cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "flows"}})
    return real_cluster


def test_the_manifests_are_taken_and_applied_again_change_nothing(cluster: RealKubernetes) -> None:
    def applied() -> list[dict[str, Any]]:
        made = [cluster.apply(one) for one in objects(MANIFESTS.read_text())]
        return [{**one, "metadata": one["metadata"]["uid"]} for one in made]

    assert applied() == applied()


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_what_the_chart_makes_is_taken_with(
    cluster: RealKubernetes, require_program: Callable[[str], str], settings: list[str]
) -> None:
    command = [require_program("helm"), "template", "x", str(CHART), "--namespace", "flows", "--kube-version", "1.30.0"]
    made = subprocess.run([*command, "--set", ",".join(settings)], check=True, capture_output=True, text=True).stdout
    taken = set()
    for one in objects(made):
        if one["apiVersion"].startswith("monitoring.coreos.com/"):
            continue  # Kubernetes has no schema for what an operator defines
        if one["apiVersion"] == "policy/v1":
            one["apiVersion"] = "policy/v1beta1"  # as a server of 1.20 knows it: the same fields
        cluster.apply(one, is_dry=True)
        taken.add(one["kind"])
    assert {"Deployment", "Service", "ServiceAccount"} <= taken
