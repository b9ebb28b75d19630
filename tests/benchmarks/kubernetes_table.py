"""What a cluster's Pods cost: ``python tests/benchmarks/kubernetes_table.py [PODS] [CHANGES]``.

Manifests as an API server sends them (3 KiB, with managed fields) go through the same code as in a watch: JSON,
record, store. First all Pods are listed; then Pods come and go, on addresses that are used again, a second of the
made-up clock for every 200 changes. Memory is the resident set, and what Python's own objects add up to.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from flowjoin.testing import RecordingContext, numbered_flows
from flowjoin_kubernetes._enricher import KubernetesEnricher
from flowjoin_kubernetes._records import PodRecord
from flowjoin_kubernetes._tables import ClusterTables, Table

NODES = 1000
WORKLOAD = 20  # Pods that share their labels
CHANGES_A_SECOND = 200
PADDING = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {f"f:field-{n}": {} for n in range(60)}}]


def manifest(number: int, address: int) -> dict[str, Any]:
    workload = number // WORKLOAD
    return {
        "metadata": {
            "name": f"service-{workload:05}-7d9f8b6c5d-{number:06x}",
            "namespace": f"team-{workload % 100}",
            "uid": str(uuid.UUID(int=number + (1 << 100))),
            "resourceVersion": str(number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "app.kubernetes.io/name": f"service-{workload:05}",
                "app.kubernetes.io/instance": f"service-{workload:05}",
                "pod-template-hash": f"{workload:010x}",
                "tier": "backend",
            },
            "managedFields": PADDING,
        },
        "spec": {"nodeName": f"node-{number % NODES}", "containers": [{"name": "c", "image": "registry/image:1"}]},
        "status": {"phase": "Running", "podIPs": [{"ip": address_text(address)}]},
    }


def address_text(number: int) -> str:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


class Clock:
    now = 1_800_000_000.0


def main(pods: int, changes: int) -> None:
    clock, context = Clock(), RecordingContext()
    tables = ClusterTables(300.0)
    counter = context.counter("changes", "changes")
    table: Table[PodRecord] = Table(PodRecord, tables.pods, wall=lambda: clock.now, changes=counter, unreadable=counter)
    example = json.dumps(manifest(1, 1))
    print(f"{pods:,} Pods, {changes:,} changes, {len(example):,} octets a manifest")
    gc.freeze()  # as flowjoin does at its start: what was imported is not walked again
    empty = resident()
    began = time.process_time()
    for number in range(pods):
        table.put(json.loads(json.dumps(manifest(number, number))))
    took = time.process_time() - began
    gc.collect()
    full = resident()
    print(
        f"listed: {(full - empty) / pods:,.0f} octets a Pod (resident), "
        f"{took / pods * 1e6:.0f} us a Pod with JSON both ways"
    )

    lines = [json.dumps(manifest(number, number)).encode() for number in range(1000)]
    began = time.process_time()
    for line in lines:
        json.loads(line)
    parsed = time.process_time() - began
    manifests = [json.loads(line) for line in lines]
    began = time.process_time()
    for each in manifests:
        tables.pods.put(PodRecord.of(each, clock.now))
    print(f"a change: {parsed * 1e3:.0f} us to parse, {(time.process_time() - began) * 1e3:.1f} us to store")

    del lines, manifests
    ask(tables, pods)
    enrich(tables, pods)

    print("churn: Pods come and go on addresses used again")
    living = list(range(pods))
    number = pods
    for done in range(changes):
        place = done % pods
        gone = living[place]
        table.delete({"metadata": {"uid": str(uuid.UUID(int=gone + (1 << 100)))}})
        table.put(manifest(number, place))
        living[place] = number
        number += 1
        if done % CHANGES_A_SECOND == 0:
            clock.now += 1.0
            while tables.pods.purge(clock.now, 1000):
                pass
        if (done + 1) % max(1, changes // 10) == 0:
            print(
                f"  {done + 1:>9,} changes: {resident() / 2**20:,.0f} MiB, {len(tables.pods):,} held, "
                f"{tables.pods.deleted_held:,} of them deleted, {tables.pods.forgotten_early} forgotten early"
            )
    ask(tables, pods)
    enrich(tables, pods)
    gc.collect()
    began = time.process_time()
    gc.collect()
    print(f"one full garbage collection: {(time.process_time() - began) * 1e3:.0f} ms")


def ask(tables: ClusterTables, pods: int) -> None:
    addresses = [address_text(number * 7919 % pods) for number in range(200_000)]
    began = time.process_time()
    for address in addresses:
        tables.pod_record(address, 1_800_000_500.0)
    took = time.process_time() - began
    print(f"look-ups by address and time: {len(addresses) / took / 1e6:.1f} M/s")


def enrich(tables: ClusterTables, pods: int) -> None:
    batch = numbered_flows(4096)
    batch = batch.with_columns(
        {
            "sourceIPv4Address": [address_text(number * 31 % pods) for number in range(4096)],
            "destinationIPv4Address": [address_text(number % 200) for number in range(4096)],
            "flowType": [2] * 4096,
            **{f"{side}Pod{what}": [""] * 4096 for side in ("source", "destination") for what in ("Name", "Namespace")},
        }
    )
    enricher = KubernetesEnricher(tables, RecordingContext(wants_pod_labels=True))
    times = []
    for _ in range(7):
        began = time.process_time()
        enricher.enrich(batch)
        times.append(time.process_time() - began)
    median = sorted(times)[3]
    print(
        f"a batch of 4,096 rows, 4,096 and 200 distinct addresses: {median * 1e3:.1f} ms, "
        f"{4096 / median / 1e3:,.0f} k rows/s"
    )


if __name__ == "__main__":
    main(
        *(int(argument.replace("_", "")) for argument in (sys.argv[1:] + ["100_000", "1_000_000"][len(sys.argv) - 1 :]))
    )
