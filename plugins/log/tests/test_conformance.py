"""flowjoin-log keeps the exporter contract, in each of its formats."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from flowjoin.api import ExporterType
from flowjoin.testing import ExporterConformance
from flowjoin_log import LogConfig, flowjoin_exporter_types


def rows_of(path: Path) -> list[object]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def lines_of(path: Path) -> list[object]:
    return list(path.read_bytes().splitlines()) if path.exists() else []


class TestCsv(ExporterConformance):
    @pytest.fixture
    def exporter_type(self) -> ExporterType:
        return flowjoin_exporter_types()[0]

    @pytest.fixture
    def config(self, tmp_path: Path) -> LogConfig:
        return LogConfig(path=str(tmp_path / "logs" / "flows.log"))

    @pytest.fixture
    def delivered(self, config: LogConfig) -> Callable[[], list[object]]:
        return lambda: rows_of(Path(config.path))

    @pytest.fixture
    def other_config(self, tmp_path: Path) -> LogConfig:
        return LogConfig(path=str(tmp_path / "logs" / "other.log"))

    @pytest.fixture
    def other_delivered(self, other_config: LogConfig) -> Callable[[], list[object]]:
        return lambda: rows_of(Path(other_config.path))

    @pytest.fixture
    def destination_down(self, config: LogConfig) -> Callable[[], AbstractContextManager[None]]:
        """The directory is gone and a file has its name: what an unmounted disk looks like, also to root."""

        @contextmanager
        def down() -> Iterator[None]:
            directory = Path(config.path).parent
            away = directory.with_name("away")
            directory.rename(away)
            directory.touch()
            try:
                yield
            finally:
                directory.unlink()
                away.rename(directory)

        return down


class TestJsonLines(TestCsv):
    @pytest.fixture
    def config(self, tmp_path: Path) -> LogConfig:
        return LogConfig(path=str(tmp_path / "logs" / "flows.jsonl"), format="jsonLines")

    @pytest.fixture
    def delivered(self, config: LogConfig) -> Callable[[], list[object]]:
        return lambda: lines_of(Path(config.path))


class TestAntreasCsv(TestJsonLines):
    @pytest.fixture
    def config(self, tmp_path: Path) -> LogConfig:
        return LogConfig(path=str(tmp_path / "logs" / "flows.log"), csv_quoting="antrea", pretty_print=False)


class TestOneDestinationTwice(TestCsv):
    """Without a second file the second instance on the first one's file is refused."""

    @pytest.fixture
    def other_config(self) -> None:
        return None

    @pytest.fixture
    def other_delivered(self) -> None:
        return None
