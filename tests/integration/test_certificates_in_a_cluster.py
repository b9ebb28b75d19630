"""Our own authority, kept by a cluster's API server: replicas, and the agents' way to the certificates."""

from __future__ import annotations

import json

import certificates
import pytest
import trio
from kubernetes_stand_in import KubernetesStandIn

from flowjoin._certificates.authority import Authority
from flowjoin.testing import RecordingContext

flowjoin_kubernetes = pytest.importorskip("flowjoin_kubernetes", reason="flowjoin-kubernetes is not installed")


async def test_replicas_over_one_api_server_end_with_one_authority_that_agents_can_use(tmp_path):
    from flowjoin_kubernetes._certificates import ClusterCertificates
    from flowjoin_kubernetes._client import load_api
    from flowjoin_kubernetes._config import KubernetesConfig
    from flowjoin_kubernetes._credentials import read_credentials

    async with KubernetesStandIn().serving() as server:
        kubeconfig = tmp_path / "kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": server.url}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
        }
        kubeconfig.write_text(json.dumps(content), encoding="utf-8")
        api = load_api(KubernetesConfig(kubeconfig=kubeconfig))
        replicas = [
            Authority(
                ClusterCertificates(api, "flow-aggregator"),
                ("flow-aggregator.flow-aggregator.svc",),
                RecordingContext(name="core").log,
                lambda _problem: None,
                certificates.NOW.timestamp,
            )
            for _ in range(3)
        ]
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for replica in replicas:
                    nursery.start_soon(replica.sync)
        assert len({replica._used for replica in replicas}) == 1
        agent = await read_credentials(api, "flow-aggregator")
        assert agent.ca.encode() == replicas[0]._used
        assert agent.certificate.startswith("-----BEGIN CERTIFICATE-----")
        assert agent.key.startswith("-----BEGIN RSA PRIVATE KEY-----")
