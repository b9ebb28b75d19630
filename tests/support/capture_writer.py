"""Writes captures octet by octet, independent of the reader: frames, pcap and pcapng files."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Sequence
from typing import Literal

ByteOrder = Literal["<", ">"]

ETHERNET, RAW, NULL, LOOP, LINUX_SLL, LINUX_SLL2 = 1, 101, 0, 108, 113, 276
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16

EXPORTER, COLLECTOR = "192.0.2.1", "192.0.2.2"
EXPORTER6, COLLECTOR6 = "2001:db8::1", "2001:db8::2"


def message(payload: bytes = b"", *, export_time: int = 1_700_000_000, sequence: int = 0, domain: int = 1) -> bytes:
    """An IPFIX Message around Sets."""
    return struct.pack(">HHIII", 10, 16 + len(payload), export_time, sequence, domain) + payload


def udp(payload: bytes, *, source_port: int = 50_001, destination_port: int = 4739, length: int | None = None) -> bytes:
    total = 8 + len(payload) if length is None else length
    return struct.pack(">HHHH", source_port, destination_port, total, 0) + payload


def tcp(
    payload: bytes = b"",
    *,
    sequence: int,
    flags: int = ACK,
    source_port: int = 50_001,
    destination_port: int = 4739,
    options: bytes = b"",
) -> bytes:
    offset = (20 + len(options)) // 4 << 4
    return (
        struct.pack(">HHIIBBHHH", source_port, destination_port, sequence % 2**32, 0, offset, flags, 1024, 0, 0)
        + options
        + payload
    )


def ipv4(
    payload: bytes,
    *,
    protocol: int = 17,
    source: str = EXPORTER,
    destination: str = COLLECTOR,
    identification: int = 0,
    offset: int = 0,
    more: bool = False,
    options: bytes = b"",
    total_length: int | None = None,
) -> bytes:
    header_length = 20 + len(options)
    total = header_length + len(payload) if total_length is None else total_length
    return (
        struct.pack(
            ">BBHHHBBH4s4s",
            0x40 | header_length // 4,
            0,
            total,
            identification,
            offset // 8 | (0x2000 if more else 0),
            64,
            protocol,
            0,
            ipaddress.IPv4Address(source).packed,
            ipaddress.IPv4Address(destination).packed,
        )
        + options
        + payload
    )


def ipv6(
    payload: bytes,
    *,
    protocol: int = 17,
    source: str = EXPORTER6,
    destination: str = COLLECTOR6,
    payload_length: int | None = None,
) -> bytes:
    length = len(payload) if payload_length is None else payload_length
    addresses = ipaddress.IPv6Address(source).packed + ipaddress.IPv6Address(destination).packed
    return struct.pack(">IHBB", 0x6000_0000, length, protocol, 64) + addresses + payload


def ipv6_fragment(payload: bytes, *, protocol: int = 17, identification: int = 1, offset: int, more: bool) -> bytes:
    return ipv6(struct.pack(">BBHI", protocol, 0, offset | more, identification) + payload, protocol=44)


def ethernet(packet: bytes, *, tags: Sequence[int] = (), padding: bytes = b"") -> bytes:
    ether_type = b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\x00"
    vlan = b"".join(struct.pack(">HH", tag, 100) for tag in tags)
    return bytes.fromhex("020000000001020000000002") + vlan + ether_type + packet + padding


def pcap(
    frames: Iterable[tuple[float, bytes]],
    *,
    link_type: int = ETHERNET,
    byte_order: ByteOrder = "<",
    nanoseconds: bool = False,
    snapshot_length: int = 262_144,
) -> bytes:
    unit = 1_000_000_000 if nanoseconds else 1_000_000
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    pieces = [struct.pack(byte_order + "IHHiIII", magic, 2, 4, 0, 0, snapshot_length, link_type)]
    for time, frame in frames:
        seconds, fraction = divmod(round(time * unit), unit)
        kept = frame[:snapshot_length]
        pieces += [struct.pack(byte_order + "IIII", seconds, fraction, len(kept), len(frame)), kept]
    return b"".join(pieces)


def block(block_type: int, body: bytes, byte_order: ByteOrder = "<") -> bytes:
    body += bytes(-len(body) % 4)
    length = 12 + len(body)
    return struct.pack(byte_order + "II", block_type, length) + body + struct.pack(byte_order + "I", length)


def section(byte_order: ByteOrder = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(byte_order + "IHHq", 0x1A2B3C4D, 1, 0, -1), byte_order)


def option(code: int, value: bytes, byte_order: ByteOrder = "<") -> bytes:
    return struct.pack(byte_order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def interface(
    link_type: int = ETHERNET, *, byte_order: ByteOrder = "<", snapshot_length: int = 0, options: bytes = b""
) -> bytes:
    return block(1, struct.pack(byte_order + "HHI", link_type, 0, snapshot_length) + options, byte_order)


def enhanced_packet(
    frame: bytes, *, ticks: int, number: int = 0, byte_order: ByteOrder = "<", options: bytes = b""
) -> bytes:
    head = struct.pack(byte_order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(6, head + frame + bytes(-len(frame) % 4) + options, byte_order)


def simple_packet(frame: bytes, *, byte_order: ByteOrder = "<", original_length: int | None = None) -> bytes:
    length = len(frame) if original_length is None else original_length
    return block(3, struct.pack(byte_order + "I", length) + frame, byte_order)


def obsolete_packet(frame: bytes, *, ticks: int, number: int = 0, byte_order: ByteOrder = "<") -> bytes:
    head = struct.pack(byte_order + "HHIIII", number, 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(2, head + frame, byte_order)
