"""Exporter plugin: one line of text per flow, into a file that rotates or onto standard output."""

from flowjoin.api import ExporterType, hookimpl
from flowjoin_log._config import FilterConfig, LogConfig, check, patience
from flowjoin_log._exporter import open_log

__all__ = ["FilterConfig", "LogConfig", "flowjoin_exporter_types"]


@hookimpl
def flowjoin_exporter_types() -> list[ExporterType]:
    """Hand over the type that ``type: log`` stands for."""
    return [ExporterType("log", LogConfig, open_log, api_version=1, check=check, patience=patience)]
