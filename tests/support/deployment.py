"""What is deployed, as the tests read it: the manifests, and the chart with its options."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

OLDEST_AND_NEWEST = ("1.25", "1.37")
REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
MANIFESTS = DEPLOY / "manifests" / "flowjoin.yaml"
AGENT = DEPLOY / "manifests" / "flowjoin-agent.yaml"
CHART = DEPLOY / "helm" / "flowjoin"
OPTIONS = {
    "a volume for the state": ["state.persistence.enabled=true"],
    "a volume that is there": ["state.persistence.enabled=true", "state.persistence.existingClaim=mine"],
    "a volume that outlives the release": [
        "state.persistence.enabled=true",
        r"state.persistence.annotations.helm\.sh/resource-policy=keep",
    ],
    "a disruption budget": ["podDisruptionBudget.enabled=true"],
    "Prometheus": ["serviceMonitor.enabled=true", "serviceMonitor.labels.release=prometheus"],
    "a collector's certificates": ["secrets.flowCollectorCA=ca", "secrets.flowCollectorClient=client"],
    "several in Proxy mode": ["replicas=3", "config.mode=Proxy"],
    "a configuration that is there": ["existingConfigMap=flow-aggregator-configmap"],
    "a load balancer": ["service.type=LoadBalancer", "service.annotations.a=b", "service.protocols={TCP}"],
    "a load balancer that shows who sends": [
        "service.type=LoadBalancer",
        "service.externalTrafficPolicy=Local",
        "service.loadBalancerSourceRanges={192.0.2.0/24}",
        "service.protocols={UDP}",
        "service.api=false",
    ],
    "a policy for the network": [
        "networkPolicy.enabled=true",
        "networkPolicy.exportersFrom[0].ipBlock.cidr=192.0.2.0/24",
        "networkPolicy.apiFrom[0].namespaceSelector.matchLabels.name=monitoring",
    ],
    "a policy that lets everybody in": ["networkPolicy.enabled=true"],
    "another port of the API": ["apiPort=8443", "config.apiServer.address=[::]:8443", "serviceMonitor.enabled=true"],
    "a place of its own": [
        "nodeSelector.pool=flows",
        "tolerations[0].key=flows",
        "tolerations[0].operator=Exists",
        "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=zone",
        "priorityClassName=system-cluster-critical",
        "podAnnotations.a=b",
        "imagePullSecrets[0].name=registry",
    ],
    "more in the container": [
        "extraEnv[0].name=TOKEN",
        "extraEnv[0].valueFrom.secretKeyRef.name=mine",
        "extraEnv[0].valueFrom.secretKeyRef.key=token",
        "extraVolumes[0].name=mine",
        "extraVolumes[0].secret.secretName=mine",
        "extraVolumeMounts[0].name=mine",
        "extraVolumeMounts[0].mountPath=/etc/mine",
    ],
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


def assert_valid(text: str) -> None:
    """Each object is one that Kubernetes takes, with no field that it does not know."""
    for one in objects(text):
        if one["apiVersion"].startswith("monitoring.coreos.com/"):
            continue  # Kubernetes has no schema for what an operator defines
        for version in OLDEST_AND_NEWEST:
            _validate(json.dumps(one), version)


@functools.cache  # a schema is read anew for each object, and most objects are the same whatever is set
def _validate(text: str, version: str) -> None:
    kubernetes_validate.validate(json.loads(text), version, strict=True)
