from __future__ import annotations

import contextlib
import errno
import struct
from pathlib import Path

import pytest
from conntrack_entries import packed
from hypothesis import given
from hypothesis import strategies as st

from flowjoin_conntrack._netlink import NetlinkError
from flowjoin_conntrack._nflog import Acknowledged, LoggedPacket, bind_request, logged_packets

# What a Linux kernel gave of seven packets that rules of a group logged and denied: UDP, TCP, ICMP, ICMPv6, SCTP.
DATAGRAM = bytes.fromhex((Path(__file__).parent / "denied.hex").read_text())


def attribute(kind: int, value: bytes) -> bytes:
    return (struct.pack("=HH", len(value) + 4, kind) + value).ljust((len(value) + 7) & ~3, b"\0")


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def logged(*attributes: bytes) -> LoggedPacket:
    (one,) = logged_packets(message(4 << 8, struct.pack(">BBH", 2, 0, 5) + b"".join(attributes)))
    assert isinstance(one, LoggedPacket)
    return one


def test_a_real_kernels_packets_are_read() -> None:
    found = [one for one in logged_packets(DATAGRAM) if isinstance(one, LoggedPacket)]
    packets = [one.packet for one in found if one.packet is not None]
    assert [(packet.family, packet.protocol, packet.destination_port, packet.octets) for packet in packets] == [
        (4, 17, 9, 128),
        (4, 17, 9, 328),
        (6, 17, 9, 148),
        (4, 6, 9, 60),
        (4, 1, 0, 28),
        (6, 58, 0, 48),
        (4, 132, 9, 52),
    ]
    assert [one.prefix for one in found] == [
        *["fj:ingress:drop:7"] * 3,
        "fj:ingress:reject",
        "icmp",
        "icmp6",
        "fj:egress:drop:implicit",
    ]
    assert [one.sequence for one in found] == list(range(7))
    assert {(one.hook, one.input_device, one.output_device) for one in found} == {(1, 1, 0)}
    assert [one.mark for one in found] == [0] * 6 + [0x42]
    assert {one.at // 1_000_000_000 for one in found} == {1796074384}


def test_a_group_is_asked_for_with_its_settings() -> None:
    request = bind_request(5, copy_octets=128, batch=64, flush_seconds=0.2, with_connection=True, sequence=9)
    length, kind, flags, sequence, port = struct.unpack_from("=IHHII", request)
    assert (length, kind, flags, sequence, port) == (len(request), 4 << 8 | 1, 5, 9, 0)
    assert request[16:20] == bytes([0, 0, 0, 5])
    assert request[20:] == b"".join(
        [
            attribute(1, b"\x01"),
            attribute(2, struct.pack(">IBx", 128, 2)),
            attribute(4, struct.pack(">I", 20)),
            attribute(5, struct.pack(">I", 64)),
            attribute(6, struct.pack(">H", 5)),
        ]
    )
    without = bind_request(5, copy_octets=128, batch=64, flush_seconds=0.0, with_connection=False, sequence=9)
    assert attribute(6, struct.pack(">H", 1)) in without
    assert attribute(4, struct.pack(">I", 1)) in without


def test_what_connection_tracking_knows_comes_with_the_packet() -> None:
    def direction(source: str, destination: str) -> bytes:
        addresses = attribute(1, packed(source)[12:]) + attribute(2, packed(destination)[12:])
        ports = attribute(1, b"\x11") + attribute(2, struct.pack(">H", 4000)) + attribute(3, struct.pack(">H", 53))
        return attribute(1, addresses) + attribute(2, ports)

    tracked = (
        attribute(1, direction("10.0.0.1", "10.96.0.9"))
        + attribute(2, direction("10.10.0.3", "10.0.0.1"))
        + attribute(8, struct.pack(">I", 0x12))
        + attribute(18, struct.pack(">H", 65520))
    )
    one = logged(attribute(18, tracked))
    assert one.connection is not None
    assert one.connection.original_destination == packed("10.96.0.9")
    assert (one.connection.mark, one.connection.zone) == (0x12, 65520)
    assert logged(attribute(18, b"")).connection is None


def test_what_is_not_told_has_its_default() -> None:
    assert logged() == LoggedPacket(packet=None)
    assert logged(attribute(3, b"short"), attribute(1, b"\x08"), attribute(10, b"no end")).prefix == "no end"


def test_an_answer_is_an_acknowledgement_or_an_error() -> None:
    (answer,) = logged_packets(message(2, struct.pack("=i", 0)))
    assert isinstance(answer, Acknowledged)
    with pytest.raises(NetlinkError) as caught:
        list(logged_packets(message(2, struct.pack("=i", -errno.EPERM))))
    assert caught.value.errno == errno.EPERM


@given(st.integers(0, len(DATAGRAM) - 1))
def test_a_datagram_cut_short_gives_what_was_whole(length: int) -> None:
    whole = list(logged_packets(DATAGRAM))
    given_packets = []
    with contextlib.suppress(NetlinkError):
        for one in logged_packets(DATAGRAM[:length]):
            given_packets.append(one)
    assert given_packets == whole[: len(given_packets)]


@given(st.lists(st.tuples(st.integers(0, len(DATAGRAM) - 1), st.integers(0, 255)), max_size=8))
def test_any_octets_give_packets_or_netlink_errors(changes: list[tuple[int, int]]) -> None:
    datagram = bytearray(DATAGRAM)
    for at, value in changes:
        datagram[at] = value
    with contextlib.suppress(NetlinkError):
        for one in logged_packets(bytes(datagram)):
            assert isinstance(one, LoggedPacket | Acknowledged)


@given(st.binary(max_size=400))
def test_any_attributes_give_packets_or_netlink_errors(body: bytes) -> None:
    with contextlib.suppress(NetlinkError):
        list(logged_packets(message(4 << 8, bytes(4) + body)))
