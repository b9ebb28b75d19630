"""Every plugin of this repository passes its kits: in its own tests, flowjoin-log here too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowjoin.api import ExporterType
from flowjoin.testing import ExporterConformance

flowjoin_log = pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")

PLUGINS = Path(__file__).parents[2] / "plugins"


KITS = {
    "flowjoin_exporter_types": "ExporterConformance",
    "flowjoin_enricher_types": "EnricherConformance",
    "flowjoin_lookup_types": "LookupConformance",
    "flowjoin_source_types": "SourceConformance",
}


@pytest.mark.parametrize("plugin", sorted(PLUGINS.glob("*/pyproject.toml")), ids=lambda path: path.parent.name)
def test_a_plugins_own_tests_are_the_kits(plugin: Path) -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in plugin.parent.glob("src/*/*.py"))
    wanted = [kit for hook, kit in KITS.items() if f"def {hook}" in sources]
    assert wanted
    tests = (plugin.parent / "tests" / "test_conformance.py").read_text(encoding="utf-8")
    for kit in wanted:
        assert f"({kit})" in tests


class TestFlowLog(ExporterConformance):
    @pytest.fixture
    def exporter_type(self) -> ExporterType:
        types: list[ExporterType] = flowjoin_log.flowjoin_exporter_types()
        return types[0]

    @pytest.fixture
    def config(self, tmp_path: Path) -> Any:  # the plugin is looked up when the test runs
        return flowjoin_log.LogConfig(path=str(tmp_path / "flows.jsonl"), format="jsonLines", omit_defaults=True)

    @pytest.fixture
    def delivered(self, config: Any) -> Callable[[], list[object]]:
        path = Path(config.path)
        return lambda: [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
