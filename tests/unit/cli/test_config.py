from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

import jsonschema
import pytest

from flowjoin.__main__ import main
from flowjoin._cli import config
from flowjoin._model.errors import PluginLoadError
from flowjoin._plugins.discovery import InstalledPlugin
from flowjoin._plugins.loader import LoadedPlugin
from flowjoin.api._types import API_VERSION, ExporterType


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    path: str


def never(*_: object) -> NoReturn:
    raise AssertionError("nothing is opened here")


def installed(name: str) -> InstalledPlugin:
    return InstalledPlugin(name=name, distribution=name, version="1", target="m")


def load_plugins(names: Iterable[str]) -> Iterable[LoadedPlugin]:
    for name in names:
        if name == "sad":
            raise PluginLoadError("cannot be imported", plugin=name)
        yield LoadedPlugin(
            installed=installed(name),
            elements=(),
            lookup_types=(),
            source_types=(),
            enricher_types=(),
            exporter_types=(ExporterType("log", LogConfig, never, API_VERSION),),
        )


def test_the_schema_holds_the_keys_of_plugins_and_names_those_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config, "installed_plugins", lambda: [installed("log"), installed("sad")])
    monkeypatch.setattr(config, "load_plugins", load_plugins)
    assert main(["config", "schema"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "flowjoin: left out: plugin 'sad': cannot be imported\n"
    validator = jsonschema.Draft202012Validator(json.loads(captured.out))
    assert validator.is_valid({"exporters": [{"type": "log", "path": "/f"}]})
    assert not validator.is_valid({"exporters": [{"type": "log"}]})


def test_without_plugins_none_is_imported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(config, "installed_plugins", never)
    assert main(["config", "schema", "--no-plugins"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "flowjoin configuration"
