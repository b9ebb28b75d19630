"""A flow that the destination's Node rejects, as an agent of Antrea tells it: one record, ready at once."""

from __future__ import annotations

import socket

from hand_made import AGENT, Record, data_set, message, template_set

__all__ = ["DENIED", "send_record"]

DENIED: Record = {
    "flowStartSeconds": 1767225700,
    "flowEndSeconds": 1767225710,
    "sourceTransportPort": 44752,
    "destinationTransportPort": 5201,
    "protocolIdentifier": 6,
    "octetTotalCount": 1000,
    "sourceIPv4Address": "10.10.0.79",
    "destinationIPv4Address": "10.10.0.80",
    "flowType": 2,
    "destinationServicePortName": "shop/web:http",
    "ingressNetworkPolicyRuleAction": 3,  # rejected: the other Node never sees it
}


def send_record(address: str, record: Record) -> None:
    """Over a connection of its own; returns when the collector has read everything."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(message(template_set(AGENT, 256), data_set(AGENT, record, template_id=256)))
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b"", "the collector says nothing, and closes"
