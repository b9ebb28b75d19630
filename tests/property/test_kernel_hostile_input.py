"""Whatever a peer sends, the kernel does not raise, its books balance, and its batches can be made."""

from __future__ import annotations

import struct

from hand_made import AGENT, D1, S1, data_set, message, template_set
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_harness import Harness, session

from flowjoin._kernel import KernelLimits
from flowjoin._model.flow_key import FlowFilter
from flowjoin._model.schemas import AGGREGATED_NAMES, PLAIN_NAMES
from flowjoin.wire import default_registry

REGISTRY = default_registry()
# one of every storage, rule and type
EXTRA = [
    "samplingProbability",
    "dataRecordsReliability",
    "observationTimeMicroseconds",
    "observationTimeNanoseconds",
    "mplsTopLabelStackSection",
    "interfaceName",
    "postOctetDeltaCount",
    "postOctetTotalCount",
    "bgpNextHopIPv6Address",
    "basicList",
    "minimumTTL",
    "staMacAddress",
    "ingressNetworkPolicyRulePriority",
    "absoluteError",
]
LIKELY = [
    *AGGREGATED_NAMES,
    *(name.replace("IPv4", "IPv6") for name in AGGREGATED_NAMES),
    *PLAIN_NAMES,
    *EXTRA,
    "flowStartNanoseconds",
    "flowEndMicroseconds",
    "flowStartSysUpTime",
    "systemInitTimeMilliseconds",
    "flowEndDeltaMicroseconds",
    "initiatorOctets",
]
FIELD = st.tuples(
    st.one_of(st.sampled_from(LIKELY), st.sampled_from([element.name for element in REGISTRY])),
    st.sampled_from([None, None, None, None, 0, 1, 2, 3, 4, 8, 16, 65535]),
)
LIMITS = KernelLimits(flows=3, string_octets=200, active_timeout=5.0, idle_timeout=7.0)


def field_specifier(name: str, length: int | None) -> bytes:
    element = REGISTRY.by_name(name)
    sent = element.length if length is None else length
    if element.enterprise_number:
        return struct.pack(">HHI", element.element_id | 0x8000, sent, element.enterprise_number)
    return struct.pack(">HH", element.element_id, sent)


def a_set(set_id: int, body: bytes) -> bytes:
    return struct.pack(">HH", set_id, 4 + len(body)) + body


def exercise(harness: Harness, octets: list[bytes]) -> None:
    for sent in octets:
        harness.kernel.ingest([sent], [session()], harness.now)
        harness.now += 1.0
        harness.statistics  # noqa: B018 - looking at it checks the books
    rows = 0
    for _ in range(6):
        harness.now += 3.0
        for batch in harness.expire():
            rows += len(batch)
            assert len(batch.to_dicts()) == len(batch)
            batch.take(range(len(batch)))
    for batch in harness.kernel.scan(FlowFilter(), 0, 100)[0]:
        assert batch.to_dicts()
    assert harness.statistics.rows == rows


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    is_proxy=st.booleans(),
    is_antrea=st.booleans(),
    templates=st.lists(st.lists(FIELD, min_size=1, max_size=25), min_size=1, max_size=3),
    bodies=st.lists(st.one_of(st.binary(min_size=1, max_size=400), st.sampled_from([bytes(300), b"\xff" * 300]))),
)
def test_any_template_and_any_octets_are_taken(
    is_proxy: bool, is_antrea: bool, templates: list[list[tuple[str, int | None]]], bodies: list[bytes]
) -> None:
    harness = Harness(limits=LIMITS, extra=EXTRA, is_proxy=is_proxy)
    octets = []
    for fields in templates:
        known = [("flowType", None), ("flowStartSeconds", None), ("flowEndSeconds", None)] if is_antrea else []
        known += [("sourceIPv4Address", None), ("destinationIPv4Address", None)] if len(fields) % 2 else []
        specified = [field_specifier(name, length) for name, length in (*fields, *known)]
        template = struct.pack(">HH", 256, len(specified)) + b"".join(specified)
        octets += [message(a_set(2, template), a_set(256, body)) for body in bodies]
    exercise(harness, octets)


@settings(max_examples=100, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), max_size=8),
    cut=st.integers(0, 3_000),
    is_proxy=st.booleans(),
)
def test_damaged_messages_of_agents_are_taken(changes: list[tuple[int, int]], cut: int, is_proxy: bool) -> None:
    good = message(template_set(AGENT), data_set(AGENT, S1, D1))
    damaged = bytearray(good)
    for at, octet in changes:
        damaged[at % len(damaged)] = octet
    exercise(Harness(limits=LIMITS, is_proxy=is_proxy), [good, bytes(damaged[:cut]), bytes(damaged), good])
