"""``flowjoin run``: collect, join, deliver, until told to stop."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from flowjoin._cli.commands import CommandError
from flowjoin._cli.configuration import add_config_argument, read_config, say_notices
from flowjoin._config.model import Log
from flowjoin._config.plugin_settings import bind_plugins
from flowjoin._model.errors import BindError
from flowjoin._pipeline.program import run_program
from flowjoin._plugins.loader import load_plugins
from flowjoin._telemetry.logs import LogFormat, Logs
from flowjoin.wire.registry import default_registry

__all__ = ["add_arguments", "run"]

_EXIT_FAILED: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_config_argument(parser, required=True)


def run(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; a second one stops at once.

    Raises:
        CommandError: an address cannot be had.
    """
    loaded = read_config(arguments.config)
    say_notices(loaded)
    loaded.require_available()
    bound = bind_plugins(loaded, load_plugins, default_registry())
    try:
        return run_program(bound, environment=os.environ, logs=_logs(bound.config.log))
    except* BindError as group:
        error = _first(group)
    raise CommandError(str(error), exit_code=_EXIT_FAILED) from error


def _logs(config: Log) -> Logs:
    log_format: LogFormat = config.format if config.format != "auto" else "console" if sys.stderr.isatty() else "json"
    return Logs(log_format=log_format, level=config.level)


def _first(group: BaseExceptionGroup[BindError]) -> BindError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
