"""``flowjoin config schema``: the JSON Schema of the configuration with the installed plugins' keys."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable

from flowjoin._config.json_schema import json_schema
from flowjoin._model.errors import PluginError
from flowjoin._plugins.discovery import installed_plugins
from flowjoin._plugins.loader import LoadedPlugin, load_plugins

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    schema = actions.add_parser("schema", help="print the JSON Schema (draft 2020-12)")
    schema.add_argument("--no-plugins", action="store_true", help="leave out the keys of installed plugins")


def run(arguments: argparse.Namespace) -> int:
    """Print the schema; a plugin that cannot be loaded is named and left out."""
    loaded = () if arguments.no_plugins else _loaded_plugins()
    configs: dict[str, dict[str, type]] = {"exporters": {}, "enrichers": {}, "sources": {}, "lookups": {}}
    for plugin in loaded:
        for key, types in (
            ("exporters", plugin.exporter_types),
            ("enrichers", plugin.enricher_types),
            ("sources", plugin.source_types),
            ("lookups", plugin.lookup_types),
        ):
            configs[key].update({type_.name: type_.config for type_ in types})
    print(json.dumps(json_schema(configs), indent=2, ensure_ascii=False))
    return 0


def _loaded_plugins() -> Iterable[LoadedPlugin]:
    for name in dict.fromkeys(plugin.name for plugin in installed_plugins()):
        try:
            yield from load_plugins([name])
        except PluginError as exc:
            print(f"flowjoin: left out: {exc}", file=sys.stderr)
