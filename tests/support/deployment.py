"""What is deployed, as the tests read it: the manifests, and the chart with its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
MANIFESTS = DEPLOY / "manifests" / "flowjoin.yaml"
AGENT = DEPLOY / "manifests" / "flowjoin-agent.yaml"
CHART = DEPLOY / "helm" / "flowjoin"
OPTIONS = {
    "a volume for the state": ["state.persistence.enabled=true"],
    "a volume that is there": ["state.persistence.enabled=true", "state.persistence.existingClaim=mine"],
    "a disruption budget": ["podDisruptionBudget.enabled=true"],
    "Prometheus": ["serviceMonitor.enabled=true", "serviceMonitor.labels.release=prometheus"],
    "a collector's certificates": ["secrets.flowCollectorCA=ca", "secrets.flowCollectorClient=client"],
    "several in Proxy mode": ["replicas=3", "config.mode=Proxy"],
    "a configuration that is there": ["existingConfigMap=flow-aggregator-configmap"],
    "a load balancer": ["service.type=LoadBalancer", "service.annotations.a=b", "service.protocols={TCP}"],
    "no rights": ["rbac.create=false"],
    "agents": ["agent.enabled=true", "agent.priorityClassName=system-node-critical"],
    "agents without rights": ["agent.enabled=true", "rbac.create=false"],
}


def objects(text: str) -> list[dict[str, Any]]:
    """The objects of a YAML stream."""
    return [document for document in yaml.safe_load_all(text) if document]


def manifest(kind: str, name: str = "flow-aggregator", file: Path = MANIFESTS) -> dict[str, Any]:
    """The one of that kind and name that is deployed."""
    (found,) = [one for one in objects(file.read_text()) if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found
