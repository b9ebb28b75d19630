from __future__ import annotations

import ipaddress
import struct

import pytest
from capture_writer import COLLECTOR, COLLECTOR6, EXPORTER, EXPORTER6, ipv4, ipv6, ipv6_fragment, udp

from flowjoin._collector.capture.ip import Fragment, IpPacket, read_ip_packet


def read(packet: bytes) -> IpPacket:
    found = read_ip_packet(memoryview(packet))
    assert found is not None
    return found


def packed(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


def test_an_ipv4_packet_ends_where_its_length_says() -> None:
    packet = read(ipv4(udp(b"abc")) + b"ethernet padding")
    assert packet == IpPacket(packed(EXPORTER), packed(COLLECTOR), 17, memoryview(udp(b"abc")))


def test_ipv4_options_are_stepped_over() -> None:
    assert bytes(read(ipv4(b"payload", options=bytes(12))).payload) == b"payload"


def test_a_length_of_zero_left_by_segmentation_offload_means_all_there_is() -> None:
    assert bytes(read(ipv4(b"payload", total_length=0)).payload) == b"payload"
    assert bytes(read(ipv6(b"payload", payload_length=0)).payload) == b"payload"


def test_a_packet_cut_by_the_snapshot_length_gives_what_there_is() -> None:
    assert bytes(read(ipv4(b"payload", total_length=1000)).payload) == b"payload"
    assert bytes(read(ipv6(b"payload", payload_length=1000)).payload) == b"payload"


def test_an_ipv6_packet_ends_where_its_length_says() -> None:
    packet = read(ipv6(udp(b"abc")) + b"padding")
    assert packet == IpPacket(packed(EXPORTER6), packed(COLLECTOR6), 17, memoryview(udp(b"abc")))


@pytest.mark.parametrize("kind", [0, 43, 60, 135, 139, 140])
def test_ipv6_extension_headers_are_stepped_over(kind: int) -> None:
    extension = struct.pack(">BB", 17, 1) + bytes(14)
    assert read(ipv6(extension + b"payload", protocol=kind)) == IpPacket(
        packed(EXPORTER6), packed(COLLECTOR6), 17, memoryview(b"payload")
    )


def test_the_authentication_header_counts_in_units_of_four() -> None:
    extension = struct.pack(">BB", 17, 4) + bytes(22)
    assert bytes(read(ipv6(extension + b"payload", protocol=51)).payload) == b"payload"


def test_fragments_say_where_they_belong() -> None:
    assert read(ipv4(b"12345678", identification=7, offset=0, more=True)).fragment == Fragment(7, 0, is_last=False)
    assert read(ipv4(b"x", identification=7, offset=8)).fragment == Fragment(7, 8, is_last=True)
    assert read(ipv6_fragment(b"12345678", identification=9, offset=16, more=True)) == IpPacket(
        packed(EXPORTER6), packed(COLLECTOR6), 17, memoryview(b"12345678"), Fragment(9, 16, is_last=False)
    )


def test_an_atomic_ipv6_fragment_is_a_whole_packet() -> None:
    packet = read(ipv6_fragment(b"payload", offset=0, more=False))
    assert (bytes(packet.payload), packet.fragment) == (b"payload", None)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\x00" * 40,
        ipv4(b"")[:19],
        b"\x44" + ipv4(b"")[1:],  # a header of 16 octets
        b"\x4f" + ipv4(b"")[1:],  # a header longer than the packet
        ipv4(b"", total_length=19),
        ipv6(b"")[:39],
        ipv6(b"\x11\0\0", protocol=44),
    ],
)
def test_headers_that_cannot_be_give_none(packet: bytes) -> None:
    assert read_ip_packet(memoryview(packet)) is None


def test_an_extension_header_cut_short_stays_what_it_is() -> None:
    assert read(ipv6(b"\x11\x00", protocol=60)).protocol == 60
