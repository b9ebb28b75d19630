"""Real collectors, and flowjoin itself, read what flowjoin-ipfix sends."""

from __future__ import annotations

import ipaddress
import json
import signal
import socket
import struct
import subprocess
import sys

import pytest
import trio
from agent_traffic import agent_messages
from ipfix_collector import Collector
from real_programs import nfacctd_reads, nfdump_reads, tshark_reads
from running_flowjoin import send

from flowjoin._collector.process import open_collector
from flowjoin._generator.config import TrafficConfig
from flowjoin.api import AddressFamily, DataType, FlowBatch
from flowjoin.testing import RecordingContext, numbered_flows, plain_flows, standard_flow

flowjoin_ipfix = pytest.importorskip("flowjoin_ipfix", reason="flowjoin-ipfix is not installed")

pytestmark = pytest.mark.slow

# Those of tshark's names that differ between two elements it has no own name for.
TSHARK_NAMES = {
    "octetDeltaCount": "cflow.octets",
    "packetDeltaCount": "cflow.packets",
    "protocolIdentifier": "cflow.protocol",
    "sourceTransportPort": "cflow.srcport",
    "destinationTransportPort": "cflow.dstport",
    "sourceIPv4Address": "cflow.srcaddr",
    "destinationIPv4Address": "cflow.dstaddr",
    "sourceIPv6Address": "cflow.srcaddrv6",
    "destinationIPv6Address": "cflow.dstaddrv6",
    "flowEndReason": "cflow.flow_end_reason",
    "flowStartSeconds": "cflow.abstimestart",
    "flowEndSeconds": "cflow.abstimeend",
}


async def sent_over_udp(nursery: trio.Nursery, *batches: FlowBatch, **settings: object) -> list[bytes]:
    """The datagrams of these batches."""
    collector = Collector(protocol="udp")
    await nursery.start(collector.run)
    config = flowjoin_ipfix.IpfixConfig(address=collector.address, protocol="udp", **settings)
    [exporter_type] = flowjoin_ipfix.flowjoin_exporter_types()
    async with exporter_type.open(config, RecordingContext(name="ipfix")) as exporter:
        for batch in batches:
            await exporter.export(batch)
        await collector.count()
    return collector.sessions[0].messages


async def test_nfdump_reads_joined_and_plain_flows_of_both_families(require_program, tmp_path, nursery):
    batches = [
        numbered_flows(300),
        numbered_flows(200, AddressFamily.IPV6),
        plain_flows(5),
        plain_flows(4, AddressFamily.IPV6),
    ]
    datagrams = await sent_over_udp(nursery, *batches)
    folder = tmp_path / "nfcapd"
    folder.mkdir()
    ways = await trio.to_thread.run_sync(
        nfdump_reads, require_program("nfcapd"), require_program("nfdump"), folder, datagrams
    )
    read = sorted((way.source, way.destination, way.source_port, way.packets, way.octets) for way in ways)
    forward = {
        (
            batch.address_text("source")[row],
            batch.address_text("destination")[row],
            batch.column("sourceTransportPort")[row],
            batch.column("packetDeltaCount")[row],
            batch.column("octetDeltaCount")[row],
        )
        for batch in batches
        for row in range(len(batch))
    }
    assert len(forward) == 509
    assert forward <= set(read)


async def test_nfacctd_reads_every_flow_once(require_program, tmp_path, nursery):
    batches = [numbered_flows(300), numbered_flows(200, AddressFamily.IPV6), plain_flows(5)]
    datagrams = await sent_over_udp(nursery, *batches)
    rows = await trio.to_thread.run_sync(nfacctd_reads, require_program("nfacctd"), tmp_path, datagrams)
    read = {(row["ip_src"], row["port_src"]): (row["ip_dst"], row["port_dst"], row["bytes"]) for row in rows}
    assert len(rows) == len(read) == 505
    for batch in batches:
        for row in range(len(batch)):
            key = (batch.address_text("source")[row], batch.column("sourceTransportPort")[row])
            assert read[key] == (
                batch.address_text("destination")[row],
                batch.column("destinationTransportPort")[row],
                batch.column("octetDeltaCount")[row],
            )


@pytest.mark.parametrize("family", AddressFamily)
async def test_tshark_reads_every_element_in_its_place(require_program, tmp_path, nursery, family):
    """It knows the enterprise's elements only as octets, in the order of the Template."""
    values = {}
    batch = standard_flow(family)
    for number, element in enumerate(batch.schema.elements, start=1):
        if element.data_type is DataType.STRING:
            values[element.name] = f"text-{number:03}-of-its-own"
        elif "IP" not in element.name and element.data_type is not DataType.OCTET_ARRAY:
            values[element.name] = number
    datagrams = await sent_over_udp(nursery, standard_flow(family, **values))
    [record] = await trio.to_thread.run_sync(tshark_reads, require_program("tshark"), tmp_path, datagrams)
    for name, field in TSHARK_NAMES.items():
        if name not in batch.schema:
            continue
        octets = record[field]
        if name.endswith("Address"):
            assert str(ipaddress.ip_address(octets)) == batch.column(name)[0]
        elif not name.endswith("Seconds"):
            assert int.from_bytes(octets, "big") == values[name], name
        else:
            assert int.from_bytes(octets[-4:], "big") == values[name], name
    # The Data Record's octets, field after field: each text once, in order.
    data = next(message for message in datagrams if message[16:18] in (b"\1\0", b"\1\1"))
    texts = [values[name] for name in values if f"{values[name]}".encode() in data and isinstance(values[name], str)]
    places = [data.index(text.encode()) for text in texts]
    assert len(texts) > 15
    assert places == sorted(places)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
async def test_antreas_configuration_joins_agents_records_and_sends_them_on(nursery, tmp_path, protocol):
    """Agents' records go into a flowjoin, and what its aggregator makes of them comes out at another collector."""
    collector = Collector(protocol=protocol)
    await nursery.start(collector.run)
    config = tmp_path / "flow-aggregator.conf"
    config.write_text(
        f"stateDirectory: {tmp_path}/state\n"
        'collectors: [{protocol: tcp, address: "127.0.0.1:0"}]\n'
        f"flowCollector: {{enable: true, address: {collector.address}:{protocol}, includeK8sUIDs: true}}\n"
    )
    command = [sys.executable, "-m", "flowjoin", "run", "-c", str(config)]
    process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE)
    log = b""
    try:
        with trio.fail_after(60):
            while b'"ready"' not in log:
                log += await process.stderr.receive_some()
            [line] = [line for line in log.splitlines() if b'"ready"' in line]
            address = json.loads(line)["addresses"][0].removeprefix("tcp://")
            traffic = TrafficConfig(flows=200, seed=2, inter_node_share=0.5)
            await trio.to_thread.run_sync(send_agent_messages, address, traffic)
            process.send_signal(signal.SIGTERM)
            while data := await process.stderr.receive_some():
                log += data
            assert await process.wait() == 0, log.decode()
    finally:
        process.kill()
    await collector.count()
    [session] = collector.sessions
    assert session.templates == [256, 257]
    assert session.kinds["SequenceGap"] == 0
    records = session.records
    assert len(records) == 200
    assert {len(record) for record in records} == {79}
    joined = [
        record
        for record in records
        if record["flowType"] == 2 and record["sourcePodName"] and record["destinationPodName"]
    ]
    assert len(joined) > 50
    assert all(record["octetTotalCountFromSourceNode"] for record in joined)
    assert all(record["octetTotalCountFromDestinationNode"] for record in joined)


def send_agent_messages(address: str, traffic: TrafficConfig) -> None:
    host, _, port = address.rpartition(":")
    streams = {}
    for message, session in agent_messages(traffic):
        if session.serial not in streams:
            streams[session.serial] = socket.create_connection((host, int(port)))
        streams[session.serial].sendall(message)
    for stream in streams.values():
        stream.shutdown(socket.SHUT_WR)
        assert stream.recv(1) == b""  # it closes when it has read everything
        stream.close()


async def test_flowjoin_reads_its_own_stream(nursery, intake, configure):
    """Its Collecting Process over TCP takes what its Exporting Process sends, and joins nothing away."""
    async with open_collector(configure("tcp"), **intake.arguments) as group, trio.open_nursery() as inner:
        (address,) = await inner.start(group.run)
        config = flowjoin_ipfix.IpfixConfig(address=f"127.0.0.1:{address.port}")
        [exporter_type] = flowjoin_ipfix.flowjoin_exporter_types()
        async with exporter_type.open(config, RecordingContext(name="ipfix")) as exporter:
            await exporter.export(numbered_flows(500))
            await exporter.export(plain_flows(7, AddressFamily.IPV6))
        await intake.wait_for_messages(5)
        await intake.wait_until(lambda: bool(intake.closed))
        group.stop_intake()
    headers = [struct.unpack(">HHIII", message[:16]) for message in intake.messages]
    assert {header[0] for header in headers} == {10}
    assert len({session.peer_port for session in intake.sessions}) == 1
    assert headers[-1][3] == 500  # records before the plain ones


async def test_a_collector_that_accepts_and_never_reads_does_not_hold_the_end_and_its_successor_gets_every_row(
    nursery, tmp_path, run
):
    """Back pressure ends in the spool: nothing is lost, and shutdown takes its grace time at most."""
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        port = deaf.getsockname()[1]
        config = tmp_path / "flowjoin.yaml"
        config.write_text(
            f"stateDirectory: {tmp_path}/state\nshutdownGracePeriod: 1s\napiServer: {{address: none}}\n"
            'collectors: [{protocol: tcp, address: "127.0.0.1:0"}]\n'
            f'exporters: [{{type: ipfix, address: "127.0.0.1:{port}"}}]\n'
        )
        program = run("-c", str(config))
        (address,) = program.wait_line("ready")["addresses"]
        await trio.to_thread.run_sync(send, address.removeprefix("tcp://"), TrafficConfig(flows=2000, seed=4))
        program.process.terminate()
        assert await trio.to_thread.run_sync(program.finish) == 0, program.text
    lines = [json.loads(line) for line in program.text.splitlines() if line.startswith("{")]
    [rows] = [line["rows_undelivered"] for line in lines if line["event"] == "grace_period_over"]
    assert rows >= 1000  # the first few may have found room in its system
    assert lines[-1]["rows_in_no_spool"] == 0
    collector = Collector(port=port)
    await nursery.start(collector.run)
    config.write_text(config.read_text().replace("shutdownGracePeriod: 1s", "shutdownGracePeriod: 30s"))
    again = run("-c", str(config))
    again.wait_line("ready")
    with trio.fail_after(60):
        while await collector.count() < rows:  # noqa: ASYNC110 - counting reads
            await trio.sleep(0.05)
    again.process.terminate()
    assert await trio.to_thread.run_sync(again.finish) == 0, again.text
    assert len(collector.records) == rows
