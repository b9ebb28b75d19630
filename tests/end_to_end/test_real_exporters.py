"""Real exporting processes send to our Collecting Processes; real collectors read the same stream."""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import replace

import pytest
import trio
from mixed_traffic import Way, mixed_traffic
from real_programs import both_ways, nfdump_reads, pmacctd_command, softflowd_command, tshark_reads

from flowjoin._collector.process import open_collector
from flowjoin._kernel.interface import KernelLimits
from flowjoin._kernel.python_kernel import PythonKernel
from flowjoin._model.schemas import build_schemas
from flowjoin._preprocessor.compile_plan import PlanCompiler
from flowjoin.wire import DataSetReceived, Decoder, default_registry, text_of
from flowjoin.wire.events import MessageReceived, TemplateReceived

pytestmark = pytest.mark.slow

ECHO_REPLY_V6 = 129 * 256

SOFTFLOWD = {
    "softflowd-udp": ("udp", ("-A", "milli")),
    "softflowd-tcp": ("tcp", ("-A", "milli", "-P", "tcp")),
    "softflowd-biflow-udp": ("udp", ("-A", "milli", "-b")),
    "softflowd-biflow-tcp": ("tcp", ("-A", "milli", "-b", "-P", "tcp")),
    "softflowd-uptime-udp": ("udp", ()),
}
EXPORTERS = [*SOFTFLOWD, "pmacctd-udp"]


_exported = {}  # by name, so that each exporter runs once


@pytest.fixture
async def exported(request, require_program, tmp_path, intake, configure):
    """(what our collector took from a real exporter, the truth about its input)."""
    if request.param in _exported:
        return _exported[request.param]
    capture = tmp_path / "mixed.pcap"
    octets, truth = mixed_traffic()
    if "biflow" in request.param:
        # softflowd 1.1.0 with -b sends an ICMPv6 reply's type as 0.
        truth = [replace(way, destination_port=0) if way.destination_port == ECHO_REPLY_V6 else way for way in truth]
    capture.write_bytes(octets)
    protocol, options = SOFTFLOWD.get(request.param, ("udp", ()))
    program = require_program("pmacctd" if request.param == "pmacctd-udp" else "softflowd")
    async with open_collector(configure(protocol), **intake.arguments) as group, trio.open_nursery() as nursery:
        (address,) = await nursery.start(group.run)
        if request.param == "pmacctd-udp":
            command = pmacctd_command(program, capture, address.port)
        else:
            command = softflowd_command(program, capture, address.port, *options)
        with trio.fail_after(60):
            await trio.run_process(command, capture_stdout=True, capture_stderr=True)
        group.stop_intake()
    (statistics,) = group.statistics()
    assert statistics.messages == len(intake.messages) > 0
    assert not statistics.refused
    _exported[request.param] = intake, truth
    return intake, truth


@pytest.mark.parametrize("exported", EXPORTERS, indirect=True)
async def test_records_are_what_was_in_the_capture(exported):
    intake, truth = exported
    assert Counter(ways_of(intake)) == Counter(truth)


@pytest.mark.parametrize("exported", [name for name in EXPORTERS if name.endswith("udp")], indirect=True)
async def test_nfdump_reads_the_same_stream_as_we_do(exported, require_program, tmp_path):
    intake, _truth = exported
    folder = tmp_path / "nfcapd"
    folder.mkdir()
    read = await trio.to_thread.run_sync(
        nfdump_reads, require_program("nfcapd"), require_program("nfdump"), folder, intake.messages
    )
    # nfdump 1.7.1 takes flowStartSysUpTime for the end and flowEndSysUpTime for the start.
    read = [replace(way, start=min(way.start, way.end), end=max(way.start, way.end)) for way in read]
    assert Counter(read) == Counter(ways_of(intake))


@pytest.mark.parametrize("exported", EXPORTERS, indirect=True)
async def test_tshark_reads_the_same_stream_as_we_do(exported, require_program, tmp_path):
    intake, _truth = exported
    records = await trio.to_thread.run_sync(tshark_reads, require_program("tshark"), tmp_path, intake.messages)
    ours = [record for record in data_records(intake) if "octetDeltaCount" in record]
    theirs = [record for record in records if "cflow.octets" in record]
    assert len(theirs) == len(ours) > 0
    for record, seen in zip(ours, theirs, strict=True):
        is_ipv4 = "sourceIPv4Address" in record
        for end, name in (("source", "src"), ("destination", "dst")):
            address = seen[f"cflow.{name}addr" if is_ipv4 else f"cflow.{name}addrv6"]
            assert str(ipaddress.ip_address(address)) == record[f"{end}IPv{4 if is_ipv4 else 6}Address"]
            if f"{end}TransportPort" in record:
                assert number(seen[f"cflow.{name}port"]) == record[f"{end}TransportPort"]
        assert number(seen["cflow.protocol"]) == record["protocolIdentifier"]
        assert number(seen["cflow.octets"]) == record["octetDeltaCount"]
        assert number(seen["cflow.packets"]) == record["packetDeltaCount"]
        for moment in ("Start", "End"):
            if f"flow{moment}Milliseconds" in record:
                assert number(seen[f"cflow.abstime{moment.lower()}"]) == record[f"flow{moment}Milliseconds"]
            else:
                # tshark calls the uptime 0 an absolute time.
                uptime = seen.get(f"cflow.time{moment.lower()}") or seen[f"cflow.abstime{moment.lower()}"]
                assert number(uptime) == record[f"flow{moment}SysUpTime"]


@pytest.mark.parametrize("exported", EXPORTERS, indirect=True)
async def test_flows_are_what_was_in_the_capture(exported):
    intake, truth = exported
    registry = default_registry()
    schemas = build_schemas(registry)
    kernel = PythonKernel(
        decoder=Decoder(registry),
        compile_plan=PlanCompiler(registry, schemas),
        schemas=schemas,
        limits=KernelLimits(),
    )
    kernel.ingest(intake.messages, intake.sessions, 0.0)
    rows = [row for batch in kernel.expire(10_000.0, 1000) for row in batch.to_dicts()]
    assert kernel.statistics().malformed_messages == 0
    flows = []
    for row in rows:
        is_ipv4 = "sourceIPv4Address" in row
        family = 4 if is_ipv4 else 6
        way = Way(
            source=row[f"sourceIPv{family}Address"],
            destination=row[f"destinationIPv{family}Address"],
            protocol=row["protocolIdentifier"],
            source_port=row["sourceTransportPort"],
            # Exporters give ICMP's type and code as an element of its own, or as the port.
            destination_port=row[f"icmpTypeCodeIPv{family}"] or row["destinationTransportPort"],
            packets=row["packetTotalCount"],
            octets=row["octetTotalCount"],
            start=row["flowStartMilliseconds"],
            end=row["flowEndMilliseconds"],
        )
        flows += both_ways(way, row["reversePacketTotalCount"], row["reverseOctetTotalCount"])
    assert Counter(flows) == Counter(truth)


def number(octets):
    return int.from_bytes(octets, "big")


def data_records(intake):
    """Each data record by element names, with the options record of its exporter that says when it started."""
    decoder = Decoder(default_registry())
    for message, session in zip(intake.messages, intake.sessions, strict=True):
        for event in decoder.receive_message(message, session, 0.0):
            # A real exporter gives us no reason to complain, and no Template comes too late.
            assert isinstance(event, MessageReceived | TemplateReceived | DataSetReceived), event
            if isinstance(event, DataSetReceived):
                for values in event.records:
                    yield {
                        field.element.name: text_of(field.element, value) if isinstance(value, bytes) else value
                        for field, value in zip(event.template.fields, values, strict=True)
                    }


def ways_of(intake):
    ways, started = [], None
    for record in data_records(intake):
        started = record.get("systemInitTimeMilliseconds", started)
        if "octetDeltaCount" not in record:
            continue
        family = 4 if "sourceIPv4Address" in record else 6
        if "flowStartMilliseconds" in record:
            start, end = record["flowStartMilliseconds"], record["flowEndMilliseconds"]
        else:
            start, end = started + record["flowStartSysUpTime"], started + record["flowEndSysUpTime"]
        way = Way(
            source=record[f"sourceIPv{family}Address"],
            destination=record[f"destinationIPv{family}Address"],
            protocol=record["protocolIdentifier"],
            source_port=record.get("sourceTransportPort", 0),
            destination_port=record.get("destinationTransportPort", record.get(f"icmpTypeCodeIPv{family}")),
            packets=record["packetDeltaCount"],
            octets=record["octetDeltaCount"],
            start=start,
            end=end,
        )
        ways += both_ways(
            way,
            record.get("reversePacketDeltaCount", 0),
            record.get("reverseOctetDeltaCount", 0),
            record.get(f"reverseIcmpTypeCodeIPv{family}"),
        )
    return ways
