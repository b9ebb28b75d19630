"""Objects as the Kubernetes API server tells of them, with fields that nobody here wants."""

from __future__ import annotations

from typing import Any

Manifest = dict[str, Any]


def pod(
    name: str,
    *addresses: str,
    namespace: str = "default",
    node: str = "node-1",
    labels: dict[str, str] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    phase: str = "Running",
    host_network: bool = False,
    **metadata: Any,
) -> Manifest:
    """A Pod as the API server tells of it, with fields that nobody here wants."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": created,
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:phase": {}}}}],
            **({} if labels is None else {"labels": labels}),
            **metadata,
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "hostNetwork": host_network},
        "status": {
            "phase": phase,
            "podIP": addresses[0] if addresses else "",
            "podIPs": [{"ip": a} for a in addresses],
        },
    }


def node(name: str, *addresses: str, pod_networks: tuple[str, ...] = (), **metadata: Any) -> Manifest:
    """A Node."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", **metadata},
        "spec": {"podCIDR": pod_networks[0], "podCIDRs": list(pod_networks)} if pod_networks else {},
        "status": {
            "addresses": [{"type": "Hostname", "address": name}]
            + [{"type": "InternalIP", "address": address} for address in addresses]
        },
    }


def service(name: str, *addresses: str, namespace: str = "default", port: int = 80, **metadata: Any) -> Manifest:
    """A Service with one port."""
    return {
        "kind": "Service",
        "metadata": {
            "name": name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z", **metadata,
        },
        "spec": {
            "clusterIP": addresses[0] if addresses else "None",
            "clusterIPs": list(addresses) or ["None"],
            "ports": [{"name": "http", "port": port, "protocol": "TCP", "nodePort": 30080}],
        },
    }  # fmt: skip


def cluster_identity(text: str) -> Manifest:
    """Antrea's ConfigMap."""
    return {"metadata": {"name": "antrea-cluster-identity", "namespace": "kube-system"}, "data": {"uuid": text}}
