"""What Antrea's agent makes of the same connections, step by step from the table to what is kept."""

from __future__ import annotations

from typing import Any

import pytest
from conntrack_entries import connection, packed
from conntrack_lines import TO_A_SERVICE, TO_ITSELF
from conntrack_netlink import datagram
from hypothesis import given, settings
from hypothesis import strategies as st

from flowjoin.wire.registry import default_registry
from flowjoin_conntrack import _netlink
from flowjoin_conntrack._classifier import Classifier
from flowjoin_conntrack._columns import BatchMaker
from flowjoin_conntrack._entry import NO_TCP_STATE, ROW, Connection
from flowjoin_conntrack._exports import Counters, EndReason, Export, end_of
from flowjoin_conntrack._forms import read
from flowjoin_conntrack._metadata import Metadata
from flowjoin_conntrack._text_rows import parse_ovs_line, rows_of

TO_THE_GATEWAY = TO_A_SERVICE.replace("10.96.0.1", "8.7.6.5").replace("100.10.0.106", "8.7.6.5")


def classifier(**changed: Any) -> Classifier:
    facts: dict[str, Any] = {
        "node": "node-1",
        "zones": frozenset({65520}),
        "protocols": None,
        "gateways": frozenset({"8.7.6.5"}),
        "service_networks": ("100.50.25.0/24",),
        "pod_networks": (),
        "pods_only": False,
        "pods": None,
        "services": None,
        "policies": None,
    }
    return Classifier(**{**facts, **changed})


def kept(rows: bytes, **changed: Any) -> list[Connection]:
    one_by_one = [rows[at : at + ROW.size] for at in range(0, len(rows), ROW.size)]
    return [Connection.unpack(row) for row in one_by_one if classifier(**changed)(row) is not None]


def test_of_four_connections_the_one_of_the_zone_that_goes_to_no_gateway_and_no_service_is_kept() -> None:
    table = [
        connection("1.2.3.4", "4.3.2.1", source_port=65280, zone=65520, mark=3),
        connection("1.2.3.4", "100.50.25.5", zone=65520, mark=3),
        connection("5.6.7.8", "8.7.6.5", zone=65520, mark=3),
        connection("5.6.7.8", "8.7.6.5", zone=100, mark=3),
    ]
    found = read(datagram(*table), frozenset({65520}))
    assert found.entries == 4
    assert [one.source_port for one in kept(found.rows)] == [65280]
    assert [one.source_port for one in kept(read(datagram(*table), ()).rows)] == [65280]  # a kernel that tells all


@pytest.mark.parametrize(("mark", "count"), [(18, 1), (16, 0)])
def test_with_pods_only_what_was_denied_after_it_was_committed_is_left_out(mark: int, count: int) -> None:
    class AllPods:
        def pod(self, _address: str, _at: float | None = None) -> Any:
            from flowjoin.api import Pod

            return Pod(namespace="ns", name="pod", uid="", node_name="node-1")

    rows = connection("1.2.3.4", "4.3.2.1", zone=65520, mark=mark).pack()
    assert len(kept(rows, pods_only=True, pods=AllPods())) == count


def test_of_three_lines_of_open_vswitch_one_is_kept() -> None:
    text = f"{TO_ITSELF}\n{TO_THE_GATEWAY}\n{TO_A_SERVICE}\n".encode()
    found = rows_of(text, parse_ovs_line, {65520})
    assert found.entries == 3
    (one,) = kept(found.rows)
    assert one.connection_id == 982464968


def test_the_destination_is_the_replys_source_even_where_that_is_odd() -> None:
    odd = connection(
        "1.2.3.4",
        "1.2.3.4",
        "4.3.2.1",
        source_port=65280,
        destination_port=65280,
        original_destination_port=255,
        reply_destination=packed("4.3.2.1"),
        reply_destination_port=255,
        status=4,
        mark=0x1234,
        zone=2,
        start=1_595_666_408_959_000_000,
        tcp_state=NO_TCP_STATE,
    )
    one = Connection.unpack(read(datagram(odd), ()).rows)
    assert (one.source, one.source_port) == (one.destination, one.destination_port) == (packed("1.2.3.4"), 65280)
    assert (one.original_destination, one.original_destination_port) == (packed("4.3.2.1"), 255)
    assert (one.status, one.mark, one.zone, one.stop) == (4, 0x1234, 2, 0)


def exported(one: Connection, **changed: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "row": one.pack(),
        "before": Counters(),
        "reason": EndReason.IDLE,
        "is_first": True,
        "meta": Metadata(),
        "first_seen": 1_000_000_000 * 10**9,
        "end": end_of(one.pack(), 1_000_000_000 * 10**9, 1_700_000_000 * 10**9, before=0),
    }
    (batch,) = BatchMaker(default_registry(), node="n").batches([Export(**{**facts, **changed})])
    return dict(next(iter(batch.to_dicts())))


def test_a_dying_connection_ends_when_the_kernel_says() -> None:
    assert exported(connection(status=4))["flowEndSeconds"] == 1_700_000_000
    assert exported(connection(status=0x204, stop=1_595_666_710_959_683_808))["flowEndSeconds"] == 1_595_666_710


def test_source_nat_is_told_where_the_reply_goes_elsewhere() -> None:
    assert exported(connection("1.2.3.4", "4.3.2.1"))["proxySnatIPv4"] == "0.0.0.0"
    natted = connection("1.2.3.4", "4.3.2.1", reply_destination=packed("10.244.0.1"), reply_destination_port=65280)
    row = exported(natted)
    assert (row["proxySnatIPv4"], row["proxySnatPort"]) == ("10.244.0.1", 65280)


def test_deltas_of_a_first_row_are_its_totals() -> None:
    row = exported(connection(packets=0xAB, octets=0xABCD, reverse_packets=0xA, reverse_octets=0xAB))
    assert (row["packetDeltaCount"], row["octetDeltaCount"]) == (0xAB, 0xABCD)
    assert (row["reversePacketDeltaCount"], row["reverseOctetDeltaCount"]) == (0xA, 0xAB)


addresses = {4: st.binary(min_size=4, max_size=4).map(lambda octets: octets.rjust(16, b"\0"))}
addresses[6] = st.binary(min_size=16, max_size=16)
u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))


@st.composite
def connections(draw: st.DrawFn) -> Connection:
    family = draw(st.sampled_from([4, 6]))
    protocol = draw(st.sampled_from([6, 17, 132, 1, 58]))
    has_ports = protocol not in (1, 58)
    address = addresses[family]
    return Connection(
        family=family,
        protocol=protocol,
        zone=draw(u16),
        connection_id=draw(u32),
        source=draw(address),
        destination=draw(address),
        original_destination=draw(address),
        reply_destination=draw(address),
        source_port=draw(u16) if has_ports else 0,
        destination_port=draw(u16) if has_ports else 0,
        original_destination_port=draw(u16) if has_ports else 0,
        reply_destination_port=draw(u16) if has_ports else 0,
        mark=draw(u32),
        labels=draw(st.binary(min_size=16, max_size=16)),
        start=draw(u64),
        stop=draw(u64),
        status=draw(u32),
        tcp_state=draw(st.integers(0, 9)) if protocol == 6 else NO_TCP_STATE,
        packets=draw(u64),
        octets=draw(u64),
        reverse_packets=draw(u64),
        reverse_octets=draw(u64),
    )


@given(st.lists(connections(), max_size=5))
@settings(deadline=None)
def test_what_a_kernel_writes_is_what_is_read(given_connections: list[Connection]) -> None:
    expected = b"".join(one.pack() for one in given_connections)
    for form in (read, _netlink.read):
        found = form(datagram(*given_connections), ())
        assert (found.rows, found.entries, found.is_done) == (expected, len(given_connections), True)
