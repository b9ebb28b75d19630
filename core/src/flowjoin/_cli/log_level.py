"""``flowjoin log-level [LEVEL]``: what a running flowjoin writes to its log, asked for or changed until its end."""

from __future__ import annotations

import argparse

from flowjoin._cli.api_client import add_server_arguments, ask, refusal, server_of

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "level",
        nargs="?",
        metavar="LEVEL",
        help="debug, info, warning, error, or a number as antctl takes it: 4 and more is debug, less is info",
    )
    add_server_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the level, or change it and print nothing.

    Raises:
        CommandError: nobody answers, or there is no such level.
        ConfigError: the configuration that says whom to ask cannot be used.
    """
    wished = {} if arguments.level is None else {"level": arguments.level}
    with ask(server_of(arguments), "/loglevel", wished) as answer:
        if answer.status != 200:
            raise refusal(answer)
        if arguments.level is None:
            print(answer.log_level or answer.body().decode(errors="replace").strip())
    return 0
