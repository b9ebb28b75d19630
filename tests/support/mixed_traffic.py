"""A capture of mixed traffic, and the truth about it: what any exporter must report."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from capture_writer import ACK, FIN, SYN, ethernet, ipv4, ipv6, pcap, tcp, udp

ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58
BEGIN = 1_700_000_000.0

CLIENT, SERVER = "192.0.2.10", "198.51.100.20"
CLIENT6, SERVER6 = "2001:db8:1::10", "2001:db8:2::20"


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of a conversation, as probes report it.

    Attributes:
        destination_port: type * 256 + code for ICMP, whose other port is 0.
        octets: of layer 3.
        start: milliseconds since the Unix epoch, of the conversation (probes time both directions as
            one; for ICMP request and reply are two).
        end: likewise.
    """

    source: str
    destination: str
    protocol: int
    source_port: int
    destination_port: int
    packets: int
    octets: int
    start: int
    end: int


def mixed_traffic() -> tuple[bytes, list[Way]]:
    """(a pcap file, all directions in it)."""
    packets: list[tuple[float, bytes, tuple[str, str, int, int, int]]] = []

    def add(at: float, source: str, destination: str, protocol: int, ports: tuple[int, int], payload: bytes) -> None:
        internet = ipv6 if ":" in source else ipv4
        packet = internet(payload, protocol=protocol, source=source, destination=destination)
        packets.append((BEGIN + at, packet, (source, destination, protocol, *ports)))

    for number, (client, server) in enumerate([(CLIENT, SERVER), (CLIENT6, SERVER6)]):
        offset = number / 2
        for step in range(10):
            flags = SYN if step == 0 else FIN | ACK if step == 9 else ACK
            data = bytes(100 + 7 * step)
            add(offset + step / 8, client, server, TCP, (40_001, 443), tcp(
                data, sequence=1000 * step, flags=flags, source_port=40_001, destination_port=443
            ))  # fmt: skip
            if step % 2 == 0:
                add(offset + step / 8 + 0.0625, server, client, TCP, (443, 40_001), tcp(
                    bytes(900), sequence=1000 * step, flags=flags | ACK, source_port=443, destination_port=40_001
                ))  # fmt: skip
        for step in range(3):
            port = 50_000 + step
            question = udp(bytes(30 + step), source_port=port, destination_port=53)
            answer = udp(bytes(90 + step), source_port=53, destination_port=port)
            add(offset + 0.25 + step / 4, client, server, UDP, (port, 53), question)
            add(offset + 0.375 + step / 4, server, client, UDP, (53, port), answer)
        protocol, kinds = (ICMPV6, (128, 129)) if ":" in client else (ICMP, (8, 0))
        for step in range(4):
            for kind, source, destination in zip(kinds, (client, server), (server, client), strict=True):
                echo = struct.pack(">BBHHH", kind, 0, 0, 77, step) + bytes(56)
                at = offset + 0.5 + step / 8 + (kind == kinds[1]) / 32
                add(at, source, destination, protocol, (0, kind * 256), echo)
    packets.sort(key=lambda packet: packet[0])
    ways: dict[tuple[str, str, int, int, int], list[int]] = {}
    times: dict[object, list[float]] = {}
    for at, packet, ends in packets:
        ways.setdefault(ends, []).append(len(packet))
        times.setdefault(_conversation(ends), []).append(at)
    truth = []
    for ends, octets in ways.items():
        seen = times[_conversation(ends)]
        # Probes count whole milliseconds.
        start, end = int(seen[0] * 1000), int(seen[-1] * 1000)
        truth.append(Way(*ends, packets=len(octets), octets=sum(octets), start=start, end=end))
    return pcap([(at, ethernet(packet)) for at, packet, _ in packets]), truth


def _conversation(ends: tuple[str, str, int, int, int]) -> object:
    source, destination, protocol, source_port, destination_port = ends
    if protocol in (ICMP, ICMPV6):
        return ends
    return protocol, frozenset({(source, source_port), (destination, destination_port)})
