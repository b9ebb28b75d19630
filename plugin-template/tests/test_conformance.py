"""The exporter keeps flowjoin's contract: the tests come from the kit, the fixtures from here."""

from collections.abc import Callable
from pathlib import Path

import pytest

from flowjoin.api import ExporterType
from flowjoin.testing import ExporterConformance
from flowjoin_example import Config, flowjoin_exporter_types


class TestExporter(ExporterConformance):
    @pytest.fixture
    def exporter_type(self) -> ExporterType:
        return flowjoin_exporter_types()[0]

    @pytest.fixture
    def config(self, tmp_path: Path) -> Config:
        return Config(path=str(tmp_path / "flows.jsonl"))

    @pytest.fixture
    def delivered(self, config: Config) -> Callable[[], list[str]]:
        path = Path(config.path)
        return lambda: path.read_text().splitlines() if path.exists() else []
