"""``flowjoin run``: collect, join, deliver, until told to stop."""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from flowjoin._certificates.configured import check_files
from flowjoin._cli.commands import EXIT_UNUSABLE, CommandError
from flowjoin._cli.configuration import add_config_argument, log_format, make_logs, say_notices
from flowjoin._cli.demo import DEMO_CONFIG, INTRODUCTION, send_demo_traffic
from flowjoin._cli.printable import printable
from flowjoin._cli.standard_output import watch_reader, writes_to_standard_output
from flowjoin._config.file import parse_file, read_file
from flowjoin._config.load import LoadedConfig, load_config
from flowjoin._config.plugin_settings import BoundConfig, bind_plugins
from flowjoin._pipeline.process import Companion
from flowjoin._pipeline.program import run_program
from flowjoin._pipeline.reload import ConfigurationFile
from flowjoin._plugins.loader import load_plugins
from flowjoin._telemetry.library_lines import libraries_told
from flowjoin._telemetry.logs import Logs
from flowjoin.wire.registry import default_registry

__all__ = ["add_arguments", "run", "run_file"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_config_argument(parser, required=False)
    parser.add_argument(
        "--demo", action="store_true", help="join made-up traffic sent over loopback; needs no configuration"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; a second one stops at once.

    Raises:
        BindError: an address cannot be had.
        CommandError: it is not said what to run.
    """
    if arguments.demo == (arguments.config is not None):
        either = "; not both" if arguments.demo else ""
        raise CommandError(f"write -c FILE to run a configuration, or --demo{either}", exit_code=EXIT_UNUSABLE)
    if arguments.demo:
        return _run_demo()
    return run_file(arguments.config)


def run_file(path: str, *, for_agent: bool = False) -> int:
    """Run a configuration file; ``for_agent`` as of ``load_config``.

    Raises:
        BindError: an address cannot be had.
    """
    octets = read_file(path)
    loaded = parse_file(octets, path, for_agent=for_agent)
    logs = make_logs(loaded.config.log)
    say_notices(loaded.warnings, logs)
    loaded.require_available()
    say_notices(check_files(loaded, time.time()), logs)
    file = None
    if Path(path).is_file():  # what came through a pipe cannot be read again
        file = ConfigurationFile(
            path=path,
            octets=octets,
            bind=partial(_bind, path=path, for_agent=for_agent),
            set_log=lambda log: logs.change(log.level, log_format(log)),
        )
    return _run(loaded, logs, file=file)


def _run_demo() -> int:
    loaded = load_config(DEMO_CONFIG, "the demo's configuration")
    logs = make_logs(loaded.config.log)
    if logs.format == "console":
        logs.text(INTRODUCTION)
    with tempfile.TemporaryDirectory(prefix="flowjoin-demo-") as directory:
        config = dataclasses.replace(loaded.config, state_directory=Path(directory))
        return _run(dataclasses.replace(loaded, config=config), logs, (send_demo_traffic,))


def _run(
    loaded: LoadedConfig, logs: Logs, companions: Sequence[Companion] = (), *, file: ConfigurationFile | None = None
) -> int:
    bound = bind_plugins(loaded, load_plugins, default_registry())
    say_notices(bound.remarks, logs)
    if bound.exporters and all(map(writes_to_standard_output, bound.exporters)):
        companions = (*companions, watch_reader)
    with libraries_told(logs):
        return run_program(bound, environment=os.environ, logs=logs, companions=companions, file=file)


def _bind(octets: bytes, *, path: str, for_agent: bool) -> tuple[BoundConfig, tuple[str, ...]]:
    loaded = parse_file(octets, path, for_agent=for_agent)
    loaded.require_available()
    bound = bind_plugins(loaded, load_plugins, default_registry())
    return bound, tuple(printable(str(notice)) for notice in (*loaded.warnings, *bound.remarks))
