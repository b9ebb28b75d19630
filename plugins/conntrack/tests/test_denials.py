from __future__ import annotations

import errno
import struct
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import trio
from conntrack_entries import connection, packed

from flowjoin.testing import RecordingContext
from flowjoin_conntrack._classifier import Classifier
from flowjoin_conntrack._config import DeniedConfig
from flowjoin_conntrack._denials import Denials, LogSource, connection_of
from flowjoin_conntrack._entry import Connection
from flowjoin_conntrack._exports import Timeouts
from flowjoin_conntrack._packet import packet_of

DATAGRAM = bytes.fromhex((Path(__file__).parent / "denied.hex").read_text())
PACKETS = 7


class Log(LogSource):
    """Where a test's datagrams come; at their end it is gone."""

    def __init__(self, config: DeniedConfig, *coming: bytes | OSError) -> None:
        self.config = config
        self._coming = list(coming)

    async def some(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._coming:
            raise OSError(errno.ENETDOWN, "Network is down")
        one = self._coming.pop(0)
        if isinstance(one, OSError):
            raise one
        return one


def renumbered(first: int) -> bytes:
    """The datagram, with its packets counted from a number on."""
    head = struct.pack("=HH", 8, 12)
    datagram = bytearray(DATAGRAM)
    places = [datagram.index(head + struct.pack(">I", number)) + 4 for number in range(PACKETS)]
    for number, at in enumerate(places):
        datagram[at : at + 4] = struct.pack(">I", first + number)
    return bytes(datagram)


async def listen(denials: Denials) -> None:
    async with aclosing(denials.readings()) as readings:
        async for _ in readings:
            pass


async def heard(*coming: bytes | OSError, **config: Any) -> tuple[Denials, RecordingContext]:
    context = RecordingContext()
    classifier = Classifier(
        node="n",
        zones=frozenset(),
        protocols=None,
        gateways=frozenset(),
        service_networks=(),
        pod_networks=(),
        pods_only=False,
        pods=None,
        services=None,
        policies=None,
    )
    log = Log(DeniedConfig(group=5, **config), *coming)
    denials = Denials(log, context, Timeouts(active=5.0, idle=15.0, stale=300.0), classifier)
    with pytest.raises(OSError, match="Network is down"):  # it ends the source, which is opened anew
        await listen(denials)
    return denials, context


def counted(context: RecordingContext) -> dict[str, float]:
    return {name: counter.value for name, counter in context.counters.items() if counter.value}


async def test_packets_of_a_real_kernel_become_denied_connections(autojump_clock: object) -> None:
    denials, context = await heard(DATAGRAM)
    assert counted(context) == {"denied_packets": 7, "denied_connections": 6}
    exports = denials.store.expire(trio.current_time() + 5, 100)
    rows = {
        (row.family, row.protocol): (row.packets, row.octets)
        for row in map(Connection.unpack, [e.row for e in exports])
    }
    assert rows == {
        (4, 17): (2, 456),
        (6, 17): (1, 148),
        (4, 6): (1, 60),
        (4, 1): (1, 28),
        (6, 58): (1, 48),
        (4, 132): (1, 52),
    }
    assert [export.meta.ingress.rule_action for export in exports if export.meta.ingress] == [2, 2, 3, 2, 2]
    (sctp,) = [export.meta for export in exports if export.meta.egress]
    assert sctp.egress is not None
    assert (sctp.egress.policy_type, sctp.egress.rule_action) == (1, 2)


async def test_what_the_kernel_lost_is_counted_by_its_numbers(autojump_clock: object) -> None:
    _, context = await heard(DATAGRAM, OSError(errno.ENOBUFS, "No buffer space available"), renumbered(10))
    assert counted(context)["lost_denied_packets"] == 3
    assert counted(context)["denied_overruns"] == 1
    assert counted(context)["denied_packets"] == 14
    assert context.events == ["denied_packets_lost"]


async def test_numbers_may_begin_anew_after_the_greatest(autojump_clock: object) -> None:
    _, context = await heard(renumbered(0xFFFFFFF9), renumbered(1))
    assert counted(context)["lost_denied_packets"] == 1  # number 0


async def test_packets_of_more_connections_than_are_held_are_counted(autojump_clock: object) -> None:
    denials, context = await heard(DATAGRAM, max_connections=2)
    assert len(denials.store) == 2
    assert counted(context) == {"denied_packets": 7, "denied_connections": 2, "denied_packets_not_kept": 4}


async def test_what_is_no_ip_packet_is_counted(autojump_clock: object) -> None:
    arp = struct.pack("=IHHII", 20 + 12, 4 << 8, 0, 0, 0) + bytes(4) + struct.pack("=HH", 12, 9) + bytes(8)
    _, context = await heard(arp)
    assert counted(context) == {"denied_packets": 1, "denied_packets_not_ip": 1}


def test_what_connection_tracking_knows_is_where_the_packet_was_meant_to_go() -> None:
    packet = packet_of(bytes.fromhex("4500003c00004000400600000a0000010a0a0003") + struct.pack(">HH", 4000, 80))
    assert packet is not None
    tracked = connection("10.0.0.1", "10.10.0.3", "10.96.0.9", mark=0x12, labels=bytes(15) + b"\x07", zone=65520)
    found = connection_of(packet, tracked, at=5)
    assert found.original_destination == packed("10.96.0.9")
    assert (found.mark, found.labels[15], found.zone, found.start, found.stop) == (0x12, 7, 65520, 5, 5)
    assert (found.destination, found.reply_destination) == (packed("10.10.0.3"), packed("10.0.0.1"))
    unknown = connection_of(packet, connection("fd00::1", "fd00::2"), at=5)  # of another family: not of this packet
    assert (unknown.original_destination, unknown.mark) == (packed("10.10.0.3"), 0)
