"""What the commands that take a configuration share: reading it, what to say about it, the log it asks for."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from flowjoin._cli.printable import printable
from flowjoin._config.load import LoadedConfig, Notice, load_config
from flowjoin._config.model import Log
from flowjoin._config.nodes import MAX_CHARACTERS
from flowjoin._model.errors import ConfigError
from flowjoin._telemetry.logs import LogLevel, Logs

__all__ = ["add_config_argument", "make_logs", "read_config", "say_notices"]

_MAX_OCTETS: Final = 4 * MAX_CHARACTERS  # UTF-8


def add_config_argument(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Declare ``-c FILE``."""
    parser.add_argument("-c", "--config", metavar="FILE", required=required, help="the configuration file")


def read_config(path: str, *, strict: bool = False) -> LoadedConfig:
    """Read and validate a file.

    Raises:
        ConfigError: it cannot be read, or what is in it cannot be used.
    """
    try:
        with Path(path).open("rb") as file:
            octets = file.read(_MAX_OCTETS + 1)
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        cause = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise ConfigError(f"cannot be read: {cause}", source=path) from exc
    try:
        text = octets.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = octets.count(b"\n", 0, exc.start) + 1
        raise ConfigError("is not UTF-8 text", line=line, source=path) from exc
    return load_config(text, path, strict=strict)


def say_notices(loaded: LoadedConfig) -> None:
    """Print what there is to say about a good configuration."""
    for notice in loaded.warnings:
        print(_line(notice), file=sys.stderr)


def make_logs(config: Log, *, level: LogLevel | None = None) -> Logs:
    """The process's own log, on standard error; ``level`` takes the place of the configured one."""
    log_format = config.format
    if log_format == "auto":
        log_format = "console" if sys.stderr.isatty() else "json"
    return Logs(log_format=log_format, level=level or config.level)


def _line(notice: Notice) -> str:
    return f"{notice.severity}: {printable(str(notice))}"
