from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from flowjoin._config.load import load_config
from flowjoin._config.plugin_settings import BoundConfig, bind_plugins, placed
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import ConfigError, PluginContractError, PluginLoadError
from flowjoin.api._types import API_VERSION, Check, EnricherType, ExporterType, LookupType, Remark, SourceType
from flowjoin.wire.registry import default_registry


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    path: Path
    depth: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NoConfig:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenConfig:
    value: complex = 0j


def never(*_: object) -> NoReturn:
    raise AssertionError("nothing is opened here")


def check_log(config: LogConfig, registry: ElementRegistry) -> None:
    if config.path == Path("bug"):
        raise ZeroDivisionError("of its own")
    if config.path == Path("/taken"):
        raise ConfigError("is taken", path="path")
    if config.path == Path("tenant"):
        registry.by_name("tenant")


class FakePlugins:
    """Loaded plugins: log and broken export, fake does everything else."""

    def __init__(self, check_other: Check = lambda _config, _registry: None) -> None:
        self.asked: list[str] = []
        self.check_other = check_other

    def load(self, names: Iterable[str]) -> FakePlugins:
        self.asked = list(names)
        for name in self.asked:
            if name not in ("log", "fake", "broken"):
                raise PluginLoadError("is not installed", plugin=name)
        return self

    def exporter_type(self, name: str) -> ExporterType:
        if name == "fake":
            raise PluginContractError("hands over no exporter", plugin=name, distribution="d", version="1")
        config: type[Any] = LogConfig if name == "log" else BrokenConfig
        return ExporterType(name, config, never, API_VERSION, check=check_log if name == "log" else never)

    def enricher_type(self, name: str) -> EnricherType:
        return EnricherType(name, NoConfig, (), (), never, API_VERSION, check=self.check_other)

    def source_type(self, name: str) -> SourceType:
        return SourceType(name, NoConfig, never, API_VERSION, check=self.check_other)

    def lookup_type(self, name: str) -> LookupType:
        return LookupType(name, NoConfig, (), never, API_VERSION, check=self.check_other)

    def extend_registry(self, registry: ElementRegistry) -> ElementRegistry:
        return registry


def bound(text: str) -> BoundConfig:
    return bind_plugins(load_config(text, "f"), FakePlugins().load, default_registry())


def test_every_entry_meets_its_type_and_its_settings_are_bound() -> None:
    result = bound(
        """
exporters: [{type: log, path: /a, spool: none}, {type: log, name: b, path: /b, depth: 2}]
enrichers: [{type: fake}]
sources: [{type: fake}]
lookups: [{type: fake}]
recordContents: {elements: [bgpSourceAsNumber, {name: tenant, id: 1, type: string}]}
"""
    )
    assert [(one.entry.name, one.type.name, one.settings) for one in result.exporters] == [
        ("log", "log", LogConfig(path=Path("/a"))),
        ("b", "log", LogConfig(path=Path("/b"), depth=2)),
    ]
    others = [result.enrichers[0].settings, result.sources[0].settings, result.lookups[0].settings]
    assert others == [NoConfig()] * 3
    assert [element.name for element in result.elements] == ["bgpSourceAsNumber", "tenant"]
    assert result.registry.by_name("tenant").enterprise_number == 32473


def test_each_plugin_is_asked_for_once_and_no_other() -> None:
    plugins = FakePlugins()
    loaded = load_config("exporters: [{type: log, path: a}, {type: log, name: b, path: b}]\nlookups: [{type: fake}]")
    bind_plugins(loaded, plugins.load, default_registry())
    assert plugins.asked == ["fake", "log"]


def test_antreas_sections_ask_for_the_plugins_that_do_their_work() -> None:
    with pytest.raises(PluginLoadError) as caught:
        bound("clickHouse:\n  enable: true\n")
    assert str(caught.value) == "plugin 'clickhouse': is not installed (named at f:2: clickHouse)"


def test_a_plugin_without_the_wanted_type_is_named_with_its_place() -> None:
    with pytest.raises(PluginContractError) as caught:
        bound("exporters:\n  - {type: fake}\n")
    assert str(caught.value) == (
        "plugin 'fake' (distribution d 1): hands over no exporter (named at f:2: exporters[0])"
    )


def test_a_wrong_setting_of_a_plugin_has_the_path_of_its_entry() -> None:
    with pytest.raises(ConfigError) as caught:
        bound("exporters:\n  - type: log\n    path: /a\n    dept: 1\n")
    assert str(caught.value) == 'f:4: exporters[0].dept: is not a known key; did you mean "depth"?'


def test_a_required_setting_that_is_misspelt_is_told_as_such_and_not_as_missing() -> None:
    with pytest.raises(ConfigError) as caught:
        bound("exporters:\n  - type: log\n    pth: /a\n")
    assert str(caught.value) == 'f:3: exporters[0].pth: is not a known key; did you mean "path"?'


def test_a_configuration_class_that_cannot_be_bound_is_the_plugins_fault() -> None:
    with pytest.raises(PluginContractError, match="its configuration BrokenConfig cannot be bound"):
        bound("exporters: [{type: broken, value: 1}]")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (ConfigError("is taken", path="path"), "f:3: exporters[0].path: is taken"),
        (ConfigError("is taken", path="path[2].x"), "f:3: exporters[0].path[2].x: is taken"),
        (ConfigError("is taken"), "f:2: exporters[0]: is taken"),
        (ConfigError("gives none", path="lookups"), "lookups: gives none"),
        (ConfigError("is no table", line=7, source="other"), "other:7: is no table"),
    ],
)
def test_what_a_plugin_says_about_its_own_keys_gets_their_place_in_the_file(said: ConfigError, shown: str) -> None:
    plugin = bound("exporters:\n  - type: log\n    path: /a\n").exporters[0]
    assert str(placed(said, plugin)) == shown


def test_what_an_exporter_knows_to_be_wrong_is_said_before_anything_is_opened() -> None:
    with pytest.raises(ConfigError) as caught:
        bound("exporters:\n  - type: log\n    path: /taken\n")
    assert str(caught.value) == "f:3: exporters[0].path: is taken"
    bound("recordContents: {elements: [{name: tenant, id: 1, type: string}]}\nexporters: [{type: log, path: tenant}]")


def test_a_check_that_fails_is_the_plugins_fault() -> None:
    with pytest.raises(PluginContractError, match="its check failed: ZeroDivisionError: of its own"):
        bound("exporters: [{type: log, path: bug}]")


@pytest.mark.parametrize("key", ["sources", "enrichers", "lookups"])
def test_every_kind_of_plugin_is_asked_what_it_knows_before_anything_is_opened(key: str) -> None:
    def refuse(_config: NoConfig, _registry: ElementRegistry) -> None:
        raise ConfigError("is not there")

    with pytest.raises(ConfigError) as caught:
        bind_plugins(load_config(f"{key}: [{{type: fake}}]", "f"), FakePlugins(refuse).load, default_registry())
    assert str(caught.value) == f"f:1: {key}[0]: is not there"


def test_what_plugins_have_to_say_of_a_good_configuration_is_told_with_its_place() -> None:
    def remark(_config: NoConfig, _registry: ElementRegistry) -> list[Remark]:
        return [Remark(problem="is slow"), Remark(problem="is old", path="other")]

    loaded = load_config("enrichers: [{type: fake}]\nlookups: []", "f")
    result = bind_plugins(loaded, FakePlugins(remark).load, default_registry())
    assert [(each.severity, str(each)) for each in result.remarks] == [
        ("warning", "f:1: enrichers[0]: is slow"),
        ("warning", "other: is old"),
    ]
