from __future__ import annotations

import pytest
from capture_writer import udp

from flowjoin._collector.capture.udp import UdpDatagram, read_udp_datagram


def test_a_datagram_ends_where_its_length_says() -> None:
    octets = udp(b"abc", source_port=1, destination_port=2) + b"padding"
    assert read_udp_datagram(memoryview(octets)) == UdpDatagram(1, 2, memoryview(b"abc"), is_cut=False)


def test_a_datagram_longer_than_what_was_captured_is_told() -> None:
    assert read_udp_datagram(memoryview(udp(b"abc", length=100))) == UdpDatagram(50_001, 4739, memoryview(b"abc"), True)


def test_a_length_of_zero_means_all_there_is() -> None:
    assert read_udp_datagram(memoryview(udp(b"abc", length=0))) == UdpDatagram(50_001, 4739, memoryview(b"abc"), False)


@pytest.mark.parametrize("octets", [b"", udp(b"")[:7], udp(b"abc", length=7)])
def test_a_header_that_cannot_be_gives_none(octets: bytes) -> None:
    assert read_udp_datagram(memoryview(octets)) is None
