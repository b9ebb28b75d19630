"""The keys under ``enrichers:`` and ``lookups:``, ``type: kubernetes``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from flowjoin.api import Bounds, Duration, Key

__all__ = ["KubernetesConfig", "KubernetesLookupConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig:
    """Which cluster, and what is kept of it."""

    kubeconfig: Annotated[
        Path | None,
        "file with the cluster's address and credentials; default: the Pod's service account, else $KUBECONFIG",
    ] = None
    context: Annotated[str, "which context of the kubeconfig; empty: its current one"] = ""
    deleted_pods_kept: Annotated[
        Duration, Bounds(0, 86400), "how long what was deleted is still found by flows of its time"
    ] = Duration(300.0)
    nodes_and_services: Annotated[bool, "watch Nodes and Services too; the UUID elements need them"] = True
    cluster_uuid: Annotated[
        Literal["antrea", "none"],
        Key("clusterUUID"),
        "where the cluster's UUID comes from: Antrea's ConfigMap, or flowjoin's state directory",
    ] = "antrea"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesLookupConfig(KubernetesConfig):
    """The same, for look-ups."""

    aggregator_namespace: Annotated[str, "where the flow aggregator publishes its clients' certificates"] = (
        "flow-aggregator"
    )
