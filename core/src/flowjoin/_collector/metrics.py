"""What a Collecting Process counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["CollectorCounters", "CollectorStatistics", "collector_metrics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorStatistics:
    """A snapshot.

    Attributes:
        protocol: ``udp``, ``tcp`` or ``tls``.
        address: where it listens, with the port it has.
        messages: whole Messages (datagrams, over UDP) handed to the kernel.
        octets: octets of them.
        sessions: Transport Sessions there are now.
        sessions_opened: Transport Sessions there ever were.
        refused: by reason: datagrams of peers beyond the limit, connections beyond it, streams that are no IPFIX,
            TLS handshakes that failed.
        kernel_drops: datagrams the operating system dropped, for lack of room in the receive buffer
            or a wrong checksum; stays 0 where it does not say (anywhere but Linux).
        socket_errors: errors of the socket itself; it is opened again after each.
        connections_idle: closed for silence.
        connections_reset: ended by the peer without a proper close.
        connections_faulty: closed because a Message was malformed.
        connections_cut: ended inside a Message.
        accept_failures: connections not taken for lack of file descriptors or memory.
        handshakes: TLS handshakes in progress now.
        certificate_expires: when the certificate expires that is shown now, seconds since the Unix epoch; None while
            none is.
    """

    protocol: str
    address: str
    messages: int = 0
    octets: int = 0
    sessions: int = 0
    sessions_opened: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    kernel_drops: int = 0
    socket_errors: int = 0
    connections_idle: int = 0
    connections_reset: int = 0
    connections_faulty: int = 0
    connections_cut: int = 0
    accept_failures: int = 0
    handshakes: int = 0
    certificate_expires: float | None = None


@dataclass(slots=True)
class CollectorCounters:
    """The counts that only grow; see CollectorStatistics."""

    messages: int = 0
    octets: int = 0
    sessions_opened: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    kernel_drops: int = 0
    socket_errors: int = 0
    connections_idle: int = 0
    connections_reset: int = 0
    connections_faulty: int = 0
    connections_cut: int = 0
    accept_failures: int = 0

    def refuse(self, reason: str, count: int = 1) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + count

    def snapshot(
        self,
        *,
        protocol: str,
        address: str,
        sessions: int,
        handshakes: int = 0,
        certificate_expires: float | None = None,
    ) -> CollectorStatistics:
        return CollectorStatistics(
            protocol=protocol,
            address=address,
            messages=self.messages,
            octets=self.octets,
            sessions=sessions,
            sessions_opened=self.sessions_opened,
            refused=dict(self.refused),
            kernel_drops=self.kernel_drops,
            socket_errors=self.socket_errors,
            connections_idle=self.connections_idle,
            connections_reset=self.connections_reset,
            connections_faulty=self.connections_faulty,
            connections_cut=self.connections_cut,
            accept_failures=self.accept_failures,
            handshakes=handshakes,
            certificate_expires=certificate_expires,
        )


_COUNTERS = {
    "messages": "Messages received",
    "octets": "Octets of Messages received",
    "sessions_opened": "Transport Sessions opened",
    "kernel_drops": "Datagrams the operating system dropped",
    "socket_errors": "Errors of the socket itself",
    "connections_idle": "Connections closed for silence",
    "connections_reset": "Connections reset by the peer",
    "connections_faulty": "Connections closed because a Message was malformed",
    "connections_cut": "Connections that ended inside a Message",
    "accept_failures": "Connections not accepted for lack of resources",
}


def collector_metrics(statistics: Iterable[CollectorStatistics]) -> Iterator[Metric]:
    """The metrics of all Collecting Processes, labelled by protocol and address."""
    snapshots = list(statistics)
    for name, documentation in _COUNTERS.items():
        counter = CounterMetricFamily(f"flowjoin_collector_{name}", documentation, labels=["protocol", "address"])
        for snapshot in snapshots:
            counter.add_metric([snapshot.protocol, snapshot.address], getattr(snapshot, name))
        yield counter
    refused = CounterMetricFamily(
        "flowjoin_collector_refused", "What was refused, by reason", labels=["protocol", "address", "reason"]
    )
    sessions = GaugeMetricFamily(
        "flowjoin_collector_sessions", "Transport Sessions there are now", labels=["protocol", "address"]
    )
    handshakes = GaugeMetricFamily(
        "flowjoin_collector_handshakes", "TLS handshakes in progress", labels=["protocol", "address"]
    )
    expiry = GaugeMetricFamily(
        "flowjoin_collector_certificate_expiry_timestamp_seconds",
        "When the certificate that is shown expires, since the Unix epoch",
        labels=["protocol", "address"],
    )
    for snapshot in snapshots:
        if snapshot.protocol == "tls":
            handshakes.add_metric([snapshot.protocol, snapshot.address], snapshot.handshakes)
        if snapshot.certificate_expires is not None:
            expiry.add_metric([snapshot.protocol, snapshot.address], snapshot.certificate_expires)
        sessions.add_metric([snapshot.protocol, snapshot.address], snapshot.sessions)
        for reason, count in snapshot.refused.items():
            refused.add_metric([snapshot.protocol, snapshot.address, reason], count)
    yield refused
    yield sessions
    yield handshakes
    yield expiry
