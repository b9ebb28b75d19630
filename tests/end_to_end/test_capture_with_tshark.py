"""Generated captures, read by tshark and by us: times, endpoints and Messages agree."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from capture_writer import (
    ETHERNET,
    LINUX_SLL,
    LINUX_SLL2,
    LOOP,
    NULL,
    RAW,
    SYN,
    enhanced_packet,
    ethernet,
    interface,
    ipv4,
    ipv6,
    ipv6_fragment,
    message,
    option,
    pcap,
    section,
    tcp,
    udp,
)

from flowjoin._collector.capture import CapturedMessage, open_capture

TEMPLATE_SET = struct.pack(">HHHHHH", 2, 12, 256, 1, 1, 8)

Seen = tuple[float, str, int, int]  # time, source address, source port, sequence number


def octets_of(sequence: int) -> bytes:
    """A Message that is told from others by its sequence number."""
    return message(TEMPLATE_SET + struct.pack(">HHQ", 256, 12, sequence), sequence=sequence)


def as_tshark_reads(tshark: str, path: Path) -> list[Seen]:
    printed = subprocess.run(
        [
            tshark,
            *("-r", str(path), "-d", "udp.port==4739,cflow", "-d", "tcp.port==4739,cflow", "-Y", "cflow"),
            *("-T", "fields", "-E", "occurrence=l"),
            *("-e", "frame.time_epoch", "-e", "ip.src", "-e", "ipv6.src", "-e", "udp.srcport", "-e", "tcp.srcport"),
            *("-e", "cflow.sequence"),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    seen = []
    for line in printed.splitlines():
        time, source, source6, port, tcp_port, sequence = line.split("\t")
        seen.append((float(time), source or source6, int(port or tcp_port), int(sequence)))
    return seen


def as_we_read(path: Path) -> list[Seen]:
    with open_capture(path) as capture:
        return [
            (item.time, item.session.peer, item.session.peer_port, int.from_bytes(item.payload[8:12], "big"))
            for item in capture
            if isinstance(item, CapturedMessage)
        ]


def on_link(link_type: int, packet: bytes) -> bytes:
    ether_type = b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\x00"
    family = 10 if packet[0] >> 4 == 6 else 2
    return {
        ETHERNET: ethernet(packet),
        RAW: packet,
        NULL: struct.pack("<I", 30 if family == 10 else 2) + packet,
        LOOP: struct.pack(">I", 30 if family == 10 else 2) + packet,
        LINUX_SLL: struct.pack(">HHH8s", 0, 1, 6, bytes(8)) + ether_type + packet,
        LINUX_SLL2: ether_type + struct.pack(">HIHBB8s", 0, 2, 1, 0, 6, bytes(8)) + packet,
    }[link_type]


@pytest.mark.slow
@pytest.mark.parametrize("link_type", [ETHERNET, RAW, NULL, LOOP, LINUX_SLL, LINUX_SLL2])
@pytest.mark.parametrize("nanoseconds", [False, True])
def test_every_link_type_is_read_as_tshark_reads_it(
    link_type: int, nanoseconds: bool, tmp_path: Path, require_program: Callable[[str], str]
) -> None:
    path = tmp_path / "flows.pcap"
    packets = [
        ipv4(udp(octets_of(1))),
        ipv6(udp(octets_of(2))),
        ipv4(udp(octets_of(3), source_port=1), options=b"\x01" * 8),
        ipv6(b"\x11\x00" + bytes(6) + udp(octets_of(4)), protocol=60),
    ]
    frames = [(1_700_000_000.25 + number, on_link(link_type, packet)) for number, packet in enumerate(packets)]
    path.write_bytes(pcap(frames, link_type=link_type, byte_order=">", nanoseconds=nanoseconds))
    expected = as_tshark_reads(require_program("tshark"), path)
    assert len(expected) == 4
    assert as_we_read(path) == expected


@pytest.mark.slow
def test_a_mixed_pcapng_is_read_as_tshark_reads_it(tmp_path: Path, require_program: Callable[[str], str]) -> None:
    path = tmp_path / "flows.pcapng"
    datagram, datagram6 = udp(octets_of(10)), udp(octets_of(11))
    stream = octets_of(20) + octets_of(21) + octets_of(22)
    packets = [
        ethernet(ipv4(udp(octets_of(1))), tags=(0x8100,), padding=b"padding"),
        ethernet(ipv4(udp(octets_of(2))), tags=(0x88A8, 0x8100)),
        ethernet(ipv4(datagram[32:], identification=7, offset=32)),
        ethernet(ipv4(datagram[:32], identification=7, more=True)),
        ethernet(ipv6_fragment(datagram6[:24], identification=8, offset=0, more=True)),
        ethernet(ipv6_fragment(datagram6[24:], identification=8, offset=24, more=False)),
        *(
            ethernet(ipv4(segment, protocol=6))
            for segment in (
                tcp(sequence=99, flags=SYN),
                tcp(stream[:30], sequence=100),
                tcp(stream[:30], sequence=100),
                tcp(stream[30:50], sequence=130),
                tcp(stream[50:100], sequence=150),
                tcp(stream[100:], sequence=200),
            )
        ),
    ]
    raw = [ipv4(udp(octets_of(30), source_port=30)), ipv6(udp(octets_of(31), source_port=31))]
    second = 10**9
    path.write_bytes(
        section()
        + interface(ETHERNET, options=option(9, b"\x09"))
        + b"".join(enhanced_packet(frame, ticks=(1000 + n) * second + 500_000_000) for n, frame in enumerate(packets))
        + section(">")
        + interface(RAW, byte_order=">")
        + b"".join(
            enhanced_packet(packet, ticks=(2000 + n) * 1_000_000, byte_order=">") for n, packet in enumerate(raw)
        )
    )
    expected = as_tshark_reads(require_program("tshark"), path)
    assert [sequence for *_, sequence in expected] == [1, 2, 10, 11, 20, 21, 22, 30, 31]
    assert as_we_read(path) == expected
