"""What ``generate`` sends, read by hand and by tshark: generator, decoder and table must not share one misreading."""

from __future__ import annotations

import argparse
import json
import re
import socket
import struct
import subprocess
import time
from dataclasses import replace
from functools import partial
from xml.etree import ElementTree

import pytest
import trio
from capture_writer import ethernet, ipv4, pcap, udp
from real_programs import tshark_reads

from flowjoin.__main__ import main
from flowjoin._cli import generate as command
from flowjoin._generator.config import TrafficConfig
from flowjoin._generator.process import GeneratorConfig, TrafficTotals, generate
from flowjoin._generator.records import AgentRecords
from flowjoin._model.errors import DestinationError
from flowjoin.wire import Encoder, default_registry

# The agent's Template, IPv4, written down by hand: (enterprise number, element id, octets; 65535 is variable).
ANTREA, REVERSE = 56506, 29305
AGENT_FIELDS = [
    (0, 150, 4), (0, 151, 4), (0, 136, 1), (0, 7, 2), (0, 11, 2), (0, 4, 1),
    (0, 86, 8), (0, 85, 8), (0, 2, 8), (0, 1, 8), (0, 8, 4), (0, 12, 4),
    (REVERSE, 86, 8), (REVERSE, 85, 8), (REVERSE, 2, 8), (REVERSE, 1, 8),
    (ANTREA, 101, 65535), (ANTREA, 100, 65535), (ANTREA, 104, 65535),
    (ANTREA, 103, 65535), (ANTREA, 102, 65535), (ANTREA, 105, 65535),
    (ANTREA, 108, 2), (ANTREA, 109, 65535),
    (ANTREA, 110, 65535), (ANTREA, 111, 65535), (ANTREA, 115, 1), (ANTREA, 141, 65535), (ANTREA, 139, 1),
    (ANTREA, 112, 65535), (ANTREA, 113, 65535), (ANTREA, 118, 1), (ANTREA, 142, 65535), (ANTREA, 140, 1),
    (ANTREA, 136, 65535), (ANTREA, 137, 1),
    (ANTREA, 153, 65535), (ANTREA, 154, 65535), (ANTREA, 157, 65535),
    (ANTREA, 172, 2), (ANTREA, 106, 4), (ANTREA, 170, 4), (ANTREA, 168, 4),
]  # fmt: skip
IN_IPV6 = {(0, 8): 27, (0, 12): 28, (ANTREA, 106): 107, (ANTREA, 170): 171, (ANTREA, 168): 169}
AGENT_FIELDS_IPV6 = [
    (enterprise, IN_IPV6.get((enterprise, number), number), 16 if (enterprise, number) in IN_IPV6 else length)
    for enterprise, number, length in AGENT_FIELDS
]


def read_by_hand(message):
    """(header, set id, Template fields or records): one Set a Message, as agents send."""
    version, length, export_time, sequence, domain = struct.unpack_from(">HHIII", message)
    set_id, set_length = struct.unpack_from(">HH", message, 16)
    assert (version, length, set_length) == (10, len(message), len(message) - 16)
    assert abs(export_time - time.time()) < 60
    at, found = 20, []
    if set_id == 2:
        template_id, count = struct.unpack_from(">HH", message, at)
        at += 4
        for _ in range(count):
            number, size = struct.unpack_from(">HH", message, at)
            at += 4
            enterprise = 0
            if number & 0x8000:
                (enterprise,) = struct.unpack_from(">I", message, at)
                at += 4
            found.append((enterprise, number & 0x7FFF, size))
        assert at == len(message)
        return (sequence, domain), template_id, found
    while at < len(message):
        values = {}
        for enterprise, number, size in AGENT_FIELDS if set_id == 256 else AGENT_FIELDS_IPV6:
            if size == 65535:
                size = message[at]
                at += 1
                if size == 255:
                    (size,) = struct.unpack_from(">H", message, at)
                    at += 2
            values[enterprise, number] = message[at : at + size]
            at += size
        found.append(values)
    assert at == len(message)
    return (sequence, domain), set_id, found


class Receiver:
    """Plain sockets, no part of ours."""

    def __init__(self, host="127.0.0.1"):
        self.socket = trio.socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.host = host
        self.received = []

    async def __aenter__(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        await self.socket.bind((self.host, 0))
        self.port = self.socket.getsockname()[1]
        return self

    async def __aexit__(self, *_exc):
        self.socket.close()

    async def run(self):
        while True:
            self.received.append(await self.socket.recvfrom(65536))

    async def receive(self, config):
        """Everything that one run sends, and what it says."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run)
            totals = await generate(config)
            with trio.fail_after(60):
                while sum(len(read_by_hand(message)[2]) for message, _ in self.data()) < totals.records:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        return totals

    def data(self):
        return [(message, peer) for message, peer in self.received if message[16:18] not in (b"\0\2", b"")]


def config_for(receiver, *, protocol="udp", rate=20_000.0, records_per_message=1, **traffic):
    return GeneratorConfig(
        traffic=TrafficConfig(**traffic),
        protocol=protocol,
        host=receiver.host,
        port=receiver.port,
        records_per_message=records_per_message,
        rate=rate,
    )


async def test_each_node_has_its_own_session_and_sends_both_templates_first():
    async with Receiver() as receiver:
        await receiver.receive(config_for(receiver, flows=60, nodes=3))
        by_peer = {}
        for message, peer in receiver.received:
            by_peer.setdefault(peer, []).append(read_by_hand(message))
    assert len(by_peer) == 3
    for messages in by_peer.values():
        ((header, template_id, fields), (header6, template_id6, fields6), *rest) = messages
        assert (template_id, fields) == (256, AGENT_FIELDS)
        assert (template_id6, fields6) == (257, AGENT_FIELDS_IPV6)
        assert header[0] == header6[0] == 0
        assert {domain for (_, domain), _, _ in messages} == {header[1]}
        sequence = 0  # RFC 7011 section 3.1: Data Records sent before this Message
        for (said, _), _set_id, records in rest:
            assert said == sequence
            sequence += len(records)
    assert len({messages[0][0][1] for messages in by_peer.values()}) == 3
    sizes = [len(message) for message, _ in receiver.received if read_by_hand(message)[1] in (256, 257)]
    assert sizes[0] == 320


async def test_the_last_line_is_what_the_records_say_when_they_are_joined_by_hand():
    async with Receiver() as receiver:
        totals = await receiver.receive(config_for(receiver, flows=300, updates=2, denied_share=0.15))
        records = [record for message, _ in receiver.data() for record in read_by_hand(message)[2]]
    number = partial(int.from_bytes, byteorder="big")
    octets, packets, reports = {}, {}, {}
    for record in records:
        family = 8 if (0, 8) in record else 27
        source, destination = record[0, family], record[0, 12 if family == 8 else 28]
        source_port = record[0, 7]
        flow_type, pod = number(record[ANTREA, 137]), record[ANTREA, 103]
        snat = record[ANTREA, 170 if family == 8 else 171]
        if flow_type == 4 and not pod:
            assert any(snat)
            source, source_port = snat, record[ANTREA, 172]
        key = (source, destination, record[0, 4], source_port, record[0, 11])
        octets[key] = max(octets.get(key, 0), number(record[0, 85]))
        packets[key] = max(packets.get(key, 0), number(record[0, 86]))
        reports.setdefault(key, []).append((bool(record[ANTREA, 101]), bool(pod), flow_type, number(record[0, 151])))
        assert number(record[0, 150]) < number(record[0, 151]) <= time.time()
    assert totals == TrafficTotals(
        flows=len(octets), records=len(records), octets=sum(octets.values()), packets=sum(packets.values())
    )
    assert totals.flows == 300
    assert all(len(seen) in (3, 6) for seen in reports.values())
    # Each flow between nodes that nobody denied was told from both sides.
    assert sum(1 for seen in reports.values() if len(seen) == 6) == sum(
        1 for seen in reports.values() if len({(source, pod) for source, pod, _, _ in seen}) == 2
    )


async def test_tshark_reads_the_records_as_they_were_made(require_program, tmp_path):
    async with Receiver() as receiver:
        totals = await receiver.receive(config_for(receiver, flows=60, updates=1))
        by_hand = [record for message, _ in receiver.data() for record in read_by_hand(message)[2]]
        # One session for tshark, which tells Templates apart by domain too.
        datagrams = [message for message, _ in receiver.received]
    read = await trio.to_thread.run_sync(tshark_reads, require_program("tshark"), tmp_path, datagrams)
    assert len(read) == len(by_hand) == totals.records
    names = {
        (0, 7): "cflow.srcport", (0, 11): "cflow.dstport", (0, 4): "cflow.protocol",
        (0, 8): "cflow.srcaddr", (0, 12): "cflow.dstaddr", (0, 27): "cflow.srcaddrv6", (0, 28): "cflow.dstaddrv6",
        (0, 1): "cflow.octets", (0, 2): "cflow.packets", (0, 136): "cflow.flow_end_reason",
        (0, 85): "cflow.permanent_octets", (0, 86): "cflow.permanent_packets",
        (0, 150): "cflow.abstimestart", (0, 151): "cflow.abstimeend",
    }  # fmt: skip
    for ours, theirs in zip(by_hand, read, strict=True):
        for element, name in names.items():
            if element in ours:
                assert theirs[name] == ours[element], (element, name)


def test_tshark_names_the_enterprise_of_antreas_elements(require_program, tmp_path):
    templates = [
        message
        for template in AgentRecords(default_registry()).templates.values()
        for message in Encoder().encode_templates([template], 1_700_000_000)
    ]
    capture = tmp_path / "templates.pcap"
    capture.write_bytes(pcap([(1_700_000_000, ethernet(ipv4(udp(message)))) for message in templates]))
    command_line = [require_program("tshark"), "-r", str(capture), "-d", "udp.port==4739,cflow", "-T", "pdml"]
    printed = subprocess.run(command_line, check=True, capture_output=True, timeout=60).stdout
    fields = []
    for field in ElementTree.fromstring(printed).iter("field"):
        if re.match(r"Field \(\d+/43\)", field.get("show", "")):
            parts = {part.get("name"): int(part.get("show")) for part in field.iter("field") if part.get("name")}
            number = parts.get(
                "cflow.template_ipfix_field_type", parts.get("cflow.template_ipfix_field_type_enterprise")
            )
            fields.append(
                (parts.get("cflow.template_ipfix_field_pen", 0), number, parts["cflow.template_field_length"])
            )
    assert fields == AGENT_FIELDS + AGENT_FIELDS_IPV6
    assert b"Antrea" in printed


async def test_messages_stay_below_the_mtu_however_many_records_are_asked_for():
    async with Receiver() as receiver:
        await receiver.receive(config_for(receiver, flows=100, records_per_message=50))
    sizes = [len(message) for message, _ in receiver.received]
    assert max(sizes) <= 1500 - 28
    assert max(len(read_by_hand(message)[2]) for message, _ in receiver.data()) > 2


async def test_over_ipv6_the_larger_header_is_left_room():
    async with Receiver("::1") as receiver:
        await receiver.receive(config_for(receiver, flows=100, records_per_message=50))
    assert max(len(message) for message, _ in receiver.received) <= 1500 - 48


async def test_the_rate_is_kept(autojump_clock):
    async with Receiver() as receiver:
        began = trio.current_time()
        totals = await generate(config_for(receiver, flows=100, rate=100.0))
        assert trio.current_time() - began == pytest.approx(totals.records / 100, rel=0.05)


async def test_templates_are_sent_again_over_udp_every_ten_minutes(autojump_clock):
    async with Receiver() as receiver:
        # 300 flows or more at one record every 4 s take over ten minutes.
        totals = await generate(config_for(receiver, flows=300, nodes=2, updates=0, rate=0.25))
        sent = 0
        while sent < totals.records:
            receiver.received.append(await receiver.socket.recvfrom(65536))
            sent = len(receiver.data())
    templates = [peer for message, peer in receiver.received if message[16:18] == b"\0\2"]
    assert len(templates) >= 2 * 2 * 2
    assert trio.current_time() > 1200


async def test_nobody_listening_is_said():
    async with Receiver() as receiver:
        config = config_for(receiver, flows=100, rate=None)
    with pytest.raises(DestinationError, match=f"nobody listens at udp 127.0.0.1:{receiver.port}"):
        await generate(config)


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize("after", [0, 1, 40])
async def test_cancelled_anywhere_it_closes_what_it_opened(protocol, after):
    ended = []

    async def read(stream):
        async for _ in stream:
            pass
        ended.append(stream)

    async with Receiver() as receiver, trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, read, [listener])
        config = config_for(receiver, protocol=protocol, flows=100)
        if protocol == "tcp":
            config = replace(config, port=listener.socket.getsockname()[1])
        sent = 0

        def progress(records):
            nonlocal sent
            sent += records
            if sent >= after:
                scope.cancel()

        with trio.CancelScope() as scope:
            if after == 0:
                scope.cancel()
            await generate(config, progress=progress)
        assert scope.cancelled_caught
        assert sent == after
        if protocol == "tcp" and after:
            with trio.fail_after(60):
                while len(ended) < config.traffic.nodes:
                    await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_over_tcp_each_connection_carries_the_templates_once_and_ends_properly():
    streams = []

    async def read(stream):
        data = b""
        async for part in stream:
            data += part
        streams.append(data)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, read, [listener])
        port = listener.socket.getsockname()[1]
        totals = await generate(
            GeneratorConfig(
                traffic=TrafficConfig(flows=200, nodes=3),
                protocol="tcp",
                host="127.0.0.1",
                port=port,
                records_per_message=20,
            )
        )
        with trio.fail_after(60):
            while len(streams) < 3:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    records = 0
    for data in streams:
        messages = []
        while data:
            length = int.from_bytes(data[2:4], "big")
            messages.append(read_by_hand(data[:length]))
            data = data[length:]
        assert [set_id for _, set_id, found in messages if isinstance(found[0], tuple)] == [256, 257]
        assert [fields for _, _, fields in messages[:2]] == [AGENT_FIELDS, AGENT_FIELDS_IPV6]
        records += sum(len(found) for _, _, found in messages[2:])
    assert records == totals.records


async def test_a_collector_that_closes_early_is_said():
    async def hang_up(stream):
        await stream.receive_some(100)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, hang_up, [listener])
        port = listener.socket.getsockname()[1]
        with pytest.raises(DestinationError, match=r"closed the connection|reset the connection"):
            await generate(
                GeneratorConfig(traffic=TrafficConfig(flows=3000), protocol="tcp", host="127.0.0.1", port=port)
            )
        nursery.cancel_scope.cancel()


def arguments_of(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(words)


def test_the_last_line_is_json_and_with_output_json_the_only_one(capsys):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        to = f"udp://127.0.0.1:{receiver.getsockname()[1]}"
        assert command.run(arguments_of("--to", to, "--flows", "10", "--output", "json")) == 0
        only = capsys.readouterr().out
        assert command.run(arguments_of("--to", to, "--flows", "10")) == 0
        text = capsys.readouterr().out
    assert only.count("\n") == 1
    totals = json.loads(only)
    assert list(totals) == ["flows", "records", "octets", "packets"]
    assert totals["flows"] == 10
    assert json.loads(text.splitlines()[-1]) == totals
    assert len(text.splitlines()) > 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--to", "127.0.0.1:4739"), "is not udp://HOST:PORT"),
        (("--to", "sctp://127.0.0.1:4739"), "is not udp://HOST:PORT"),
        (("--to", "udp://127.0.0.1"), "is not host:port"),
        (("--to", "udp://127.0.0.1:0"), "needs a port"),
        (("--to", "udp://127.0.0.1:1", "--rate", "fast"), "not a number of records per second"),
        (("--to", "udp://127.0.0.1:1", "--flows", "-1"), "not a whole number"),
        (("--to", "udp://127.0.0.1:1", "--records-per-message", "0"), "0 is too few"),
    ],
)
def test_a_wrong_argument_is_named(words, problem, capsys):
    with pytest.raises(SystemExit) as caught:
        arguments_of(*words)
    assert caught.value.code == 2
    assert problem in capsys.readouterr().err


def test_shares_that_do_not_fit_end_with_2_and_a_closed_port_with_1(capsys):
    assert main(["generate", "--to", "udp://127.0.0.1:9", "--denied-share", "2"]) == 2
    assert "denied-share must be from 0 to 1" in capsys.readouterr().err
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    assert main(["generate", "--to", f"tcp://127.0.0.1:{port}", "--flows", "1"]) == 1
    assert f"nobody listens at tcp 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("destination", "problem"),
    [
        ("udp://a..b:5", "the name 'a..b' is not known"),
        ("tcp://a..b:5", "the name 'a..b' is not known"),
        ("udp://255.255.255.255:9", "cannot send to udp 255.255.255.255:9: Permission denied"),
    ],
)
def test_a_destination_that_cannot_be_is_one_sentence(capsys, destination, problem):
    assert main(["generate", "--to", destination, "--flows", "1"]) == 1
    assert capsys.readouterr().err == f"flowjoin: {problem}\n"
