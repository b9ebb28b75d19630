from __future__ import annotations

import contextlib
import errno
import struct
import sys
from pathlib import Path

import pytest
from conntrack_entries import packed
from hypothesis import given, settings
from hypothesis import strategies as st

from flowjoin_conntrack._entry import ROW, Connection
from flowjoin_conntrack._netlink import MessageKind, NetlinkError, dump_request, read

# What a Linux kernel answered to two dumps, IPv4 and IPv6, while real connections crossed a router.
DATAGRAMS = [bytes.fromhex(line) for line in (Path(__file__).parent / "dump.hex").read_text().split()]


def entries(datagram: bytes, zones: frozenset[int] = frozenset()) -> list[Connection]:
    return [
        Connection(**dict(zip(Connection.__slots__, row, strict=True)))
        for row in ROW.iter_unpack(read(datagram, zones).rows)
    ]


def of_port(port: int) -> Connection:
    (found,) = [one for datagram in DATAGRAMS for one in entries(datagram) if one.original_destination_port == port]
    return found


def test_a_dump_is_read_whole() -> None:
    assert [len(entries(datagram)) for datagram in DATAGRAMS] == [7, 0, 1, 0]
    readings = [read(datagram, ()) for datagram in DATAGRAMS]
    assert [one.is_done for one in readings] == [False, True, False, True]
    assert {kind for one in readings for kind in one.kinds} == {MessageKind.ENTRY}  # what was there is no beginning


def test_several_datagrams_are_read_as_one() -> None:
    whole = read(b"".join(DATAGRAMS), ())
    assert whole.rows == b"".join(read(datagram, ()).rows for datagram in DATAGRAMS)
    assert whole.entries == 8


def test_other_zones_are_counted_and_left_out() -> None:
    whole = read(b"".join(DATAGRAMS), frozenset({7}))
    assert (len(whole.rows) // ROW.size, len(whole.kinds), whole.entries) == (1, 1, 8)
    assert Connection.unpack(whole.rows).zone == 7


def test_beginnings_and_ends_are_told_apart() -> None:
    (first, *_) = DATAGRAMS
    length = int.from_bytes(first[:4], sys.byteorder)
    began, ended = bytearray(first[:length]), bytearray(first[:length])
    began[6:8] = (0x600).to_bytes(2, sys.byteorder)  # NLM_F_CREATE | NLM_F_EXCL
    ended[4:6] = (1 << 8 | 2).to_bytes(2, sys.byteorder)  # IPCTNL_MSG_CT_DELETE
    assert list(read(bytes(began + ended), ()).kinds) == [MessageKind.NEW, MessageKind.DESTROYED]


def test_the_destination_is_the_end_that_answers() -> None:
    one = of_port(80)  # to 10.77.99.1:80, which destination NAT leads to 10.77.2.2:8080
    assert (one.source, one.destination) == (packed("10.77.1.2"), packed("10.77.2.2"))
    assert (one.original_destination, one.destination_port) == (packed("10.77.99.1"), 8080)
    assert one.protocol == 6
    assert (one.packets, one.octets, one.reverse_packets, one.reverse_octets) == (7, 1372, 6, 50320)
    assert one.mark == 42
    assert one.tcp_state == 3
    assert one.start // 10**9 == 1796067350
    assert one.stop == 0
    assert one.status & 0x2A == 0x2A  # seen reply, confirmed, destination NAT


def test_source_nat_is_seen_in_the_reply() -> None:
    one = of_port(8081)
    assert (one.reply_destination, one.reply_destination_port) == (packed("10.77.2.1"), one.source_port)
    assert one.source == packed("10.77.1.2")


def test_ipv6_zones_and_protocols_are_read() -> None:
    six = of_port(8082)
    assert (six.family, six.source, six.destination) == (6, packed("fd77:1::2"), packed("fd77:2::2"))
    zoned = of_port(5353)
    assert (zoned.protocol, zoned.zone, zoned.tcp_state) == (17, 7, 255)


def test_labels_have_the_most_significant_octet_first() -> None:
    # tcp dport 8080 sets bit 17 of the label
    assert int.from_bytes(of_port(8080).labels, "big") == 1 << 17


def test_an_error_of_the_kernel_is_raised() -> None:
    refused = struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -errno.EPERM)
    with pytest.raises(NetlinkError, match="not permitted") as caught:
        read(refused, ())
    assert caught.value.errno == errno.EPERM


def test_an_acknowledgement_says_nothing() -> None:
    assert read(struct.pack("=IHHIIi", 20, 2, 0, 1, 0, 0), ()) == (b"", b"", 0, False, False)


def test_lost_messages_are_an_error() -> None:
    with pytest.raises(NetlinkError, match="lost messages"):
        read(struct.pack("=IHHII", 16, 4, 0, 1, 0), ())


def test_an_interrupted_dump_says_so() -> None:
    done = struct.pack("=IHHIIi", 20, 3, 0x12, 1, 0, 0)
    assert read(done, ()).is_interrupted


def test_a_request_names_family_and_zone() -> None:
    assert dump_request(2, zone=None, sequence=9).hex() == "1400000001010103090000000000000002000000"
    assert dump_request(10, zone=65520, sequence=9).hex() == "1c0000000101010309000000000000000a00000006001200fff00000"


@given(st.sampled_from(DATAGRAMS), st.data())
@settings(deadline=None)
def test_hostile_octets_give_netlink_errors_and_no_others(datagram: bytes, data: st.DataObject) -> None:
    octets = bytearray(datagram)
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(NetlinkError):
        entries(bytes(octets[: data.draw(st.integers(0, len(octets)))]))
