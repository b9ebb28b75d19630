"""What ``generate`` announces is what the flow table ends up with, over real sockets."""

from __future__ import annotations

import socket
from random import Random

import pytest
import trio

from flowjoin._collector.process import open_collector
from flowjoin._generator.config import TrafficConfig
from flowjoin._generator.process import GeneratorConfig, generate
from flowjoin._generator.records import AgentRecords
from flowjoin._kernel.interface import KernelLimits
from flowjoin._kernel.python_kernel import PythonKernel
from flowjoin._model.schemas import build_schemas
from flowjoin._preprocessor.compile_plan import PlanCompiler
from flowjoin.wire import Decoder, Encoder, default_registry

pytestmark = pytest.mark.slow


@pytest.fixture
def kernel():
    registry = default_registry()
    schemas = build_schemas(registry)
    compile_plan = PlanCompiler(registry, schemas)
    return PythonKernel(decoder=Decoder(registry), compile_plan=compile_plan, schemas=schemas, limits=KernelLimits())


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize("records_per_message", [1, 8])
async def test_flows_octets_and_packets_are_as_announced(
    kernel, intake, configure, protocol, records_per_message, nursery
):
    arguments = {**intake.arguments, "ingest": kernel.ingest, "close_session": kernel.close_session}
    config = configure(protocol, receive_buffer_octets=64 * 1024 * 1024)
    async with open_collector(config, **arguments) as group, trio.open_nursery() as receiving:
        (address,) = await receiving.start(group.run)
        totals = await generate(
            GeneratorConfig(
                traffic=TrafficConfig(
                    flows=500, seed=11, inter_node_share=0.4, external_share=0.3, denied_share=0.2, updates=3
                ),
                protocol=protocol,
                host=address.host,
                port=address.port,
                records_per_message=records_per_message,
                rate=20_000.0,
            )
        )
        group.stop_intake()
    statistics = kernel.statistics()
    assert statistics.records_received == totals.records
    assert statistics.sequence_lost == 0
    assert not statistics.records_rejected
    assert statistics.malformed_messages == statistics.malformed_templates == statistics.sets_without_template == 0
    rows = {}
    while (due := kernel.next_expiry()) is not None:
        for batch in kernel.expire(due, 1000):
            family = batch.schema.family.value
            for row in batch.to_dicts():
                key = (
                    row[f"proxySnatIPv{family}"] if row["proxySnatPort"] else row[f"sourceIPv{family}Address"],
                    row[f"destinationIPv{family}Address"],
                    row["protocolIdentifier"],
                    row["proxySnatPort"] or row["sourceTransportPort"],
                    row["destinationTransportPort"],
                )
                rows[key] = row
    assert kernel.statistics().flows_given_up == 0
    assert len(rows) == totals.flows == 500
    assert sum(row["octetTotalCount"] for row in rows.values()) == totals.octets
    assert sum(row["packetTotalCount"] for row in rows.values()) == totals.packets
    # Between nodes, both ends are known only where the halves were joined.
    joined = [
        row for row in rows.values() if row["flowType"] == 2 and row["sourcePodName"] and row["destinationPodName"]
    ]
    assert len(joined) >= 200


async def test_damaged_messages_stop_neither_the_collector_nor_good_peers(kernel, intake, configure):
    """Whatever arrives at the socket: it is counted, and the next good Message of another peer is read."""
    random = Random(5)
    templates = AgentRecords(default_registry()).templates
    good = Encoder(observation_domain_id=9)
    messages = [message for each in templates.values() for message in good.encode_templates([each], 1_700_000_000)]
    bad = []
    for _ in range(500):
        octets = bytearray(random.choice(messages))
        for _ in range(random.randrange(1, 6)):
            octets[random.randrange(len(octets))] = random.randrange(256)
        bad.append(bytes(octets[: random.randrange(1, len(octets) + 1)]))
    received = 0

    def ingest(datagrams, sessions, now):
        nonlocal received
        received += len(datagrams)
        return kernel.ingest(datagrams, sessions, now)

    async with (
        open_collector(configure("udp"), **{**intake.arguments, "ingest": ingest}) as group,
        trio.open_nursery() as receiving,
    ):
        (address,) = await receiving.start(group.run)
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as vandal,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as agent,
        ):
            for octets in bad:
                vandal.sendto(octets, (address.host, address.port))
            for octets in messages:
                agent.sendto(octets, (address.host, address.port))
            group.stop_intake()
    assert received == len(bad) + len(messages)
    statistics = kernel.statistics()
    assert statistics.malformed_messages > 100
    assert statistics.templates >= 2
