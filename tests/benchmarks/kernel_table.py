"""The kernel's speed and size in one table: ``python tests/benchmarks/kernel_table.py``.

Each figure is the median of several runs, each in a process of its own; CPU time, not the clock's. Records are
those of the newest agent's Template: 43 elements, 17 strings. ``--flows`` adds a larger table, ``--form`` takes
one form only.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import resource
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from hand_made import AGENT, AGENT_IPV6, FIELDS, Record, data_set, message, template_set
from kernel_harness import session
from one_table import Figure, show

from flowjoin._kernel import Kernel, KernelLimits, create_kernel
from flowjoin._kernel.python_kernel import DUE_ROWS
from flowjoin._model.schemas import build_schemas
from flowjoin._preprocessor.compile_plan import PlanCompiler
from flowjoin.wire import Decoder, default_registry

SESSION = session(protocol="tcp")
STARTED = 1_700_000_000
PODS, NAMESPACES, SERVICES = 2_500, 30, 300
WAKE_UP = 64  # Messages handed over in one call
PIECE = 15  # of 20 records: about 64 KiB, what a collector hands over at most
LONE = 20_000
DECODE = "decode, records/s"


class Traffic:
    """Records of an agent, patched into Messages that were made once."""

    def __init__(self, *, is_ipv6: bool, per_message: int) -> None:
        self.names = AGENT_IPV6 if is_ipv6 else AGENT
        self.per_message = per_message
        self._variants = [[self._record(pod, half) for half in range(2)] for pod in range(PODS)]
        at = 0
        self.at: dict[str, int] = {}  # of the leading fields
        for name in self.names:
            if FIELDS[name][2] == 0:
                break  # from here on nothing has a place of its own
            self.at[name] = at
            at += FIELDS[name][2]
        self._source = f"sourceIPv{6 if is_ipv6 else 4}Address"
        self._octets = 16 if is_ipv6 else 4
        self._sequence = 0

    def _record(self, pod: int, half: int) -> bytes:
        namespace = f"namespace-{pod % NAMESPACES}"
        record: Record = {
            "flowStartSeconds": STARTED,
            "flowEndReason": 2,
            "protocolIdentifier": 6,
            "sourceNodeName": f"k8s-node-worker-{pod % 100}",
            "destinationServicePort": 80,
            "destinationServicePortName": f"{namespace}/service-{pod % SERVICES}:http",
            "egressNetworkPolicyName": f"allow-egress-{pod % 150}",
            "egressNetworkPolicyNamespace": namespace,
            "egressNetworkPolicyType": 1,
            "egressNetworkPolicyRuleAction": 1,
            "tcpState": "ESTABLISHED",
            "flowType": 2,
            "destinationClusterIPv4": "10.96.1.1",
            "destinationClusterIPv6": "2001:db8::9",
            "sourceIPv4Address": "10.0.0.1",
            "destinationIPv4Address": "10.10.1.7",
            "sourceIPv6Address": "2001:db8::1",
            "destinationIPv6Address": "2001:db8::7",
        }
        side = "destination" if half else "source"
        record |= {
            f"{side}PodName": f"deployment-{pod}-7d9f{pod % 97:02x}-{pod % 89:05d}",
            f"{side}PodNamespace": namespace,
        }
        return data_set(self.names, record)[4:]

    def messages(self, first: int, last: int, end: int, halves: tuple[int, ...]) -> Iterator[bytes]:
        """Records of flows from ``first`` up to ``last``, of each half, that end at ``end``."""
        return self._cut(self.patched(flow, half, end) for flow in range(first, last) for half in halves)

    def repeated(self, count: int, end: int) -> Iterator[bytes]:
        """So many records of the first flow, that end at ``end``."""
        return self._cut(itertools.repeat(self.patched(0, 0, end), count))

    def patched(self, flow: int, half: int, end: int) -> bytes:
        """A record of a flow that ends at ``end``."""
        record = bytearray(self._variants[flow % PODS][half])
        struct.pack_into(">I", record, self.at["flowEndSeconds"], STARTED + end)
        struct.pack_into(">H", record, self.at["sourceTransportPort"], flow & 0xFFFF)
        struct.pack_into(">I", record, self.at[self._source] + self._octets - 4, 0x0A000000 + (flow >> 16))
        for name in ("octetTotalCount", "packetTotalCount", "octetDeltaCount", "packetDeltaCount"):
            struct.pack_into(">Q", record, self.at[name], 1_000 + 10 * end)
        return bytes(record)

    def _cut(self, records: Iterator[bytes]) -> Iterator[bytes]:
        while octets := list(itertools.islice(records, self.per_message)):
            yield self._message(octets)

    def _message(self, records: list[bytes]) -> bytes:
        body = b"".join(records)
        made = message(struct.pack(">HH", 256, 4 + len(body)) + body, sequence=self._sequence)
        self._sequence += len(records)
        return made


def kernel_with_template(form: str, traffic: Traffic, *, is_proxy: bool = False) -> Kernel:
    registry = default_registry()
    schemas = build_schemas(registry)
    kernel = create_kernel(
        decoder=Decoder(registry),
        compile_plan=PlanCompiler(registry, schemas, is_proxy=is_proxy),
        schemas=schemas,
        limits=KernelLimits(flows=4_000_000),
        is_proxy=is_proxy,
        form=form,
    )
    kernel.ingest([message(template_set(traffic.names))], [SESSION], 0.0)
    return kernel


def feed(kernel: Kernel, messages: Iterator[bytes], at_once: int = WAKE_UP) -> tuple[float, float]:
    """CPU seconds in ``ingest``, and in its longest call."""
    spent = longest = 0.0
    while wake_up := list(itertools.islice(messages, at_once)):
        sessions = [SESSION] * len(wake_up)
        began = time.thread_time()
        kernel.ingest(wake_up, sessions, 0.0)
        took = time.thread_time() - began
        longest = max(longest, took)
        spent += took
    return spent, longest


def resident() -> int:
    """Octets of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def speed(form: str, flows: int, per_message: int) -> dict[str, float]:
    traffic = Traffic(is_ipv6=False, per_message=per_message)
    kernel = kernel_with_template(form, traffic)
    created, _ = feed(kernel, traffic.messages(0, flows, 10, (0,)))
    joined, _ = feed(kernel, traffic.messages(0, flows, 10, (1,)))
    updates = []
    for end in (20, 30):
        spent, _ = feed(kernel, traffic.messages(0, flows, end, (0, 1)))
        updates.append(2 * flows / spent)
    began, rows = time.thread_time(), 0
    while (due := kernel.next_expiry()) is not None and due <= 0.0:
        rows += sum(map(len, kernel.expire(0.0, kernel.flows_per_slice)))
    expiry = rows / (time.thread_time() - began)
    lone = [[octets] for octets in traffic.messages(0, LONE, 40, (0,))]
    sessions = [SESSION]
    began = time.process_time()
    for one in lone:
        kernel.ingest(one, sessions, 0.0)
    lone_seconds = (time.process_time() - began) / LONE
    return {
        "new flows, records/s": flows / created,
        "other halves, records/s": flows / joined,
        "known flows, records/s": statistics.median(updates),
        "expiry to batches, rows/s": expiry,
        **({"lone record, µs": 1e6 * lone_seconds} if per_message == 1 else {}),
    }


def decode(form: str, per_message: int) -> dict[str, float]:
    """Records of one known flow, none of them newer than it is: read and looked up, never merged or stored."""
    traffic = Traffic(is_ipv6=False, per_message=per_message)
    kernel = kernel_with_template(form, traffic)
    records = 120_000 if form == "compiled" else 6_000
    feed(kernel, traffic.messages(0, 1, 20, (0, 1)))
    spent, _ = feed(kernel, traffic.repeated(records, 10))
    assert kernel.statistics().records_older == records
    return {DECODE: records / spent}


def proxy(form: str, per_message: int) -> dict[str, float]:
    """Proxy mode: from Messages to batches."""
    traffic = Traffic(is_ipv6=False, per_message=per_message)
    kernel = kernel_with_template(form, traffic, is_proxy=True)
    records = 120_000 if form == "compiled" else 12_000
    messages = traffic.messages(0, records, 10, (0,))
    spent, rows = 0.0, 0
    while rows < records:
        spent += feed(kernel, itertools.islice(messages, DUE_ROWS // per_message))[0]
        began = time.thread_time()
        while (due := kernel.next_expiry()) is not None and due <= 0.0:
            rows += sum(map(len, kernel.expire(0.0, kernel.flows_per_slice)))
        spent += time.thread_time() - began
    return {"Proxy mode, Messages to batches, records/s": records / spent}


def decode_by_ipfix(per_message: int) -> dict[str, float]:
    """The same records by PyPI's ``ipfix``, into a dict each; nothing without it."""
    try:
        import ipfix.ie
        import ipfix.reader
    except ImportError:
        return {}
    traffic = Traffic(is_ipv6=False, per_message=per_message)
    stream = b"".join([message(template_set(traffic.names)), *traffic.repeated(6_000, 10)])
    ipfix.ie.use_iana_default()
    reader = ipfix.reader.from_stream(io.BytesIO(stream))
    began = time.process_time()
    records = sum(1 for _ in reader.namedict_iterator())
    return {DECODE: records / (time.process_time() - began)}


def size(form: str, flows: int, is_ipv6: bool) -> dict[str, float]:
    traffic = Traffic(is_ipv6=is_ipv6, per_message=20)
    kernel = kernel_with_template(form, traffic)
    feed(kernel, traffic.messages(0, 1, 10, (0,)))
    before = resident()
    _, longest_ingest = feed(kernel, traffic.messages(1, flows, 10, (0,)), PIECE)
    held = (resident() - before) / flows
    feed(kernel, traffic.messages(0, flows, 10, (1,)))
    longest_expire = 0.0
    while (due := kernel.next_expiry()) is not None and due <= 0.0:
        began = time.thread_time()
        kernel.expire(0.0, kernel.flows_per_slice)
        longest_expire = max(longest_expire, time.thread_time() - began)
    return {
        "octets a flow": held,
        "longest ingest of 64 KiB while they come, ms": 1e3 * longest_ingest,
        "longest expire of a slice, ms": 1e3 * longest_expire,
    }


def measured(runs: int, name: str, *arguments: object) -> dict[str, float]:
    """The medians of a measurement, each run in its own process."""
    found: dict[str, list[float]] = {}
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, __file__, "--one", name, json.dumps(arguments)], check=True, capture_output=True, text=True
        )
        for figure, value in json.loads(done.stdout).items():
            found.setdefault(figure, []).append(value)
    return {figure: statistics.median(values) for figure, values in found.items()}


MEASUREMENTS: dict[str, Callable[..., dict[str, float]]] = {
    "speed": speed,
    "size": size,
    "decode": decode,
    "decode_by_ipfix": decode_by_ipfix,
    "proxy": proxy,
}
PROGRAMS = {"compiled": "flowjoin", "python": "flowjoin, plain"}


def figures(runs: int, forms: Sequence[str], large: int) -> Iterator[Figure]:
    """All of them, as they are found."""
    for per_message in (1, 8, 60):
        messages = f"{per_message} record{'s' * (per_message > 1)} a Message"
        for form in forms:
            flows = 50_000 if form == "compiled" else 5_000
            for name, value in measured(runs, "decode", form, per_message).items():
                yield Figure(messages, name, PROGRAMS[form], value)
            for name, value in measured(runs, "speed", form, flows, per_message).items():
                yield Figure(messages, name, PROGRAMS[form], value)
            for name, value in measured(runs, "proxy", form, per_message).items():
                yield Figure(messages, name, PROGRAMS[form], value)
        for name, value in measured(runs, "decode_by_ipfix", per_message).items():
            yield Figure(messages, name, "PyPI ipfix", value)
    for form in forms:
        for flows in (100_000, large) if form == "compiled" else (20_000,):
            for is_ipv6 in (False, True):
                for name, value in measured(min(runs, 3), "size", form, flows, is_ipv6).items():
                    yield Figure(f"{flows:,} IPv{6 if is_ipv6 else 4} flows", name, PROGRAMS[form], value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--form", action="append", choices=list(PROGRAMS))
    parser.add_argument("--flows", type=int, default=1_000_000, help="of the large table (compiled form only)")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(MEASUREMENTS[given.one[0]](*json.loads(given.one[1]))))
        return
    show(figures(given.runs, given.form or list(PROGRAMS), given.flows))


if __name__ == "__main__":
    main()
