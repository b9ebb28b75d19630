"""``flowjoin agent``: this Node's connections to a Flow Aggregator, or to any exporter, until told to stop."""

from __future__ import annotations

import argparse

from flowjoin._cli.configuration import add_config_argument
from flowjoin._cli.run import run_file

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_config_argument(parser, required=True)


def run(arguments: argparse.Namespace) -> int:
    """Run as ``flowjoin run`` does, with connections as the source.

    Raises:
        BindError: an address cannot be had.
    """
    return run_file(arguments.config, for_agent=True)
