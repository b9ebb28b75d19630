"""An exporter whose destination is a list: the smallest one that keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from flowjoin.api import Exporter, ExporterType, FlowBatch, PluginContext, RetryableExportError, Value

__all__ = ["MEMORY_EXPORTER", "MemoryConfig"]

_SLICE: Final = 256  # rows turned into dictionaries between two checkpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """Where rows go.

    Attributes:
        rows: every row delivered, by element name.
        failures: errors that the next calls of ``export`` raise, first one first.
    """

    rows: list[dict[str, Value]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def fail_next(self, times: int = 1) -> None:
        """Let the next calls fail as a destination that is down does."""
        self.failures.extend(RetryableExportError("told to fail") for _ in range(times))


class _MemoryExporter:
    def __init__(self, config: MemoryConfig, context: PluginContext) -> None:
        self._config = config
        self._delivered = context.counter("rows_delivered", "Rows appended to the list")

    async def export(self, batch: FlowBatch) -> None:
        await trio.lowlevel.checkpoint()
        if self._config.failures:
            raise self._config.failures.pop(0)
        rows: list[dict[str, Value]] = []
        for start in range(0, len(batch), _SLICE):
            rows += batch.slice(start, start + _SLICE).to_dicts()
            await trio.lowlevel.checkpoint()
        self._config.rows.extend(rows)
        self._delivered.inc(len(batch))


@asynccontextmanager
async def _open(config: MemoryConfig, context: PluginContext) -> AsyncIterator[Exporter]:
    await trio.lowlevel.checkpoint()
    yield _MemoryExporter(config, context)


MEMORY_EXPORTER = ExporterType("memory", MemoryConfig, _open, api_version=1)
