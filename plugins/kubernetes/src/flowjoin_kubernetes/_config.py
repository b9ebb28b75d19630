"""The keys under ``enrichers:`` and ``lookups:``, ``type: kubernetes``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from flowjoin.api import Bounds, ConfigError, Duration, Key

__all__ = ["KubernetesConfig", "KubernetesLookupConfig", "own_node"]

# RFC 1123 section 2.1, as the API server has it: a selector of anything else would be refused for ever.
_NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME: Final = 253


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
    only_node: Annotated[bool, "for agents: watch the Pods of one Node alone, whose name is $NODE_NAME"] = False


def own_node() -> str:
    """The name of the Node that this runs on, as its Pod is told it.

    Raises:
        ConfigError: it is not told, or what is told can be no Node's name. The host's name would be a guess: of a wrong
            name nothing is ever listed.
    """
    name = os.environ.get("NODE_NAME", "")
    if not name:
        problem = "needs this Node's name, and NODE_NAME is not set: a Pod gets it by fieldRef from spec.nodeName"
        raise ConfigError(problem, path="onlyNode")
    if len(name) > _LONGEST_NAME or _NODE_NAME.fullmatch(name) is None:
        shown = name[:_LONGEST_NAME]
        problem = f"NODE_NAME is {shown!r}, which is no Node's name: these are lower-case letters, digits, - and ."
        raise ConfigError(problem, path="onlyNode")
    return name
