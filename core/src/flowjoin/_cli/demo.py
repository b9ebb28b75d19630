"""``flowjoin run --demo``: made-up traffic over real sockets of this machine, joined and shown at the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from flowjoin._config.endpoint import Endpoint
from flowjoin._generator.config import TrafficConfig
from flowjoin._generator.process import GeneratorConfig, generate

__all__ = ["DEMO_CONFIG", "INTRODUCTION", "send_demo_traffic"]

DEMO_CONFIG: Final = """
activeFlowRecordTimeout: 3s
inactiveFlowRecordTimeout: 6s
shutdownGracePeriod: 10s
collectors:
  - {protocol: udp, address: "127.0.0.1:0"}
  - {protocol: tcp, address: "127.0.0.1:0"}
exporters:
  - {type: log, name: terminal, path: "-", format: table, spool: none}
log: {level: warning}
"""

INTRODUCTION: Final = """\
flowjoin demo: the agents of a made-up cluster send IPFIX to this machine's loopback, over UDP and TCP by turns;
each line is a flow whose two halves were joined. Ctrl-C delivers what is left and prints the books."""

_FLOWS_PER_ROUND: Final = 24
_RECORDS_PER_SECOND: Final = 25.0


async def send_demo_traffic(addresses: Sequence[Endpoint]) -> None:
    """Send round after round, each of other flows, until cancelled."""
    udp, tcp = addresses
    for seed in itertools.count(1):
        over_udp = bool(seed % 2)
        address = udp if over_udp else tcp
        await generate(
            GeneratorConfig(
                traffic=TrafficConfig(flows=_FLOWS_PER_ROUND, seed=seed),
                protocol="udp" if over_udp else "tcp",
                host=address.host,
                port=address.port,
                rate=_RECORDS_PER_SECOND,
            )
        )
