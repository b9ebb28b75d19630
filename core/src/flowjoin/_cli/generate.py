"""``flowjoin generate``: realistic traffic of a small cluster, sent to a collector."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Final, Literal

import trio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from flowjoin._cli.commands import EXIT_FAILED, EXIT_UNUSABLE, CommandError
from flowjoin._cli.tls_arguments import add_tls_arguments, tls_context
from flowjoin._config.endpoint import Endpoint
from flowjoin._generator.config import MAX_FLOWS_PER_NODE, TrafficConfig
from flowjoin._generator.process import GeneratorConfig, TrafficTotals, generate
from flowjoin._generator.shares import records_planned
from flowjoin._model.errors import DestinationError

__all__ = ["add_arguments", "run"]

_PROTOCOLS: Final[dict[str, Literal["udp", "tcp", "tls"]]] = {"udp": "udp", "tcp": "tcp", "tls": "tls"}
_LEAST_NODES: Final = 4
# Over UDP nothing holds the sender back; this is well below what one core collects.
_UDP_RATE: Final = 10_000.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--to", required=True, type=_destination, metavar="udp|tcp|tls://HOST:PORT", help="the collector to send to"
    )
    add_tls_arguments(parser)
    parser.add_argument("--flows", type=_whole_number, default=1000, metavar="N", help="distinct flows (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="equal seeds give equal flows (default: 1)")
    parser.add_argument(
        "--rate",
        type=_rate,
        metavar="R",
        help=f"records per second; 0: as fast as it goes (default: {_UDP_RATE:.0f} over UDP, else 0)",
    )
    parser.add_argument(
        "--records-per-message",
        type=_positive_number,
        default=1,
        metavar="K",
        help="records in one Message, fewer where it would be too large (default: 1, as agents do)",
    )
    parser.add_argument(
        "--inter-node-share", type=float, default=0.5, metavar="F", help="of the flows: between nodes (default: 0.5)"
    )
    parser.add_argument(
        "--external-share",
        type=float,
        default=0.2,
        metavar="F",
        help="of the flows: to outside of the cluster and from there, half each (default: 0.2)",
    )
    parser.add_argument(
        "--denied-share", type=float, default=0.05, metavar="F", help="of the flows: denied by a policy (default: 0.05)"
    )
    parser.add_argument(
        "--ipv6-share", type=float, default=0.25, metavar="F", help="of the flows of each kind (default: 0.25)"
    )
    parser.add_argument(
        "--updates",
        type=_whole_number,
        default=2,
        metavar="U",
        help="records that each node sends for a flow after the first (default: 2)",
    )
    parser.add_argument(
        "--nodes",
        type=_positive_number,
        metavar="M",
        help=f"nodes, each with a session of its own (default: {_LEAST_NODES}, more for very many flows)",
    )
    parser.add_argument(
        "--output",
        choices=("json", "text"),
        default="text",
        help="json: nothing but the last line, which gives what the collector must end up with",
    )


def run(arguments: argparse.Namespace) -> int:
    """Send the traffic; gives the exit code.

    Raises:
        CommandError: the traffic cannot be made, or the collector not be reached.
    """
    try:
        config = _config(arguments)
    except ValueError as error:
        raise CommandError(str(error), exit_code=EXIT_UNUSABLE) from error
    total = records_planned(config.traffic)
    try:
        with _progress(total, is_wanted=arguments.output == "text" and sys.stderr.isatty()) as tell:
            totals = trio.run(_generate, config, tell)
    except DestinationError as error:
        raise CommandError(str(error), exit_code=EXIT_FAILED) from error
    if arguments.output == "text":
        print(
            f"Sent {totals.records} records about {totals.flows} flows from {config.traffic.nodes} nodes to "
            f"{config.protocol} {config.address}. The collector must end up with:"
        )
    print(json.dumps(asdict(totals)), flush=True)
    return 0


async def _generate(config: GeneratorConfig, tell: Callable[[int], object]) -> TrafficTotals:
    return await generate(config, progress=tell)


def _config(arguments: argparse.Namespace) -> GeneratorConfig:
    protocol, address = arguments.to
    tls = tls_context(arguments, is_tls=protocol == "tls")
    rate = arguments.rate if arguments.rate is not None else (_UDP_RATE if protocol == "udp" else 0.0)
    return GeneratorConfig(
        traffic=TrafficConfig(
            flows=arguments.flows,
            seed=arguments.seed,
            nodes=arguments.nodes or max(_LEAST_NODES, -(-arguments.flows // MAX_FLOWS_PER_NODE)),
            updates=arguments.updates,
            inter_node_share=arguments.inter_node_share,
            external_share=arguments.external_share,
            denied_share=arguments.denied_share,
            ipv6_share=arguments.ipv6_share,
        ),
        protocol=protocol,
        host=address.host,
        port=address.port,
        tls=tls,
        server_name=arguments.server_name,
        records_per_message=arguments.records_per_message,
        rate=rate or None,
    )


@contextmanager
def _progress(total: int, *, is_wanted: bool) -> Iterator[Callable[[int], object]]:
    if not is_wanted:
        yield lambda _records: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("records"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sending", total=total)
        yield lambda records: bar.advance(task, records)


def _destination(text: str) -> tuple[Literal["udp", "tcp", "tls"], Endpoint]:
    found, separator, rest = text.partition("://")
    protocol = _PROTOCOLS.get(found)
    if not separator or protocol is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not udp://HOST:PORT, tcp://HOST:PORT or tls://HOST:PORT")
    try:
        address = Endpoint.from_text(rest)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if address.port == 0:
        raise argparse.ArgumentTypeError(f"{text!r} needs a port to send to, from 1 to 65535")
    return protocol, address


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)


def _positive_number(text: str) -> int:
    number = _whole_number(text)
    if number == 0:
        raise argparse.ArgumentTypeError("0 is too few")
    return number


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of records per second, from 0")
    return rate
