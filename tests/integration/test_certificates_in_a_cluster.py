"""Our own authority, kept by a cluster's API server: replicas, renewal, and the agents' way to the certificates.

Against the stand-in, and against a real kube-apiserver where there is one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import certificates
import pytest
import trio
from cluster_hand import ClusterHand, RealHand, StandInHand
from kubernetes_stand_in import KubernetesStandIn
from real_kubernetes import RealKubernetes, real_cluster, write_kubeconfig

from flowjoin._certificates.authority import Authority, open_authority
from flowjoin._certificates.profiles import Pair
from flowjoin.testing import RecordingContext

flowjoin_kubernetes = pytest.importorskip("flowjoin_kubernetes", reason="flowjoin-kubernetes is not installed")

__all__ = ["real_cluster"]

NAME = "flow-aggregator.flow-aggregator.svc"
REPLICAS = 3
PATIENCE = 90.0
LIFE_SECONDS = (365 - 90) * 86400 + 60


@pytest.fixture(params=["stand-in", pytest.param("real", marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def real_or_none(request: pytest.FixtureRequest) -> RealKubernetes | None:
    return request.getfixturevalue("real_cluster") if request.param == "real" else None


@pytest.fixture
async def hand(real_or_none: RealKubernetes | None, tmp_path: Path) -> AsyncIterator[ClusterHand]:
    path = tmp_path / "kubeconfig"
    if real_or_none is not None:
        yield RealHand(real_or_none, write_kubeconfig(path, real_or_none.url))
        return
    async with KubernetesStandIn().serving() as server:
        yield StandInHand(server, write_kubeconfig(path, server.url))


class Replica:
    """One process's authority, and what it said."""

    def __init__(self, hand: ClusterHand, wall: Clock) -> None:
        from flowjoin_kubernetes._certificates import ClusterCertificates
        from flowjoin_kubernetes._client import load_api
        from flowjoin_kubernetes._config import KubernetesConfig

        self.log = RecordingContext(name="core").log
        api = load_api(KubernetesConfig(kubeconfig=hand.kubeconfig))
        self.store = ClusterCertificates(api, hand.namespace, self.log)
        self._wall = wall
        self.authority: Authority | None = None

    async def run_in(self, stack: AsyncExitStack) -> None:
        self.authority = await stack.enter_async_context(
            open_authority(self.store, names=(NAME,), log=self.log, report=lambda _problem: None, wall=self._wall)
        )

    @property
    def used(self) -> bytes | None:
        assert self.authority is not None
        return self.authority._used


class Clock:
    def __init__(self) -> None:
        self.now = certificates.NOW.timestamp()

    def __call__(self) -> float:
        return self.now


async def until_all_use(replicas: list[Replica], other_than: bytes | None) -> bytes:
    """Wait until all replicas use one authority, and another one than before."""
    while True:
        used = {replica.used for replica in replicas}
        (first, *more) = used
        if first is not None and first != other_than and not more:
            return first
        await trio.sleep(0.01)


async def assert_agents_get_in(hand: ClusterHand, replicas: list[Replica]) -> None:
    """With what is published, as an agent reads it."""
    from flowjoin_kubernetes._client import load_api
    from flowjoin_kubernetes._config import KubernetesConfig
    from flowjoin_kubernetes._credentials import read_credentials

    agent = await read_credentials(load_api(KubernetesConfig(kubeconfig=hand.kubeconfig)), hand.namespace)
    assert agent.certificate.startswith("-----BEGIN CERTIFICATE-----")
    assert agent.key.startswith("-----BEGIN RSA PRIVATE KEY-----")
    shown = Pair(certificate=agent.certificate.encode(), key=agent.key.encode())
    for replica in replicas:
        assert replica.used == agent.ca.encode()
        assert replica.authority is not None
        assert replica.authority.current is not None
        assert certificates.shakes_hands(replica.authority.current.context, agent.ca, shown, NAME)


async def until_agents_get_in(hand: ClusterHand, replicas: list[Replica], other_than: bytes | None) -> bytes:
    """The authority's own Secret is written first: what agents read follows."""
    while True:
        used = await until_all_use(replicas, other_than)
        published = (await hand.read("configmaps", "flow-aggregator-ca"))["data"]["ca.crt"].encode()
        if published == used:
            await assert_agents_get_in(hand, replicas)
            return used
        await trio.sleep(0.01)


async def test_replicas_that_start_together_end_with_one_authority_that_agents_can_use(hand):
    replicas = [Replica(hand, Clock()) for _ in range(REPLICAS)]
    with trio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            for replica in replicas:
                await replica.run_in(stack)
            await until_agents_get_in(hand, replicas, None)


async def test_what_somebody_deletes_or_spoils_is_made_anew_and_all_replicas_and_agents_follow(hand):
    """Told by watches: the replicas look by themselves every hour alone."""
    replicas = [Replica(hand, Clock()) for _ in range(REPLICAS)]
    with trio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            for replica in replicas:
                await replica.run_in(stack)
            used = await until_agents_get_in(hand, replicas, None)
            await hand.delete("secrets", "flow-aggregator-ca-tls")
            used = await until_agents_get_in(hand, replicas, used)
            spoilt = await hand.read("secrets", "flow-aggregator-ca-tls")
            spoilt["data"] = {"tls.crt": "", "tls.key": ""}
            await hand.put("secrets", spoilt)
            await until_agents_get_in(hand, replicas, used)


async def test_at_the_threshold_all_is_renewed_and_replicas_agree_again(hand):
    clock = Clock()
    clock.now -= LIFE_SECONDS  # handshakes go by the machine's own clock
    replicas = [Replica(hand, clock) for _ in range(REPLICAS)]
    with trio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            for replica in replicas:
                await replica.run_in(stack)
            used = await until_agents_get_in(hand, replicas, None)
            clock.now += LIFE_SECONDS
            await hand.delete("configmaps", "flow-aggregator-ca")  # so that they look now, and not in an hour
            await until_agents_get_in(hand, replicas, used)
    for replica in replicas:
        assert [line for line in replica.log.lines if line.event == "certificates_failed"] == []
