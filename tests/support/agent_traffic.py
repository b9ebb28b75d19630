"""Whole IPFIX Messages of a made-up cluster's agents, without sockets."""

from __future__ import annotations

from collections.abc import Iterator

from flowjoin._generator.config import TrafficConfig
from flowjoin._generator.records import AgentRecords, observation_domain_of
from flowjoin._generator.traffic import Traffic
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire import Encoder, default_registry

ENDS_AT = 1_700_000_000


def agent_messages(config: TrafficConfig) -> Iterator[tuple[bytes, TransportSession]]:
    """Templates first, then each round of records, one record a Message."""
    traffic = Traffic(config, ends_at=ENDS_AT)
    maker = AgentRecords(default_registry())
    encoders = []
    for index, node in enumerate(traffic.cluster.nodes):
        session = TransportSession(protocol="tcp", peer=f"192.0.2.{index + 1}", peer_port=50_000, serial=index + 1)
        encoder = Encoder(observation_domain_id=observation_domain_of(node.name), max_octets=65535)
        encoders.append((encoder, session))
        for template in maker.templates.values():
            for message in encoder.encode_templates([template], ENDS_AT):
                yield message, session
    flows = list(traffic)
    for number in range(1 + config.updates):
        for flow in flows:
            for half in flow.halves:
                encoder, session = encoders[half.node]
                record = maker.record(flow, half, number)
                for message in encoder.encode_records(maker.templates[flow.family], [record], ENDS_AT):
                    yield message, session
