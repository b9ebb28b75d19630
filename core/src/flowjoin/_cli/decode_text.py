"""The lines of ``flowjoin decode`` for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flowjoin._cli.decode_lines import Line
from flowjoin._cli.printable import printable

__all__ = ["print_counters", "print_line"]


def print_line(console: Console, line: Line) -> None:
    """Print a Template or a record: a heading, then names and values, in a terminal within its width."""
    heading = Text()
    heading.append(line["type"].replace("_", " "), style="bold")
    heading.append(
        f"  template {line['template_id']}, observation domain {line['observation_domain_id']}, from {line['session']}",
        style="cyan",
    )
    console.print(heading, soft_wrap=True)
    body = Text()
    for index, (name, value) in enumerate(line.get("elements") or line.get("fields") or []):
        if index:
            body.append("  ")
        body.append(f"{name}=", style="dim")
        body.append(_text(value))
    if console.is_terminal:
        console.print(Padding(body, (0, 0, 0, 2), expand=False))
    else:  # a line a record: the next program may be grep
        console.print(Text("  ") + body, soft_wrap=True)


def print_counters(console: Console, counters: Line) -> None:
    """Print what the whole input added up to."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in _flat(counters):
        table.add_row(name, str(value))
    console.print()
    console.print(table)


def _flat(counters: Line) -> Iterator[tuple[str, int]]:
    for name, value in counters.items():
        if name == "reasons":
            yield from ((f"  {reason}", count) for reason, count in value.items())
        elif name != "type":
            yield name.replace("_", " "), value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return printable(str(value))
