from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
import trio
from conntrack_entries import connection, packed
from hypothesis import given
from hypothesis import strategies as st

from flowjoin.api import Pod, Service, ServicePort
from flowjoin.testing import RecordingContext
from flowjoin.wire.registry import default_registry
from flowjoin_conntrack._classifier import Classifier
from flowjoin_conntrack._columns import BatchMaker
from flowjoin_conntrack._config import ConntrackConfig
from flowjoin_conntrack._dumper import DefaultZoneFirst, Portion
from flowjoin_conntrack._entry import Connection
from flowjoin_conntrack._exports import Counters, EndReason, Export
from flowjoin_conntrack._external import External, ExternalCorrelator
from flowjoin_conntrack._metadata import FlowType, Metadata
from flowjoin_conntrack._open import open_source

CLIENT, GATEWAY, POD, FAR_POD = "198.51.100.7", "10.10.0.1", "10.10.0.2", "10.10.1.4"
SERVICE = (Service(namespace="shop", name="web"), ServicePort(port=80, protocol_identifier=6, name="http"))


class Lookups:
    def pod(self, address: str, at: float | None = None) -> Pod | None:
        pods = {POD: ("web-1", "here"), FAR_POD: ("web-2", "there")}
        return Pod(namespace="shop", name=pods[address][0], node_name=pods[address][1]) if address in pods else None

    def service_by_address(
        self, address: str, port: int, protocol_identifier: int, at: float | None = None
    ) -> tuple[Service, ServicePort] | None:
        return SERVICE if (address, port, protocol_identifier) == ("10.96.0.9", 80, 6) else None

    def service_by_name(self, namespace: str, name: str, at: float | None = None) -> Service | None:
        return None


def default_zone(
    destination: str, *, original: str = "10.96.0.9", snat: str = "", snat_port: int = 0, **changed: Any
) -> Connection:
    """From a client outside to a Service, translated to an endpoint."""
    facts: dict[str, Any] = {
        "source_port": 40000,
        "original_destination_port": 80,
        "destination_port": 8080,
        "reply_destination": packed(snat or CLIENT),
        "reply_destination_port": snat_port or 40000,
        "zone": 0,
        **changed,
    }
    return connection(CLIENT, destination, original, **facts)


def pods_zone(source: str, destination: str, port: int, **changed: Any) -> Connection:
    """What the Pods' zone sees of it."""
    facts: dict[str, Any] = {
        "source_port": port,
        "destination_port": 8080,
        "original_destination_port": 8080,
        "reply_destination": packed(source),
        "reply_destination_port": port,
        "zone": 65520,
        "mark": 2,
    }
    return connection(source, destination, **{**facts, **changed})


@pytest.mark.parametrize(
    ("outside", "inside"),
    [
        (default_zone(POD), pods_zone(CLIENT, POD, 40000)),
        (default_zone(FAR_POD, snat=GATEWAY, snat_port=50000), pods_zone(GATEWAY, FAR_POD, 50000)),
        # The Pods' zone translates the source's address too: that is the one both have.
        (
            default_zone(FAR_POD, snat=GATEWAY, snat_port=50000),
            pods_zone("192.0.2.1", FAR_POD, 50000, reply_destination=packed(GATEWAY)),
        ),
        (default_zone(POD, protocol=17), pods_zone(CLIENT, POD, 40000, protocol=17)),
    ],
)
def test_entries_of_both_zones_meet_by_their_translated_ends(outside: Connection, inside: Connection) -> None:
    correlator = ExternalCorrelator()
    correlator.remember(outside)
    found = correlator.match(inside)
    assert found == External(
        source=packed(CLIENT),
        source_port=40000,
        asked=packed("10.96.0.9"),
        asked_port=80,
        seen_source=outside.reply_destination,
        seen_source_port=outside.reply_destination_port,
    )
    assert correlator.match(inside) is None  # told once
    assert len(correlator) == 0


@pytest.mark.parametrize(
    "other",
    [
        pods_zone(CLIENT, FAR_POD, 40000),
        pods_zone(CLIENT, POD, 40001),
        pods_zone(CLIENT, POD, 40000, destination_port=8081),
        pods_zone(CLIENT, POD, 40000, protocol=17),
        pods_zone("198.51.100.8", POD, 40000),
    ],
)
def test_another_connection_does_not_meet_it(other: Connection) -> None:
    correlator = ExternalCorrelator()
    correlator.remember(default_zone(POD))
    assert correlator.match(other) is None
    assert len(correlator) == 1


def test_an_entry_waits_for_a_minute() -> None:
    correlator = ExternalCorrelator()
    correlator.tick(100.0)
    correlator.remember(default_zone(POD))
    correlator.tick(160.0)
    assert len(correlator) == 1
    correlator.tick(164.9)  # looked at every five seconds
    assert len(correlator) == 1
    correlator.tick(165.0)
    assert len(correlator) == 0


def test_an_entry_that_is_seen_again_waits_anew() -> None:
    correlator = ExternalCorrelator()
    for now in (0.0, 50.0, 100.0):
        correlator.tick(now)
        correlator.remember(default_zone(POD))
    correlator.tick(105.0)
    assert len(correlator) == 1


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0, 30)), max_size=40))
def test_what_waits_is_never_older_than_it_may_be(steps: list[tuple[int, float]]) -> None:
    correlator = ExternalCorrelator()
    now, seen = 0.0, dict[int, float]()
    for port, wait in steps:
        now += wait
        correlator.tick(now)
        correlator.remember(default_zone(POD, source_port=port, reply_destination_port=port))
        seen[port] = now
    assert len(correlator) <= len(seen)
    correlator.tick(now + 66)
    assert len(correlator) == 0


def classifier(**changed: Any) -> Classifier:
    facts: dict[str, Any] = {
        "node": "here",
        "zones": frozenset({65520}),
        "protocols": None,
        "gateways": frozenset({GATEWAY}),
        "service_networks": (),
        "pod_networks": ("10.10.0.0/16",),
        "pods_only": True,
        "pods": Lookups(),
        "services": Lookups(),
        "policies": None,
        "external": ExternalCorrelator(),
    }
    return Classifier(**{**facts, **changed})


def row_of(found: Metadata, inside: Connection) -> dict[str, Any]:
    export = Export(inside.pack(), Counters(), EndReason.ACTIVE, True, found, 10**18, 10**9 + 1)
    (batch,) = BatchMaker(default_registry(), node="here").batches([export])
    (row,) = batch.to_dicts()
    return dict(row)


def test_a_connection_from_outside_to_a_pod_here_has_who_asked_and_for_what() -> None:
    kept = classifier()
    assert kept(default_zone(POD).pack()) is None  # entries of the default zone are never handed on
    inside = pods_zone(CLIENT, POD, 40000)
    found = kept(inside.pack())
    assert found is not None
    assert (found.flow_type, found.service_name) == (FlowType.FROM_EXTERNAL, "shop/web:http")
    row = row_of(found, inside)
    assert (row["sourceIPv4Address"], row["sourceTransportPort"]) == (CLIENT, 40000)
    assert (row["destinationClusterIPv4"], row["destinationServicePort"]) == ("10.96.0.9", 80)
    assert (row["proxySnatIPv4"], row["proxySnatPort"]) == ("0.0.0.0", 0)
    assert row["destinationPodName"] == "web-1"


def test_one_that_goes_on_to_another_nodes_pod_has_the_address_it_goes_on_with() -> None:
    kept = classifier()
    kept(default_zone(FAR_POD, snat=GATEWAY, snat_port=50000).pack())
    inside = pods_zone(GATEWAY, FAR_POD, 50000)
    found = kept(inside.pack())
    assert found is not None  # though no Pod of this Node is at either end
    assert found.flow_type is FlowType.FROM_EXTERNAL
    row = row_of(found, inside)
    assert (row["sourceIPv4Address"], row["sourceTransportPort"]) == (CLIENT, 40000)
    assert (row["proxySnatIPv4"], row["proxySnatPort"]) == (GATEWAY, 50000)
    assert (row["sourcePodName"], row["destinationPodName"]) == ("", "")


@pytest.mark.parametrize(
    ("outside", "is_kept"),
    [
        (default_zone(POD), True),
        (default_zone(POD, original="203.0.113.5"), True),  # a load balancer's address, which no look-up knows
        (default_zone(POD, original=POD, original_destination_port=8080), False),  # to the Pod itself: nothing to add
        (default_zone(POD, original=POD, original_destination_port=8080, snat=GATEWAY), True),
        (default_zone(POD, protocol=1), False),
    ],
)
def test_only_what_was_translated_or_is_a_services_is_remembered(outside: Connection, is_kept: bool) -> None:
    kept = classifier()
    kept(outside.pack())
    assert kept.external is not None
    assert len(kept.external) == is_kept


def test_without_a_look_up_of_services_all_is_remembered() -> None:
    kept = classifier(services=None)
    kept(default_zone(POD, original=POD, original_destination_port=8080).pack())
    assert kept.external is not None
    assert len(kept.external) == 1


def test_what_has_nothing_to_do_with_the_outside_is_as_ever() -> None:
    kept = classifier()
    found = kept(pods_zone(POD, FAR_POD, 40000, mark=3).pack())
    assert found is not None
    assert (found.flow_type, found.external) == (FlowType.INTER_NODE, None)


class Table:
    """A dumper of one entry."""

    has_counters = True

    def __init__(self, entry: Connection, closed: list[str]) -> None:
        self._entry = entry
        self._closed = closed

    async def dump(self) -> AsyncGenerator[Portion, None]:
        try:
            await trio.lowlevel.checkpoint()
            yield Portion(self._entry.pack(), 1)
        finally:
            self._closed.append(f"zone {self._entry.zone}")

    async def max_connections(self) -> int:
        await trio.lowlevel.checkpoint()
        return self._entry.zone

    async def count(self) -> int:
        return 0


async def test_the_default_zone_is_read_first() -> None:
    closed: list[str] = []
    dumper = DefaultZoneFirst(Table(default_zone(POD), closed), Table(pods_zone(CLIENT, POD, 40000), closed))
    kept = classifier()
    found = [kept(portion.rows) async for portion in dumper.dump()]
    assert [one and one.flow_type for one in found] == [None, FlowType.FROM_EXTERNAL]
    assert await dumper.max_connections() == 65520
    assert closed == ["zone 0", "zone 65520"]


async def test_a_table_that_is_read_once_for_each_zone_holds_its_entries_once(autojump_clock) -> None:
    """Open vSwitch and ``/proc`` give every zone's entries to both, and must not look nearly full at half."""
    closed: list[str] = []
    dumper = DefaultZoneFirst(Table(default_zone(POD), closed), Table(pods_zone(CLIENT, POD, 40000), closed))
    context = RecordingContext()
    config = ConntrackConfig(zones=(65520,), from_external=True, node="here")
    async with open_source(config, context, dumper):
        assert context.gauges["table_connections"]() == 1
    assert context.counters["entries"].value == 2


async def test_what_reads_both_zones_is_closed_where_it_is_left() -> None:
    closed: list[str] = []
    dumper = DefaultZoneFirst(Table(default_zone(POD), closed), Table(pods_zone(CLIENT, POD, 40000), closed))
    async with aclosing(dumper.dump()) as portions:
        async for _ in portions:
            break
    assert closed == ["zone 0"]
