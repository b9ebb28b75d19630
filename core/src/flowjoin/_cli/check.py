"""``flowjoin check``: everything that can be known about a configuration without starting anything."""

from __future__ import annotations

import argparse
import os
import sys
import time

from flowjoin._certificates.configured import check_files
from flowjoin._cli.configuration import add_config_argument, read_config, say_notices
from flowjoin._config.plugin_settings import bind_plugins
from flowjoin._model.errors import ConfigError
from flowjoin._pipeline.spool.places import orphan_spools
from flowjoin._pipeline.state_directory import existing_directory, refuse_no_directory
from flowjoin._plugins.loader import load_plugins
from flowjoin.wire.registry import default_registry

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_config_argument(parser, required=True)
    parser.add_argument(
        "--agent", action="store_true", help="as flowjoin agent reads it; a file with Antrea's flowExporter always is"
    )
    parser.add_argument("--strict", action="store_true", help="an unknown key is an error in Antrea's sections too")


def run(arguments: argparse.Namespace) -> int:
    """Say whether ``flowjoin run`` would take the file; warnings go to standard error."""
    loaded = read_config(arguments.config, strict=arguments.strict, for_agent=arguments.agent)
    say_notices(loaded.warnings)
    loaded.require_available()
    say_notices(check_files(loaded, time.time()))
    say_notices(bind_plugins(loaded, load_plugins, default_registry()).remarks)
    try:
        refuse_no_directory(loaded.config.state_directory)
    except ConfigError as exc:
        raise loaded.located(exc) from exc
    directory = existing_directory(loaded.config.state_directory, os.environ)
    for name in orphan_spools(directory, {entry.name for entry in loaded.config.exporters if entry.spool != "none"}):
        problem = f"rows wait in the spool {name}, and no exporter has this name"
        print(f"warning: {problem}; flowjoin spool resend {directory}/spool/{name} --to NAME", file=sys.stderr)
    print(f"{arguments.config}: good")
    return 0
