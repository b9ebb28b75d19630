"""``flowjoin plugins``: what is installed, what it brings, and why it cannot be used."""

from __future__ import annotations

import argparse

from flowjoin._cli.output import add_output_argument, write_rows
from flowjoin._plugins.listing import list_plugins

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one row a plugin; a broken plugin is a row, not a failure."""
    rows = [
        {
            "name": listing.name,
            "distribution": listing.distribution,
            "version": listing.version,
            "kinds": list(listing.kinds or ()),
            "state": listing.problem or "ok",
        }
        for listing in list_plugins(load=True)
    ]
    empty = "no plugin is installed; pip install flowjoin-log brings the first"
    write_rows(("name", "distribution", "version", "kinds", "state"), rows, arguments.output, empty=empty)
    return 0
