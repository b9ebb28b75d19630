"""One table of what several programs were measured to do: a row a figure, a column a program."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Figure", "show"]


class Figure(NamedTuple):
    """One median."""

    measured: str
    name: str
    program: str
    value: float


def show(figures: Iterable[Figure]) -> None:
    """Print the table, in Markdown, when all figures are there; each as it is found to standard error."""
    rows: dict[tuple[str, str], dict[str, float]] = {}
    programs: dict[str, None] = {}
    for figure in figures:
        print(f"{figure.measured}, {figure.name}: {figure.program} {shown(figure.value)}", file=sys.stderr)
        rows.setdefault((figure.measured, figure.name), {})[figure.program] = figure.value
        programs[figure.program] = None
    print(f"| measured | figure | {' | '.join(programs)} |")
    print("|---|---|" + "---|" * len(programs))
    for (measured, name), values in rows.items():
        cells = (shown(values[program]) if program in values else "" for program in programs)
        print(f"| {measured} | {name} | {' | '.join(cells)} |")


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:,.2f}"
