from __future__ import annotations

import struct

import pytest
from capture_writer import ethernet, ipv4, ipv6, udp

from flowjoin._collector.capture.link import ip_packet_of

PACKETS = [ipv4(udp(b"x")), ipv6(udp(b"x"))]


def found(link_type: int, frame: bytes) -> bytes | None:
    packet = ip_packet_of(link_type, memoryview(frame))
    return None if packet is None else bytes(packet)


def ether_type(packet: bytes) -> bytes:
    return b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\x00"


@pytest.mark.parametrize("packet", PACKETS)
@pytest.mark.parametrize("tags", [(), (0x8100,), (0x88A8, 0x8100), (0x9100, 0x8100, 0x8100)])
def test_ethernet_is_read_with_any_stack_of_vlan_tags(packet: bytes, tags: tuple[int, ...]) -> None:
    assert found(1, ethernet(packet, tags=tags)) == packet


@pytest.mark.parametrize("packet", PACKETS)
@pytest.mark.parametrize("link_type", [12, 14, 101, 228, 229])
def test_raw_ip_has_no_header(packet: bytes, link_type: int) -> None:
    assert found(link_type, packet) == packet


@pytest.mark.parametrize("packet", PACKETS)
def test_linux_cooked_captures_are_read(packet: bytes) -> None:
    sll = struct.pack(">HHH8s", 0, 1, 6, bytes(8)) + ether_type(packet) + packet
    sll2 = ether_type(packet) + struct.pack(">HIHBB8s", 0, 2, 1, 0, 6, bytes(8)) + packet
    assert found(113, sll) == packet
    assert found(276, sll2) == packet


def test_a_linux_cooked_capture_may_have_a_vlan_tag() -> None:
    packet = ipv4(udp(b"x"))
    sll = struct.pack(">HHH8sHHH", 0, 1, 6, bytes(8), 0x8100, 100, 0x0800) + packet
    assert found(113, sll) == packet


@pytest.mark.parametrize("family", [2, 10, 24, 28, 30])
@pytest.mark.parametrize("byte_order", ["<", ">"])
@pytest.mark.parametrize("link_type", [0, 108])
def test_loopback_families_are_read_in_both_byte_orders(link_type: int, byte_order: str, family: int) -> None:
    packet = ipv4(udp(b"x"))
    assert found(link_type, struct.pack(byte_order + "I", family) + packet) == packet


@pytest.mark.parametrize(
    ("link_type", "frame"),
    [
        (1, ethernet(ipv4(b""))[:12] + b"\x08\x06" + bytes(28)),  # ARP
        (1, ethernet(ipv4(b""))[:13]),
        (1, ethernet(ipv4(b""), tags=(0x8100,))[:15]),
        (1, b""),
        (0, b"\x07\0\0\0" + ipv4(b"")),
        (113, b""),
        (276, b"\x08"),
        (105, ipv4(b"")),  # IEEE 802.11
        (-1, ipv4(b"")),
    ],
)
def test_what_is_no_ip_packet_gives_none(link_type: int, frame: bytes) -> None:
    assert found(link_type, frame) is None
