"""Any history of records, clocks and limits: the kernel and a naive table tell the same, and the books balance."""

from __future__ import annotations

from typing import Any

from compiled_kernel import require_compiled_kernel
from hand_made import AGENT, AGENT_IPV6, Record
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kernel_harness import Harness
from naive_flows import NaiveTable

from flowjoin._kernel import KernelLimits
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter
from flowjoin._model.flow_schema import FlowOrigin

LIMITS = KernelLimits(flows=4, active_timeout=6.0, idle_timeout=9.0, string_octets=1_000)
ALL = FlowFilter()
EXPORTED = 1_700_000_000
TOLD = [
    "octetTotalCount",
    "octetDeltaCount",
    "sourcePodName",
    "destinationPodName",
    "flowType",
    "throughput",
    "octetTotalCountFromSourceNode",
    "octetTotalCountFromDestinationNode",
    "octetDeltaCountFromSourceNode",
    "octetDeltaCountFromDestinationNode",
]

POD = st.sampled_from(["", "pod"])
PORT = st.integers(0, 1)
FAMILY = st.sampled_from([4, 6])
ADDRESS = {4: "10.0.0.{}", 6: "2001:db8::{}"}


def shown(batch: FlowBatch, is_enriched: bool) -> list[dict[str, Any]]:
    rows = []
    for row in batch.to_dicts():
        family = batch.schema.family.value
        told: dict[str, Any] = {"origin": batch.schema.origin.value}
        told["shown"] = (row[f"sourceIPv{family}Address"], row["sourceTransportPort"])
        told |= {name: row[name] for name in TOLD if name in row}
        if is_enriched and batch.schema.origin is FlowOrigin.AGGREGATED:
            assert row["egressName"] in ("", "enriched")
        rows.append(told)
    return rows


class Histories(RuleBasedStateMachine):
    is_enriched = False

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness(limits=LIMITS, is_enriched=self.is_enriched)
        self.naive = NaiveTable(LIMITS.flows, LIMITS.active_timeout, LIMITS.idle_timeout)
        self.given: list[FlowBatch] = []

    @rule(
        family=FAMILY,
        port=PORT,
        flow_type=st.sampled_from([1, 2, 2, 2, 2, 3, 4]),
        pods=st.sampled_from([("pod1", ""), ("pod1", ""), ("", "pod2"), ("", "pod2"), ("pod1", "pod2"), ("", "")]),
        actions=st.sampled_from([(0, 0), (0, 0), (0, 0), (2, 0), (3, 0), (0, 2), (1, 1)]),
        is_forwarded=st.booleans(),
        times=st.tuples(st.integers(0, 2), st.integers(0, 5)),
        counters=st.tuples(st.integers(0, 5_000), st.integers(0, 500)),
    )
    def an_agent_sends(
        self,
        family: int,
        port: int,
        flow_type: int,
        pods: tuple[str, str],
        actions: tuple[int, int],
        is_forwarded: bool,
        times: tuple[int, int],
        counters: tuple[int, int],
    ) -> None:
        address = ADDRESS[family]
        # a forwarded connection meets the flows of the others at 10.0.0.1, but comes from outside
        is_outer = flow_type == 4 and is_forwarded
        source = address.format(99 if is_outer else 1)
        record: Record = {
            f"sourceIPv{family}Address": source,
            f"destinationIPv{family}Address": address.format(2),
            "sourceTransportPort": port + 100 if is_outer else port,
            "destinationTransportPort": 80,
            "protocolIdentifier": 6,
            "flowType": flow_type,
            "sourcePodName": pods[0],
            "destinationPodName": pods[1],
            "ingressNetworkPolicyRuleAction": actions[0],
            "egressNetworkPolicyRuleAction": actions[1],
            "flowStartSeconds": times[0],
            "flowEndSeconds": times[1],
            "octetTotalCount": counters[0],
            "octetDeltaCount": counters[1],
        }
        if is_outer:
            record |= {f"proxySnatIPv{family}": address.format(1), "proxySnatPort": port}
        self.harness.send(record, names=AGENT if family == 4 else AGENT_IPV6)
        self.naive.antrea(
            {
                "family": family,
                "source": source,
                "sourcePort": record["sourceTransportPort"],
                "destinationPort": 80,
                "flowType": flow_type,
                "sourcePodName": pods[0],
                "destinationPodName": pods[1],
                "ingress": actions[0],
                "egress": actions[1],
                "snat": (address.format(1), port) if is_outer else None,
                "start": times[0],
                "end": times[1],
                "total": counters[0],
                "delta": counters[1],
            },
            self.harness.now,
        )

    @rule(
        family=FAMILY,
        port=PORT,
        peer=st.sampled_from(["192.0.2.1", "192.0.2.2"]),
        domain=st.integers(1, 2),
        end=st.integers(1, 5),
        has=st.sampled_from(["delta", "total", "both"]),
        counters=st.tuples(st.integers(0, 5_000), st.integers(0, 500)),
    )
    def an_exporter_sends(
        self, family: int, port: int, peer: str, domain: int, end: int, has: str, counters: tuple[int, int]
    ) -> None:
        source, destination = f"sourceIPv{family}Address", f"destinationIPv{family}Address"
        names = [source, destination, "sourceTransportPort", "protocolIdentifier", "flowEndSeconds"]
        names += ["octetDeltaCount"] * (has != "total") + ["octetTotalCount"] * (has != "delta")
        record: Record = {
            source: ADDRESS[family].format(1),
            destination: ADDRESS[family].format(2),
            "sourceTransportPort": port,
            "protocolIdentifier": 17,
            "flowEndSeconds": EXPORTED - 100 + end,
            "octetTotalCount": counters[0],
            "octetDeltaCount": counters[1],
        }
        self.harness.send(record, names=names, peer=peer, domain=domain)
        self.naive.plain(
            {
                "family": family,
                "source": record[source],
                "sourcePort": port,
                "peer": peer,
                "domain": domain,
                "end": end,
                "has": has,
                "total": counters[0],
                "delta": counters[1],
            },
            self.harness.now,
        )

    @rule(seconds=st.sampled_from([0.0, 1.0, 6.0, 9.0]))
    def time_passes(self, seconds: float) -> None:
        self.harness.now += seconds

    @rule(limit=st.sampled_from([1, 2, 100]))
    def what_is_due_leaves(self, limit: int) -> None:
        batches = self.harness.expire(limit=limit)
        expected = self.naive.expire(self.harness.now, limit)
        given = [row for batch in batches for row in shown(batch, self.is_enriched)]
        if len(batches) == 1:
            assert given == expected
        assert sorted(map(repr, map(sorted_items, given))) == sorted(map(repr, map(sorted_items, expected)))
        self.given = [*self.given, *batches][-3:]

    @precondition(lambda self: self.is_enriched and self.given)
    @rule(at=st.integers(0, 2))
    def an_enricher_answers(self, at: int) -> None:
        batch = self.given[at % len(self.given)]
        if batch.is_first_export and batch.schema.origin is FlowOrigin.AGGREGATED:
            self.harness.kernel.store_enriched(batch, {"egressName": ["enriched"] * len(batch)})

    @invariant()
    def the_books_balance_and_agree(self) -> None:
        statistics = self.harness.statistics  # checks the books
        counts = self.naive.counts
        assert statistics.flows_held == len(self.naive.flows)
        assert statistics.flows_waiting == sum(not flow.ready for flow in self.naive.flows.values())
        assert statistics.flows_created == counts["created"]
        assert statistics.records_merged == counts["merged"]
        assert statistics.records_older == counts["older"]
        assert statistics.flows_given_up == counts["given_up"]
        assert statistics.flows_exported_last == counts["exported_last"]
        assert statistics.flows_evicted == counts["evicted"]
        assert statistics.counters_clamped == counts["clamped"]
        assert statistics.rows == counts["rows"]

    @invariant()
    def the_next_deadline_agrees(self) -> None:
        if self.naive.departed:
            next_expiry = self.harness.kernel.next_expiry()
            assert next_expiry is not None
            assert next_expiry <= self.harness.now
        else:
            assert self.harness.kernel.next_expiry() == self.naive.next_expiry(self.harness.now)

    @invariant()
    def the_stored_flows_agree(self) -> None:
        expected = sorted(repr(sorted_items(self.naive.row(flow))) for flow in self.naive.flows.values())
        batches, _ = self.harness.kernel.scan(ALL, 0, 100)
        given = [row for batch in batches for row in shown(batch, self.is_enriched)]
        assert sorted(repr(sorted_items(row)) for row in given) == expected


class EnrichedHistories(Histories):
    is_enriched = True


class RestartedHistories(Histories):
    """The naive table knows of no restart."""

    def __init__(self) -> None:
        require_compiled_kernel()
        super().__init__()

    @precondition(lambda self: not self.naive.departed)
    @rule(form=st.sampled_from(["python", "compiled"]), clock=st.sampled_from([0.0, 0.0, 64.0, -32.0]))
    def the_process_is_another(self, form: str, clock: float) -> None:
        self.harness.restart(form, now=self.harness.now + clock)
        self.naive.shift(clock)
        self.given = []


class EnrichedRestartedHistories(RestartedHistories):
    is_enriched = True


def sorted_items(row: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(row.items())


_SETTINGS = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestHistories = Histories.TestCase
TestHistories.settings = _SETTINGS
TestEnrichedHistories = EnrichedHistories.TestCase
TestEnrichedHistories.settings = _SETTINGS
TestRestartedHistories = RestartedHistories.TestCase
TestRestartedHistories.settings = _SETTINGS
TestEnrichedRestartedHistories = EnrichedRestartedHistories.TestCase
TestEnrichedRestartedHistories.settings = _SETTINGS
