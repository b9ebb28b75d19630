from __future__ import annotations

import contextlib

import pytest
from conntrack_entries import packed
from conntrack_lines import NETDEV, NETDEV_ICMPV6, PROC, PROC_ICMP, PROC_UDP, TO_A_SERVICE, TO_ITSELF
from hypothesis import given, settings
from hypothesis import strategies as st

from flowjoin_conntrack._entry import NO_TCP_STATE, ROW, Connection
from flowjoin_conntrack._text_rows import LineError, parse_ovs_line, parse_proc_line, rows_of


def test_a_line_of_open_vswitch_is_read_whole() -> None:
    one = parse_ovs_line(TO_A_SERVICE)
    assert one == Connection(
        family=4,
        protocol=6,
        zone=65520,
        connection_id=982464968,
        source=packed("100.10.0.105"),
        destination=packed("100.10.0.106"),
        source_port=41284,
        destination_port=6443,
        original_destination=packed("10.96.0.1"),
        original_destination_port=443,
        reply_destination=packed("100.10.0.105"),
        reply_destination_port=41284,
        mark=16,
        labels=bytes.fromhex("00000000000000000000000200000001"),
        start=1_595_666_408_959_000_000,
        status=302,
        tcp_state=3,
        packets=343260,
        octets=19340621,
        reverse_packets=381035,
        reverse_octets=181176472,
    )


def test_a_line_without_a_zone_is_of_zone_zero() -> None:
    found = rows_of(f"{TO_ITSELF}\n{TO_A_SERVICE}\n".encode(), parse_ovs_line, {65520})
    assert (len(found.rows) // ROW.size, found.entries, found.unreadable) == (1, 2, 0)
    assert parse_ovs_line(TO_ITSELF).zone == 0


def test_a_data_path_that_counts_nothing_gives_zero() -> None:
    one = parse_ovs_line(NETDEV)
    assert (one.packets, one.octets, one.start, one.connection_id) == (0, 0, 0, 0)
    assert (one.mark, one.tcp_state) == (66, 7)
    assert int.from_bytes(one.labels, "big") == 0x70000000000ABCDEF


def test_icmp_of_both_families_is_known_by_every_name() -> None:
    assert parse_ovs_line(NETDEV_ICMPV6).protocol == 58
    assert parse_ovs_line(NETDEV_ICMPV6.replace("icmpv6", "ipv6-icmp")).protocol == 58
    assert parse_ovs_line(NETDEV.replace("tcp", "sctp", 1)).protocol == 132
    assert parse_ovs_line(NETDEV.replace("tcp", "115", 1)).protocol == 115


def test_two_pings_of_one_host_are_two_connections() -> None:
    other = NETDEV_ICMPV6.replace("id=19", "id=20")
    assert parse_ovs_line(NETDEV_ICMPV6).connection_id != parse_ovs_line(other).connection_id
    assert parse_proc_line(PROC_ICMP).connection_id != parse_proc_line(PROC_ICMP.replace("777", "778")).connection_id
    assert parse_proc_line(PROC_ICMP).tcp_state == NO_TCP_STATE


@pytest.mark.parametrize(
    ("text", "bits"), [("DYING", 512), ("SEEN_REPLY|SRC_NAT", 18), ("NAT_DONE_MASK|OFFLOAD", 384 | 16384), ("NEW", 0)]
)
def test_status_is_read_by_name(text: str, bits: int) -> None:
    assert parse_ovs_line(f"{NETDEV},status={text}").status == bits


@pytest.mark.parametrize(
    ("text", "state"), [("FIN_WAIT_2", 4), ("CLOSED", 8), ("SYN_RECV", 2), ("SOMETHING", NO_TCP_STATE)]
)
def test_states_of_open_vswitch_are_the_kernels(text: str, state: int) -> None:
    assert parse_ovs_line(NETDEV.replace("TIME_WAIT", text)).tcp_state == state


def test_a_line_of_proc_is_read_whole() -> None:
    one = parse_proc_line(PROC)
    assert (one.family, one.protocol, one.zone, one.mark, one.tcp_state) == (4, 6, 7, 42, 3)
    assert (one.source, one.source_port) == (packed("10.77.1.2"), 36690)
    assert (one.destination, one.destination_port) == (packed("10.77.2.2"), 8080)
    assert (one.original_destination, one.original_destination_port) == (packed("10.77.99.1"), 80)
    assert (one.packets, one.octets, one.reverse_packets, one.reverse_octets) == (7, 1372, 6, 50320)
    assert one.status == 8 | 2 | 4
    six = parse_proc_line(PROC_UDP)
    assert (six.family, six.source, six.tcp_state, six.status) == (6, packed("fd77:1::2"), NO_TCP_STATE, 8)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no connection at all",
        "tcp,orig=(src=1.2.3.4),reply=()",
        TO_A_SERVICE.replace("sport=41284", "sport=70000"),
        TO_A_SERVICE.replace("packets=343260", "packets=-1"),
        TO_A_SERVICE.replace("labels=0x2", "labels=0xz"),
        TO_A_SERVICE.replace("2020-07-25", "2020-13-25"),
        TO_A_SERVICE.replace("dst=10.96.0.1", "dst=10.96.0"),
        "x" * 100_000,
    ],
)
def test_a_line_that_is_no_connection_of_open_vswitch_is_refused(line: str) -> None:
    with pytest.raises(LineError):
        parse_ovs_line(line)


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59.999", "2106-02-07T06:28:16", "1969-12-31T23:59:59", "soon"])
def test_a_connection_of_open_vswitch_that_began_at_no_possible_time_is_refused(moment: str) -> None:
    with pytest.raises(LineError, match=r"is before 1970, or after 2106|is no time"):
        parse_ovs_line(TO_A_SERVICE.replace("2020-07-25T08:40:08.959", moment))


@pytest.mark.parametrize("line", ["", "ipv4 2 tcp", PROC.replace("src=10.77.2.2", ""), PROC.replace(" 6 ", " x ", 1)])
def test_a_line_that_is_no_connection_of_proc_is_refused(line: str) -> None:
    with pytest.raises(LineError):
        parse_proc_line(line)


def test_lines_that_make_no_sense_are_counted_and_survived() -> None:
    found = rows_of(b"junk\n" + PROC.encode() + b"\xff\xfe\n\n" + PROC_UDP.encode(), parse_proc_line, ())
    assert (len(found.rows) // ROW.size, found.entries, found.unreadable) == (2, 2, 2)


@given(st.sampled_from([TO_A_SERVICE, NETDEV, NETDEV_ICMPV6, PROC, PROC_UDP, PROC_ICMP]), st.data())
@settings(deadline=None)
def test_hostile_lines_give_line_errors_and_no_others(line: str, data: st.DataObject) -> None:
    letters = list(line)
    for _ in range(data.draw(st.integers(1, 4))):
        letters[data.draw(st.integers(0, len(letters) - 1))] = data.draw(st.sampled_from("=(),|09af:. -_x\u0660"))
    for parse in (parse_ovs_line, parse_proc_line):
        with contextlib.suppress(LineError):
            parse("".join(letters)).pack()


@given(st.text(max_size=80))
@settings(deadline=None)
def test_any_line_gives_a_row_or_a_line_error(line: str) -> None:
    for parse in (parse_ovs_line, parse_proc_line):
        with contextlib.suppress(LineError):
            parse(line).pack()
