"""Records per CPU second of the kernel's plain-Python form: the newest agent's Template, one record a Message.

Run by name: ``pytest --benchmark-enable tests/benchmarks/test_kernel.py``; the figures are in the table's extra
columns, or run this file as a program for them alone.
"""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

from hand_made import AGENT, Record, data_set, message, template_set
from kernel_harness import Harness, session

FLOWS = 5_000
SESSION = session()
RECORD: Record = {
    "flowStartSeconds": 1_700_000_000,
    "flowEndReason": 2,
    "destinationTransportPort": 8080,
    "protocolIdentifier": 6,
    "packetTotalCount": 100,
    "octetTotalCount": 100_000,
    "packetDeltaCount": 10,
    "octetDeltaCount": 10_000,
    "destinationIPv4Address": "10.10.1.7",
    "reversePacketTotalCount": 90,
    "reverseOctetTotalCount": 90_000,
    "reversePacketDeltaCount": 9,
    "reverseOctetDeltaCount": 9_000,
    "sourcePodNamespace": "antrea-test",
    "sourceNodeName": "k8s-node-worker-1",
    "destinationServicePort": 80,
    "destinationServicePortName": "antrea-test/perftest:http",
    "egressNetworkPolicyName": "test-flow-aggregator-networkpolicy-egress-allow",
    "egressNetworkPolicyNamespace": "antrea-test",
    "egressNetworkPolicyType": 1,
    "egressNetworkPolicyRuleAction": 1,
    "tcpState": "ESTABLISHED",
    "flowType": 2,
    "destinationClusterIPv4": "10.96.1.1",
}


def round_of(end: int) -> list[bytes]:
    """A record of either half of every flow, each in its own Message."""
    messages = []
    for flow in range(FLOWS // 2):
        record = RECORD | {
            "sourceIPv4Address": struct.pack(">I", 0x0A0A0000 + flow % 2000),
            "sourceTransportPort": 10_000 + flow,
            "flowEndSeconds": 1_700_000_000 + end,
        }
        for pods in ({"sourcePodName": f"client-{flow % 500}"}, {"destinationPodName": f"server-{flow % 50}"}):
            messages.append(message(data_set(AGENT, record | pods)))
    return messages


def prepared() -> Harness:
    harness = Harness()
    harness.send_message(message(template_set(AGENT)))
    return harness


def ingest(harness: Harness, messages: list[bytes]) -> None:
    harness.kernel.ingest(messages, [SESSION] * len(messages), harness.now)


def _tell(benchmark: Any, name: str, amount: float) -> None:
    if benchmark.enabled:
        benchmark.extra_info[name] = round(amount / benchmark.stats.stats.median)


def test_records_of_new_flows(benchmark: Any) -> None:
    messages = round_of(10)
    benchmark.pedantic(ingest, setup=lambda: ((prepared(), messages), {}), rounds=5)
    _tell(benchmark, "records_per_second", len(messages))


def test_records_of_known_flows(benchmark: Any) -> None:
    harness = prepared()
    ingest(harness, round_of(1))
    ends = iter(range(10, 1000, 10))
    benchmark.pedantic(ingest, setup=lambda: ((harness, round_of(next(ends))), {}), rounds=5)
    _tell(benchmark, "records_per_second", FLOWS)


def test_rows_of_an_export(benchmark: Any) -> None:
    def ready() -> tuple[tuple[Harness], dict[str, Any]]:
        harness = prepared()
        ingest(harness, round_of(10))
        return (harness,), {}

    benchmark.pedantic(lambda harness: harness.kernel.expire(0.0, 1_000_000), setup=ready, rounds=5)
    _tell(benchmark, "rows_per_second", FLOWS / 2)


def _cpu(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


def main() -> None:
    """Print medians of five."""
    new, known, rows = [], [], []
    for _ in range(5):
        harness = prepared()
        new.append(FLOWS / _cpu(partial(ingest, harness, round_of(10))))
        known.append(FLOWS / _cpu(partial(ingest, harness, round_of(20))))
        rows.append(FLOWS / 2 / _cpu(partial(harness.kernel.expire, 0.0, 10**6)))
    for name, figures in (("new and joined flows", new), ("known flows", known), ("exported rows", rows)):
        print(f"{name}: {sorted(figures)[2]:,.0f} a CPU second")
    messages = round_of(1)
    tracemalloc.start()
    harness = prepared()
    ingest(harness, messages)
    print(f"octets a stored flow: {tracemalloc.get_traced_memory()[0] / (FLOWS // 2):,.0f}")


if __name__ == "__main__":
    main()
