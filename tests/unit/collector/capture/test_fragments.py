from __future__ import annotations

import itertools

from capture_writer import ipv4, ipv6_fragment, udp

from flowjoin._collector.capture.fragments import FragmentTable
from flowjoin._collector.capture.ip import IpPacket, read_ip_packet

DATAGRAM = udp(bytes(range(24)))


def fragments4(payload: bytes = DATAGRAM, *, identification: int = 1, size: int = 16) -> list[IpPacket]:
    return [
        packet_of(
            ipv4(
                payload[at : at + size],
                identification=identification,
                offset=at,
                more=at + size < len(payload),
            )
        )
        for at in range(0, len(payload), size)
    ]


def packet_of(octets: bytes) -> IpPacket:
    packet = read_ip_packet(memoryview(octets))
    assert packet is not None
    return packet


def given(table: FragmentTable, fragments: list[IpPacket], now: float = 0.0) -> list[IpPacket]:
    return [packet for each in fragments if (packet := table.receive(now, each)) is not None]


def test_fragments_in_any_order_give_the_packet_once() -> None:
    for order in itertools.permutations(fragments4(size=8)):
        table = FragmentTable()
        (packet,) = given(table, list(order))
        assert (packet.protocol, bytes(packet.payload), packet.fragment) == (17, DATAGRAM, None)
        assert (len(table), table.given_up) == (0, 0)


def test_a_repeated_fragment_changes_nothing() -> None:
    first, second = fragments4()
    assert [packet.payload for packet in given(FragmentTable(), [first, first, second])] == [DATAGRAM]


def test_packets_are_told_apart_by_identification() -> None:
    one, two = fragments4(identification=1), fragments4(udp(bytes(24)), identification=2)
    found = given(FragmentTable(), [one[0], two[0], two[1], one[1]])
    assert [packet.payload for packet in found] == [udp(bytes(24)), DATAGRAM]


def test_ipv6_takes_the_protocol_and_the_headers_of_the_first_fragment() -> None:
    fragmented = bytes([17, 0]) + bytes(6) + DATAGRAM  # destination options in front
    pieces = [
        packet_of(ipv6_fragment(fragmented[at : at + 16], protocol=60 if at == 0 else 99, offset=at, more=at < 32))
        for at in (0, 16, 32)
    ]
    (packet,) = given(FragmentTable(), pieces[::-1])
    assert (packet.protocol, bytes(packet.payload)) == (17, DATAGRAM)


def test_what_stays_incomplete_is_given_up_by_capture_time() -> None:
    table = FragmentTable(timeout_seconds=30.0)
    first, second = fragments4()
    assert given(table, [first], now=100.0) == []
    assert given(table, [second], now=130.5) == []
    assert (table.given_up, len(table)) == (1, 1)


def test_the_oldest_leave_when_too_many_wait() -> None:
    table = FragmentTable(max_packets=2)
    for identification in (1, 2, 3):
        given(table, fragments4(identification=identification)[:1])
    assert (len(table), table.given_up) == (2, 1)
    assert len(given(table, fragments4(identification=3)[1:])) == 1


def test_the_oldest_leave_when_too_many_octets_wait() -> None:
    table = FragmentTable(max_octets=20)
    given(table, fragments4(identification=1)[:1])
    given(table, fragments4(identification=2)[:1])
    assert (len(table), table.given_up) == (1, 1)


def test_a_fragment_that_ends_behind_the_largest_packet_gives_its_packet_up() -> None:
    table = FragmentTable()
    assert given(table, [packet_of(ipv4(bytes(16), identification=1, offset=65_528))]) == []
    assert (len(table), table.given_up) == (0, 1)


def test_a_hole_is_not_filled_by_octets_behind_the_end() -> None:
    table = FragmentTable()
    pieces = [
        packet_of(ipv4(bytes(64), identification=1, offset=64, more=True)),
        packet_of(ipv4(bytes(8), identification=1, offset=8)),
    ]
    assert given(table, pieces) == []
    assert (len(table), table.given_up) == (0, 1)


def test_at_the_end_of_the_capture_what_waits_is_given_up() -> None:
    table = FragmentTable()
    given(table, fragments4()[:1])
    table.give_up_all()
    assert (len(table), table.given_up) == (0, 1)
