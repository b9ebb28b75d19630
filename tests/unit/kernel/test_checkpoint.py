from __future__ import annotations

from typing import Any

import pytest
from hand_made import AGENT, Record
from kernel_harness import Harness

from flowjoin._kernel import KernelLimits
from flowjoin._kernel.interface import KeepsFlows
from flowjoin._model.information_element import DataType, ElementId, EnterpriseNumber, InformationElement, MergeRule

pytestmark = pytest.mark.usefixtures("kernel_form")

NEW_SUM = InformationElement(
    name="newSum",
    element_id=ElementId(7),
    enterprise_number=EnterpriseNumber(32473),
    data_type=DataType.UNSIGNED32,
    merge_rule=MergeRule.SUM,
)
TOTALS = ["sourceIPv4Address", "destinationIPv4Address", "protocolIdentifier", "octetTotalCount"]
PLAIN: Record = {"sourceIPv4Address": "10.0.0.1", "destinationIPv4Address": "10.0.0.2", "protocolIdentifier": 6}


def half(side: str, *, end: int = 10, delta: int = 100, total: int = 100, **others: int | str | bytes) -> Record:
    return {
        "sourceIPv4Address": "10.0.0.1",
        "destinationIPv4Address": "10.0.0.2",
        "sourceTransportPort": 1,
        "destinationTransportPort": 80,
        "protocolIdentifier": 6,
        "flowType": 2,
        "flowStartSeconds": 1,
        "flowEndSeconds": end,
        "octetDeltaCount": delta,
        "octetTotalCount": total,
        "sourcePodName": "client" if side == "source" else "",
        "destinationPodName": "server" if side == "destination" else "",
        **others,
    }


def flushed(harness: Harness) -> list[dict[str, Any]]:
    assert isinstance(harness.kernel, KeepsFlows)
    batches, cursor = harness.kernel.flush(0, 1000)
    assert cursor is None
    return [row for batch in batches for row in batch.to_dicts()]


def test_a_half_survives_and_is_joined_with_the_other_that_comes_later() -> None:
    harness = Harness()
    harness.send(half("source"))
    harness.restart(now=5000.0)
    assert harness.statistics.flows_waiting == 1
    harness.send(half("destination", end=11, delta=7, total=107))
    (row,) = harness.rows()
    assert (row["sourcePodName"], row["destinationPodName"]) == ("client", "server")
    assert row["octetDeltaCountFromSourceNode"] == 100
    assert row["octetDeltaCountFromDestinationNode"] == 7


def test_what_is_flushed_stays_with_its_totals_and_begins_with_deltas_of_0() -> None:
    harness = Harness()
    harness.send(half("source", flowType=1))
    assert [row["octetDeltaCount"] for row in flushed(harness)] == [100]
    assert flushed(harness) == []
    harness.restart()
    harness.send(half("source", flowType=1, end=12, delta=11, total=111))
    (row,) = flushed(harness)
    assert (row["octetDeltaCount"], row["octetTotalCount"]) == (11, 111)


def test_halves_that_wait_are_not_flushed() -> None:
    harness = Harness()
    harness.send(half("source"))
    assert flushed(harness) == []
    assert harness.statistics.flows_waiting == 1


def test_after_a_kill_deltas_are_0_and_totals_are_kept() -> None:
    harness = Harness(elements=[NEW_SUM], extra=["newSum", "postOctetDeltaCount"])
    harness.send(half("source", flowType=1), names=AGENT)
    harness.send({**half("source"), "sourceTransportPort": 2})
    harness.restart(is_continued=False)
    for row in harness.stored():
        assert (row["octetDeltaCount"], row["octetTotalCount"], row["throughput"]) == (0, 100, 0)
        assert row["octetDeltaCountFromSourceNode"] == 0
    assert harness.rows() == []  # nothing new is known


def test_after_a_kill_what_a_total_grew_by_since_the_flow_was_kept_is_no_delta() -> None:
    harness = Harness()
    harness.send({**PLAIN, "octetTotalCount": 1000}, names=TOTALS)
    harness.restart(is_continued=False)
    # 500 of them may have been exported before the kill
    harness.send({**PLAIN, "octetTotalCount": 1500}, names=TOTALS)
    (row,) = harness.rows()
    assert (row["octetDeltaCount"], row["octetTotalCount"]) == (0, 1500)
    harness.send({**PLAIN, "octetTotalCount": 1700}, names=TOTALS)
    (row,) = harness.rows(now=harness.limits.active_timeout)
    assert (row["octetDeltaCount"], row["octetTotalCount"]) == (200, 1700)


def test_after_a_kill_a_delta_that_is_told_counts_at_once() -> None:
    names = [*TOTALS, "octetDeltaCount"]
    harness = Harness()
    harness.send({**PLAIN, "octetTotalCount": 1000, "octetDeltaCount": 1000}, names=names)
    harness.restart(is_continued=False)
    harness.send({**PLAIN, "octetTotalCount": 1500, "octetDeltaCount": 50}, names=names)
    (row,) = harness.rows()
    assert (row["octetDeltaCount"], row["octetTotalCount"]) == (50, 1500)


def test_after_an_orderly_stop_a_total_goes_on_to_tell_the_delta() -> None:
    harness = Harness()
    harness.send({**PLAIN, "octetTotalCount": 1000}, names=TOTALS)
    flushed(harness)
    harness.restart()
    harness.send({**PLAIN, "octetTotalCount": 1500}, names=TOTALS)
    assert [row["octetDeltaCount"] for row in harness.rows()] == [500]


def test_a_flow_leaves_when_it_would_have_left_by_another_clock() -> None:
    harness = Harness(limits=KernelLimits(active_timeout=60.0, idle_timeout=90.0))
    harness.now = 1000.0
    harness.send(half("source", flowType=1))
    harness.expire()
    harness.now = 1030.0
    harness.restart(now=3.0)
    assert harness.kernel.next_expiry() == 3.0 + 30.0
    harness.expire(now=3.0 + 60.0)
    assert harness.statistics.flows_held == 0


def test_flows_beyond_the_limit_and_keys_that_are_there_are_not_stored_and_counted() -> None:
    harness = Harness()
    for port in range(3):
        harness.send(half("source", sourceTransportPort=port))
    blocks = harness.dumped(limit=1)
    small = Harness(limits=KernelLimits(flows=2))
    assert isinstance(small.kernel, KeepsFlows)
    outcomes = [small.kernel.restore(block, 0.0, is_continued=True) for block in (*blocks[:1], *blocks)]
    assert outcomes == [(1, 0), (0, 1), (1, 0), (0, 1)]
    assert small.statistics.flows_restored == 2


def test_what_flows_consist_of_tells_other_elements() -> None:
    one, other = Harness().kernel, Harness(elements=[NEW_SUM], extra=["newSum"]).kernel
    assert isinstance(one, KeepsFlows)
    assert isinstance(other, KeepsFlows)
    assert one.kept_layout != other.kept_layout
    assert [group[0] for group in one.kept_layout] == [
        "aggregated IPv4",
        "aggregated IPv6",
        "plain IPv4",
        "plain IPv6",
    ]
    (added,) = {line for group in other.kept_layout for line in group if line.startswith("newSum 32473")}
    assert added == "newSum 32473/7 I sum"


@pytest.mark.parametrize("octets", [b"", b"\0" * 11, b"\1" + b"\0" * 11, b"\0" * 8 + b"\1\0\0\0", b"\0" * 13])
def test_octets_that_are_no_block_are_refused(octets: bytes) -> None:
    kernel = Harness().kernel
    assert isinstance(kernel, KeepsFlows)
    with pytest.raises(ValueError, match=r"block|unpack"):
        kernel.restore(octets, 0.0, is_continued=True)


@pytest.mark.parametrize(("at", "octet"), [(0, 4), (1, 16), (2, 3)], ids=["layout", "flags", "retries"])
def test_a_flow_that_no_kernel_writes_is_refused(at: int, octet: int) -> None:
    harness = Harness()
    harness.send(half("source"))
    (block,) = harness.dumped()
    damaged = bytearray(block)
    first_flow = 12 + int.from_bytes(block[8:12], "little")  # behind the block's header and its strings
    damaged[first_flow + at] = octet
    assert isinstance(harness.kernel, KeepsFlows)
    with pytest.raises(ValueError, match="no flow at octet"):
        harness.kernel.restore(bytes(damaged), 0.0, is_continued=True)


def test_strings_are_written_once_a_block() -> None:
    harness = Harness()
    for port in range(100):
        harness.send(half("source", sourceTransportPort=port, sourcePodName="a-name-of-a-pod"))
    (block,) = harness.dumped(limit=1000)
    assert block.count(b"a-name-of-a-pod") == 1
