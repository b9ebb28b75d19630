"""The cluster's UUID: Antrea's ConfigMap, tried for ten seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from kubernetes_objects import cluster_identity
from kubernetes_stand_in import Fault, KubernetesStandIn

from flowjoin.api import PluginError
from flowjoin.testing import RecordingContext
from flowjoin_kubernetes import KubernetesConfig, _cluster_uuid, flowjoin_enricher_types, flowjoin_lookup_types
from flowjoin_kubernetes._cluster_uuid import cluster_uuid

UUID = "27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e02"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cluster_uuid, "_EVERY_SECONDS", 0.001)


async def ask(kubeconfig: Path) -> str | None:
    with trio.fail_after(60):
        return await cluster_uuid(KubernetesConfig(kubeconfig=kubeconfig), RecordingContext().log)


async def test_it_is_read_from_antreas_config_map(server: KubernetesStandIn, kubeconfig: Path) -> None:
    server.put("configmaps", cluster_identity(UUID.upper()))
    assert await ask(kubeconfig) == UUID


async def test_it_is_asked_again_until_it_is_there(server: KubernetesStandIn, kubeconfig: Path) -> None:
    server.put("configmaps", cluster_identity(UUID))
    server.faults.append(Fault(404, times=3))
    assert await ask(kubeconfig) == UUID
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("trouble", "problem"),
    [
        (
            "missing",
            'configmaps "antrea-cluster-identity" not found; where the cluster has no Antrea, set clusterUUID: none',
        ),
        ("forbidden", 'resourceNames: ["antrea-cluster-identity"], verbs: ["get"]}'),
        ("empty", "its key uuid is empty"),
        ("nonsense", "its key uuid holds 'nonsense', which is no UUID"),
        ("away", "no connection to 127.0.0.1"),
    ],
)
async def test_what_is_wrong_is_said_after_a_while(
    server: KubernetesStandIn,
    kubeconfig_of,
    kubeconfig: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
    problem: str,
) -> None:
    monkeypatch.setattr(_cluster_uuid, "_PATIENCE_SECONDS", 3.0)
    if trouble == "forbidden":
        server.forbidden = {"configmaps"}
    elif trouble in ("empty", "nonsense"):
        server.put("configmaps", cluster_identity("" if trouble == "empty" else trouble))
    elif trouble == "away":
        kubeconfig = kubeconfig_of("http://127.0.0.1:1")
    with pytest.raises(PluginError) as caught:
        await ask(kubeconfig)
    assert caught.value.problem.startswith(
        "unable to retrieve cluster UUID from ConfigMap 'kube-system/antrea-cluster-identity': "
    )
    assert problem in caught.value.problem


async def test_where_none_is_wanted_nothing_is_asked() -> None:
    assert await cluster_uuid(KubernetesConfig(cluster_uuid="none"), RecordingContext().log) is None


def test_both_types_can_tell_it() -> None:
    assert flowjoin_enricher_types()[0].cluster_uuid is cluster_uuid
    assert flowjoin_lookup_types()[0].cluster_uuid is cluster_uuid
