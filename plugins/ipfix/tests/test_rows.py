"""What rows become: Templates by their columns, JSON, and what is not sent."""

from __future__ import annotations

import json
import struct

from ipfix_exporting import Start, facts_of, numbers, opened, ports

from flowjoin.api import FlowBatch, FlowOrigin, FlowSchema
from flowjoin.testing import RecordingContext, numbered_flows, plain_flows, standard_flow
from flowjoin_ipfix import IpfixConfig
from flowjoin_ipfix._exporter import open_ipfix


async def test_counters_that_nobody_counted_are_zero_to_an_agents_collector_said_once_and_counted(start: Start) -> None:
    collector = await start()
    context = RecordingContext(name="ipfix")
    counted = numbered_flows(1).schema
    schema = FlowSchema(
        origin=FlowOrigin.SOURCE,
        family=counted.family,
        elements=tuple(element for element in counted.elements if not element.name.endswith("Count")),
        registry=counted.registry,
    )
    batch = FlowBatch.from_columns(schema, {"sourceTransportPort": [1, 2, 3]})
    async with opened(IpfixConfig(address=collector.address, template="agent"), context) as exporter:
        for _ in range(2):
            await exporter.export(batch)
        await collector.count()
    [session] = collector.sessions
    assert {record["packetTotalCount"] for record in session.records} == {0}
    assert context.counters["rows_uncounted"].value == 6
    assert context.events.count("counters_sent_as_zero") == 1


async def test_columns_that_come_while_connected_get_a_template_of_their_own(start: Start) -> None:
    """``recordContents.elements`` was changed, and changed back."""
    collector = await start()
    usual = numbered_flows(3)
    wider = numbered_flows(3, first=3).with_columns({"bgpSourceAsNumber": [64496, 64497, 64498]})
    async with opened(IpfixConfig(address=collector.address, include_extra_elements=True)) as exporter:
        for batch in (usual, wider, numbered_flows(2, first=6), wider):
            await exporter.export(batch)
        await collector.count()
    [session] = collector.sessions
    assert session.templates == [256, 257, 260]
    assert session.kinds["SequenceGap"] == 0
    assert ports(collector) == numbers(0, 8) + numbers(3, 3)
    assert [record.get("bgpSourceAsNumber") for record in session.records] == [
        *[None] * 3, 64496, 64497, 64498, None, None, 64496, 64497, 64498
    ]  # fmt: skip


async def test_the_observation_domain_is_configured_or_made_of_the_clusters_uuid(start: Start) -> None:
    collector = await start()
    context = RecordingContext(cluster_uuid="11111111-2222-4333-8444-555555555555")
    for number, expected in ((0xABCD, 0xABCD), (0, 0), (None, 289624949)):
        async with opened(IpfixConfig(address=collector.address, observation_domain_id=number), context) as exporter:
            await exporter.export(numbered_flows(1))
            await collector.count()
        assert {struct.unpack(">I", message[12:16])[0] for message in collector.sessions[-1].messages} == {expected}


async def test_json_is_one_object_a_line_with_sorted_keys(start: Start) -> None:
    collector = await start(is_json=True)
    batch = standard_flow(sourcePodLabels='{"a":"<&>\u2028"}')
    async with opened(IpfixConfig(address=collector.address, record_format="JSON")) as exporter:
        await exporter.export(batch)
        await exporter.export(plain_flows(1))
        await collector.count()
    joined, plain = collector.sessions[0].lines
    assert rb'"sourcePodLabels":"{\"a\":\"\u003c\u0026\u003e\u2028\"}"' in joined
    record = json.loads(joined)
    assert list(record) == ["@timestamp", "ipfix"]
    assert list(record["ipfix"]) == sorted(record["ipfix"])
    assert len(record["ipfix"]) == 70
    assert record["ipfix"]["octetTotalCount"] == 30472817041
    assert record["ipfix"]["flowEndSeconds"] == 1637706973
    assert record["ipfix"]["proxySnatIPv4"] == "10.10.3.10"
    assert json.loads(plain)["ipfix"]["ingressInterface"] == 2


async def test_json_uuids_are_written_as_people_write_them(start: Start) -> None:
    collector = await start(is_json=True, protocol="udp")
    config = IpfixConfig(address=collector.address, protocol="udp", record_format="JSON", include_k8s_uids=True)
    uuid = bytes.fromhex("11111111222243338444555555555555")
    async with opened(config) as exporter:
        await exporter.export(standard_flow().with_columns({"sourcePodUUID": [uuid]}))
        await collector.count()
    [line] = collector.sessions[0].lines
    record = json.loads(line)["ipfix"]
    assert record["sourcePodUUID"] == "11111111-2222-4333-8444-555555555555"
    assert record["egressUUID"] == "00000000-0000-0000-0000-000000000000"
    assert line.endswith(b"\n")


async def test_elements_that_are_not_sent_are_named_once(start: Start) -> None:
    collector = await start()
    context = RecordingContext()
    batch = numbered_flows(1).with_columns({"bgpSourceAsNumber": [64496]})
    async with opened(IpfixConfig(address=collector.address), context) as exporter:
        await exporter.export(batch)
        await exporter.export(batch)
    assert facts_of(context, "elements_not_sent")["elements"] == "bgpSourceAsNumber"


async def test_switches_that_change_nothing_are_told() -> None:
    context = RecordingContext(compatibility="antrea-2.3")
    async with open_ipfix(IpfixConfig(address="127.0.0.1", include_k8s_uids=True), context):
        pass
    assert "switches_without_effect" in context.events
