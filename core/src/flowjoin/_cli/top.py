"""``flowjoin top``: a running flowjoin at a glance, again and again."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import time
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flowjoin._cli.api_client import NoAnswer, Server, add_server_arguments, ask, refusal, server_of
from flowjoin._cli.commands import EXIT_FAILED, EXIT_UNUSABLE, CommandError
from flowjoin._cli.printable import printable
from flowjoin._cli.top_view import Reading, TopView, parse_metrics, view_of

__all__ = ["add_arguments", "run"]

_UNFOLDED: Final = 10_000
_UNITS: Final = ("", "k", "M", "G", "T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_server_arguments(parser)
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="SECONDS", help="between two readings (default: 1)"
    )
    parser.add_argument("--once", action="store_true", help="show one interval and leave")
    parser.add_argument(
        "--output", choices=("table", "json"), default="table", help="table for people, json: an object a line"
    )


def run(arguments: argparse.Namespace) -> int:
    """Show until interrupted.

    Raises:
        CommandError: nobody answers at first, or there is no terminal to draw on.
        ConfigError: the configuration that says whom to ask cannot be used.
    """
    server = server_of(arguments)
    if arguments.output == "table" and not arguments.once and not sys.stdout.isatty():
        problem = "standard output is no terminal; write --once, or --output json"
        raise CommandError(problem, exit_code=EXIT_UNUSABLE)
    before = _read(server)
    if arguments.output == "json" or arguments.once:
        while True:
            time.sleep(arguments.interval)
            after = _read(server)
            view = view_of(before, after, _health(server))
            if arguments.output == "json":
                print(json.dumps(view.facts()), flush=True)
            else:
                _console().print(_draw(view, server))
            if arguments.once:
                return 0
            before = after
    with contextlib.suppress(KeyboardInterrupt):  # how people leave it
        _watch(server, before, arguments.interval)
    return 0


def _console() -> Console:
    """Nothing is folded where standard output is no terminal: the next program may be grep."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _UNFOLDED)


def _watch(server: Server, before: Reading, interval: float) -> None:
    with Live(console=Console(highlight=False), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(interval)
            try:
                after = _read(server)
                shown = _draw(view_of(before, after, _health(server)), server)
                before = after
            except NoAnswer as exc:  # it is restarted, perhaps
                shown = Text(f"{exc}; asking again", style="bold red")
            live.update(shown, refresh=True)


def _read(server: Server) -> Reading:
    with ask(server, "/metrics") as answer:
        if answer.status != 200:
            raise refusal(answer)
        try:
            return parse_metrics(answer.body().decode(), time.monotonic())
        except ValueError as exc:
            raise _no_flowjoin(server) from exc


def _health(server: Server) -> dict[str, Any]:
    with ask(server, "/healthz", {"output": "json"}) as answer:
        try:
            health: dict[str, Any] = json.loads(answer.body())
        except ValueError as exc:
            raise _no_flowjoin(server) from exc
    return health


def _no_flowjoin(server: Server) -> NoAnswer:
    return NoAnswer(f"what answers at {server} is no flowjoin", exit_code=EXIT_FAILED)


def _draw(view: TopView, server: Server) -> RenderableType:
    rates, flows = view.rates, view.flows
    title = Text.assemble(
        ("flowjoin ", "bold"),
        f"{server}  ",
        (view.phase, "green" if view.phase == "ready" else "yellow"),
        f"  in {_short(rates['messages'])} messages/s, {_short(rates['records'])} records/s, "
        f"{_short(rates['octets'])}B/s  out {_short(rates['rows'])} rows/s",
    )
    about_flows = Text(
        f"flows {flows['held']:,} held, {flows['waiting']:,} of them wait for their other half; {flows['created']:,} "
        f"created, {flows['exported_last']:,} exported to the end, {flows['given_up']:,} given up, "
        f"{flows['evicted']:,} evicted"
    )
    collectors = _table("collector", "sessions", "messages/s", "B/s")
    for collector in view.collectors:
        collectors.add_row(
            Text(f"{collector.protocol} {collector.address}"),
            f"{collector.sessions:,}",
            _short(collector.messages_per_second),
            _short(collector.octets_per_second),
        )
    lanes = _table(
        "exporter", "in/s", "out/s", "held", "spool", "lag", "drain", "delivered", "dropped", "dead", "failures"
    )
    for lane in view.lanes:
        lanes.add_row(
            Text(lane.name),
            _short(lane.rows_per_second),
            _short(lane.delivered_per_second),
            f"{lane.held:,}",
            f"{_short(lane.spool_octets)}B" if lane.spool_octets else "-",
            f"{lane.lag_seconds:,.1f}s",
            "stands" if lane.drain_seconds is None else f"{lane.drain_seconds:,.1f}s",
            *(f"{count:,}" for count in (lane.delivered, lane.dropped, lane.dead_lettered, lane.failures)),
        )
    parts: list[RenderableType] = [title, about_flows, collectors, lanes]
    if view.drops:
        drops = _table("lost", "/s", "total")
        for drop in view.drops:
            what = f"{drop.what}: {drop.reason}" if drop.reason else drop.what
            drops.add_row(Text(printable(what)), _short(drop.per_second), f"{drop.count:,}")
        parts.append(drops)
    for component, problem in view.degraded.items():
        parts.append(Text(printable(f"{component} is degraded: {problem}"), style="bold red"))
    return Group(*parts)


def _table(first: str, *figures: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, overflow="fold")
    for figure in figures:
        table.add_column(figure, justify="right")
    return table


def _short(number: float) -> str:
    """Three digits and a unit."""
    for unit in _UNITS:
        if number < 999.5 or unit == _UNITS[-1]:
            break
        number /= 1000
    return f"{number:.0f}{unit}" if number >= 100 or number == int(number) else f"{number:.3g}{unit}"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return seconds
