"""Whatever happens to the cluster, its history and the connections: in the end the tables are what the server has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random

import pytest
import trio
from kubernetes_objects import Manifest, node, pod, service
from kubernetes_stand_in import Fault, KubernetesStandIn
from waiting import until

from flowjoin.testing import RecordingContext
from flowjoin_kubernetes import KubernetesConfig, _watch
from flowjoin_kubernetes._client import load_api
from flowjoin_kubernetes._records import PodRecord
from flowjoin_kubernetes._tables import ClusterTables, open_tables

STEPS = 400
JUNK = (b"{\n", b"[]\n", b'{"type": "ADDED"}\n', b"\xff\n", b'{"type": "ERROR", "object": {}}\n')
REFUSALS = (401, 403, 404, 410, 429, 500, 504)
NAMES = {resource: [f"{resource}-{number}" for number in range(5)] for resource in ("nodes", "services")}
SPLITS = (None, None, 16, 4096)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = replace(_watch.TIMING, first_wait=0.001, longest_wait=0.01)
    monkeypatch.setattr(_watch, "TIMING", timing)


@asynccontextmanager
async def tables_of(kubeconfig: Path) -> AsyncIterator[ClusterTables]:
    config = KubernetesConfig(kubeconfig=kubeconfig)
    async with open_tables(load_api(config), config, RecordingContext(), jitter=lambda: 0.0) as tables:
        yield tables


class Cluster:
    """Changes at random, and what is there after them."""

    def __init__(self, server: KubernetesStandIn, random: Random) -> None:
        self.pods: dict[str, Manifest] = {}
        self.names: dict[str, set[str]] = {"nodes": set(), "services": set()}
        self._server = server
        self._random = random

    def put_pod(self) -> None:
        """A new one, or one whose address or phase changes; addresses are few, so that they are used again."""
        pick, addresses = self._random, ("10.0.0.%d", "fd00::%x")
        name = f"pod-{pick.randrange(30)}"
        status = {
            "phase": pick.choice(("Pending", "Running", "Running", "Running", "Succeeded", "Failed")),
            "podIPs": [{"ip": each % pick.randrange(1, 12)} for each in addresses[: pick.randrange(3)]],
        }
        old = self.pods.get(name)
        is_over = old is not None and old["status"]["phase"] in ("Succeeded", "Failed")
        if is_over or pick.random() < 0.2:
            self.delete_pod(name)
            old = None
        manifest = pod(name)
        manifest["status"] = status
        manifest["spec"]["hostNetwork"] = old["spec"]["hostNetwork"] if old else pick.random() < 0.1
        self.pods[name] = self._server.put("pods", manifest)

    def delete_pod(self, name: str | None = None) -> None:
        if name is None and self.pods:
            name = self._random.choice(sorted(self.pods))
        if name in self.pods:
            del self.pods[name]
            self._server.delete("pods", "default", name)

    def put_or_delete_other(self) -> None:
        resource, make, namespace = self._random.choice((("nodes", node, ""), ("services", service, "default")))
        name = self._random.choice(NAMES[resource])
        if name in self.names[resource] and self._random.random() < 0.5:
            self.names[resource].discard(name)
            self._server.delete(resource, namespace, name)
        else:
            self.names[resource].add(name)
            self._server.put(resource, make(name, f"192.0.2.{self._random.randrange(20)}"))

    def living(self) -> dict[str, tuple[str, ...]]:
        """Addresses of the Pods that have some of their own, by name."""
        return {
            name: tuple(each["ip"] for each in manifest["status"]["podIPs"])
            for name, manifest in self.pods.items()
            if not manifest["spec"]["hostNetwork"] and manifest["status"]["phase"] not in ("Succeeded", "Failed")
        }


async def disturb(server: KubernetesStandIn, random: Random) -> None:
    """Something goes wrong between the server and who watches it, or on the server's side."""
    match random.randrange(12):
        case 0:
            await server.drop_connections()
        case 1:
            server.compact()
        case 2:
            server.compact()
            await server.drop_connections()
        case 3:
            server.gone_event()
        case 4:
            server.spoil(random.choice(("pods", "nodes")), random.choice(JUNK))
        case 5:
            server.send_to_watches(random.choice((b"{", b'{"type": "MODI', b"\n\n\n")))
        case 6:
            server.send_to_watches(None)
        case 7:
            server.bookmark()
        case 8:
            server.faults.append(Fault(random.choice(REFUSALS), times=random.randrange(1, 8)))
        case 9:
            server.faults.append(Fault(410, match="continue="))
        case 10:
            server.split = random.choice(SPLITS)
        case 11:
            server.gone_as_status = not server.gone_as_status


def records(tables: ClusterTables) -> list[PodRecord]:
    """Of all Pods that are held, the deleted ones too."""
    return [tables.pods._make(row) for row in tables.pods._rows.values()]


def fits(tables: ClusterTables, cluster: Cluster) -> bool:
    """Whether the tables say what the cluster says."""
    nodes = {name for name in NAMES["nodes"] if tables.node_record(name, None)}
    services = {name for name in NAMES["services"] if tables.service_record("default", name, None)}
    living = {record.name: record.addresses for record in records(tables) if record.deleted == inf}
    return {"nodes": nodes, "services": services} == cluster.names and living == cluster.living()


@pytest.mark.parametrize("seed", range(4))
async def test_the_tables_end_as_the_server_is(
    server: KubernetesStandIn, kubeconfig: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watch, "_PAGE_SIZES", (7, 13, 0))
    random = Random(seed)
    cluster = Cluster(server, random)
    changes: tuple[Callable[[], None], ...] = (cluster.put_pod,) * 6 + (cluster.delete_pod, cluster.put_or_delete_other)
    for _ in range(30):
        cluster.put_pod()
    with trio.fail_after(120):
        async with tables_of(kubeconfig) as tables:
            for _ in range(STEPS):
                random.choice(changes)()
                if random.random() < 0.15:
                    await disturb(server, random)
                for _ in range(random.randrange(4)):
                    await trio.lowlevel.checkpoint()

            await until(lambda: fits(tables, cluster), f"the tables fit, seed {seed}")
            assert tables.pods.keys == len({key for each in records(tables) for key in each.found_by()})
