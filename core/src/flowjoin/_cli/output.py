"""Rows for people and for programs: ``--output table|json|csv``.

Values may come from the network or from other people's packages: in tables their control characters are
made visible, so that none reaches the terminal.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TextIO, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flowjoin._cli.printable import printable

__all__ = ["Cell", "OutputFormat", "add_output_argument", "write_rows"]

OutputFormat: TypeAlias = Literal["table", "json", "csv"]
Cell: TypeAlias = "str | int | float | bool | Sequence[str] | None"

_FORMATS: Final = ("table", "json", "csv")


def add_output_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--output``."""
    parser.add_argument(
        "--output", choices=_FORMATS, default="table", help="table for people, json or csv for programs"
    )


def write_rows(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Cell]],
    output: OutputFormat,
    *,
    out: TextIO | None = None,
    empty: str = "",
) -> None:
    """Print rows: a JSON array of objects, CSV with a header (RFC 4180), or a table.

    Args:
        columns: keys of the rows, in order; in tables also the headings.
        rows: what to print; a list is joined with commas where there is one cell for it.
        output: the form.
        out: default: standard output.
        empty: what a table says instead when there is no row.
    """
    out = sys.stdout if out is None else out
    if output == "json":
        json.dump([{column: row[column] for column in columns} for row in rows], out, indent=2, ensure_ascii=False)
        out.write("\n")
    elif output == "csv":
        writer = csv.writer(out, lineterminator="\r\n")
        writer.writerow(columns)
        writer.writerows([_text(row[column]) for column in columns] for row in rows)
    elif not rows and empty:
        out.write(f"{empty}\n")
    elif out.isatty():
        _write_terminal_table(columns, rows, out)
    else:
        _write_plain_table(columns, rows, out)


def _write_terminal_table(columns: Sequence[str], rows: Sequence[Mapping[str, Cell]], out: TextIO) -> None:
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(_text(row[column]))) for column in columns))  # Text: no markup is read
    Console(file=out, highlight=False).print(table)


def _write_plain_table(columns: Sequence[str], rows: Sequence[Mapping[str, Cell]], out: TextIO) -> None:
    """Columns in line, nothing cut: the next program may be grep."""
    lines = [list(columns), *([printable(_text(row[column])) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        out.write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n")


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, str | int | float):
        return str(cell)
    return ",".join(cell)
