"""What the commands that take a configuration share: reading it, what to say about it, the log it asks for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from flowjoin._cli.printable import printable
from flowjoin._config.file import parse_file, read_file
from flowjoin._config.load import LoadedConfig, Notice
from flowjoin._config.model import Log
from flowjoin._telemetry.logs import LogFormat, LogLevel, Logs

__all__ = ["add_config_argument", "make_logs", "read_config", "say_notices"]


def add_config_argument(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Declare ``-c FILE``."""
    parser.add_argument("-c", "--config", metavar="FILE", required=required, help="the configuration file")


def read_config(path: str, *, strict: bool = False, for_agent: bool = False) -> LoadedConfig:
    """Read and validate a file.

    Raises:
        ConfigError: it cannot be read, or what is in it cannot be used.
    """
    return parse_file(read_file(path), path, strict=strict, for_agent=for_agent)


def say_notices(notices: Iterable[Notice], logs: Logs | None = None) -> None:
    """Tell what there is to say about a good configuration: to people, or in a log that a program reads."""
    for notice in notices:
        if logs is None or logs.format == "console":
            print(_line(notice), file=sys.stderr)
        else:
            tell = logs.logger(component="core", is_answer=True)
            (tell.warning if notice.severity == "warning" else tell.info)("configuration_notice", problem=str(notice))


def make_logs(config: Log, *, level: LogLevel | None = None) -> Logs:
    """The process's own log, on standard error; ``level`` takes the place of the configured one."""
    return Logs(log_format=log_format(config), level=level or config.level)


def log_format(config: Log) -> LogFormat:
    """The form of the lines on this standard error."""
    if config.format == "auto":
        return "console" if sys.stderr.isatty() else "json"
    return config.format


def _line(notice: Notice) -> str:
    return f"{notice.severity}: {printable(str(notice))}"
