"""The in-memory exporter keeps the contract that it is used to stand in for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from flowjoin.api import ExporterType, Value
from flowjoin.testing import MEMORY_EXPORTER, ExporterConformance, MemoryConfig
from flowjoin.testing.checks import Subject


class TestMemoryExporter(ExporterConformance):
    @pytest.fixture
    def exporter_type(self) -> ExporterType:
        return MEMORY_EXPORTER

    @pytest.fixture
    def config(self) -> MemoryConfig:
        return MemoryConfig()

    @pytest.fixture
    def delivered(self, config: MemoryConfig) -> Callable[[], list[dict[str, Value]]]:
        return lambda: config.rows

    @pytest.fixture
    def other_config(self) -> MemoryConfig:
        return MemoryConfig()

    @pytest.fixture
    def other_delivered(self, other_config: MemoryConfig) -> Callable[[], list[dict[str, Value]]]:
        return lambda: other_config.rows

    @pytest.fixture
    def destination_down(self, config: MemoryConfig) -> Callable[[], AbstractContextManager[None]]:
        @contextmanager
        def down() -> Iterator[None]:
            config.fail_next(times=2)
            yield
            config.failures.clear()

        return down

    @pytest.mark.xfail(strict=True, reason="it is no plugin: nothing installs it under an entry point")
    async def test_entry_point(self, subject: Subject) -> None:
        await super().test_entry_point(subject)


async def test_a_told_failure_is_raised_and_nothing_is_delivered() -> None:
    from flowjoin.api import RetryableExportError
    from flowjoin.testing import RecordingContext, numbered_flows

    config = MemoryConfig()
    config.fail_next()
    async with MEMORY_EXPORTER.open(config, RecordingContext()) as exporter:
        with pytest.raises(RetryableExportError):
            await exporter.export(numbered_flows(2))
        assert config.rows == []
        await exporter.export(numbered_flows(2))
    assert [row["sourceTransportPort"] for row in config.rows] == [1024, 1025]
