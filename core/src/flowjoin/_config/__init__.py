"""The configuration file, read into frozen values with exact error paths."""

from flowjoin._config.binder import bind, bind_settings
from flowjoin._config.durations import format_duration, parse_duration
from flowjoin._config.endpoint import Endpoint
from flowjoin._config.fields import Settings
from flowjoin._config.load import LoadedConfig, Notice, load_config, resolve_elements
from flowjoin._config.model import Collector, Config, ExporterEntry, Limits, PluginEntry, Spool
from flowjoin._config.sizes import format_octets, parse_octets

__all__ = [
    "Collector",
    "Config",
    "Endpoint",
    "ExporterEntry",
    "Limits",
    "LoadedConfig",
    "Notice",
    "PluginEntry",
    "Settings",
    "Spool",
    "bind",
    "bind_settings",
    "format_duration",
    "format_octets",
    "load_config",
    "parse_duration",
    "parse_octets",
    "resolve_elements",
]
