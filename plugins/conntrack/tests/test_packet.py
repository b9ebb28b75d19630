from __future__ import annotations

import struct

import pytest
from conntrack_entries import packed
from hypothesis import given
from hypothesis import strategies as st

from flowjoin_conntrack._packet import Packet, packet_of

V4 = (packed("192.0.2.1")[12:], packed("192.0.2.2")[12:])
V6 = (packed("2001:db8::1"), packed("2001:db8::2"))
PORTS = struct.pack(">HH", 40000, 53)


def ipv4(protocol: int, rest: bytes, *, words: int = 5, fragment: int = 0, octets: int = 1500) -> bytes:
    header = struct.pack(">BBHHHBBH4s4s", 0x40 | words, 0, octets, 1, fragment, 64, protocol, 0, *V4)
    return header + bytes(4 * max(words - 5, 0)) + rest


def ipv6(next_header: int, rest: bytes, *, octets: int = 1460) -> bytes:
    return struct.pack(">IHBB16s16s", 6 << 28, octets, next_header, 64, *V6) + rest


def seen(payload: bytes) -> tuple[int, int, int, int, int]:
    packet = packet_of(payload)
    assert packet is not None
    return packet.family, packet.protocol, packet.source_port, packet.destination_port, packet.octets


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        (ipv4(17, PORTS), (4, 17, 40000, 53, 1500)),
        (ipv4(6, PORTS, words=15), (4, 6, 40000, 53, 1500)),  # with options
        (ipv4(132, PORTS), (4, 132, 40000, 53, 1500)),
        (ipv4(1, b"\x08\x00\x00\x00"), (4, 1, 0, 0, 1500)),  # ICMP has no ports
        (ipv4(17, PORTS, fragment=0x2000), (4, 17, 40000, 53, 1500)),  # the first of several fragments
        (ipv4(17, PORTS, fragment=0x2001), (4, 17, 0, 0, 1500)),  # a later one begins with data
        (ipv4(17, PORTS[:3]), (4, 17, 0, 0, 1500)),  # cut
        (ipv6(17, PORTS), (6, 17, 40000, 53, 1500)),
        (ipv6(58, PORTS), (6, 58, 0, 0, 1500)),
        (ipv6(0, bytes([60, 1]) + bytes(14) + bytes([6, 0]) + bytes(6) + PORTS), (6, 6, 40000, 53, 1500)),
        (ipv6(44, bytes([17, 0, 0, 1]) + bytes(4) + PORTS), (6, 17, 40000, 53, 1500)),  # a first fragment
        (ipv6(44, bytes([17, 0, 0, 9]) + bytes(4) + PORTS), (6, 17, 0, 0, 1500)),  # a later one
        (ipv6(51, bytes([17, 4]) + bytes(22) + PORTS), (6, 17, 40000, 53, 1500)),  # an authentication header
        (ipv6(43, bytes([17, 9]) + bytes(6)), (6, 17, 0, 0, 1500)),  # cut inside an extension
        (ipv6(59, b""), (6, 59, 0, 0, 1500)),  # no next header
        (ipv6(50, bytes(8)), (6, 50, 0, 0, 1500)),  # what follows is encrypted
    ],
)
def test_the_ends_are_read_from_the_headers(payload: bytes, wanted: tuple[int, ...]) -> None:
    assert seen(payload) == wanted


def test_addresses_are_sixteen_octets() -> None:
    for payload, (source, destination) in ((ipv4(6, PORTS), V4), (ipv6(6, PORTS), V6)):
        packet = packet_of(payload)
        assert packet is not None
        assert (packet.source, packet.destination) == (source.rjust(16, b"\0"), destination.rjust(16, b"\0"))


@pytest.mark.parametrize("payload", [b"", b"\x45", b"\x60" * 39, bytes(40), ipv4(6, PORTS, words=4), b"\xff" * 60])
def test_what_is_no_ip_packet_is_none(payload: bytes) -> None:
    assert packet_of(payload) is None


@given(st.binary(max_size=200).map(lambda rest: bytes([rest[0] % 2 * 0x20 + 0x45]) + rest[1:] if rest else rest))
def test_any_octets_give_a_packet_or_none(payload: bytes) -> None:
    packet = packet_of(payload)
    if packet is not None:
        assert packet.family in (4, 6)
        assert (len(packet.source), len(packet.destination)) == (16, 16)
        assert 0 <= packet.source_port <= 65535
        assert 0 <= packet.destination_port <= 65535


@given(st.integers(0, 80))
def test_a_packet_cut_anywhere_is_the_same_flow_or_less_of_it(length: int) -> None:
    whole = ipv6(0, bytes([60, 1]) + bytes(14) + bytes([6, 0]) + bytes(6) + PORTS)
    packet = packet_of(whole[:length])
    full = packet_of(whole)
    assert full is not None
    if packet is None:
        assert length < 40
    else:
        assert (packet.source, packet.destination, packet.octets) == (full.source, full.destination, full.octets)
        assert isinstance(packet, Packet)
        assert packet.source_port in (0, full.source_port)
