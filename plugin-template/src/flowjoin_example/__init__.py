"""Exporter plugin: each flow as a line of JSON, appended to a file."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import trio

from flowjoin.api import Exporter, ExporterType, FlowBatch, PluginContext, RetryableExportError, hookimpl

__all__ = ["Config", "flowjoin_exporter_types"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The keys beside ``type`` and ``name``: ``some_key`` here is ``someKey`` in the file."""

    path: Annotated[str, "the file to append to"]


class _Exporter:
    def __init__(self, write: Callable[[bytes], Awaitable[int]], context: PluginContext) -> None:
        self._write = write
        self._delivered = context.counter("rows_delivered", "Rows appended to the file")

    async def export(self, batch: FlowBatch) -> None:
        lines: list[str] = []
        for start in range(0, len(batch), 128):  # a slice at a time: nothing may hold trio's thread for long
            lines += [json.dumps(flow) + "\n" for flow in batch.slice(start, start + 128).to_dicts()]
            await trio.lowlevel.checkpoint()
        data = "".join(lines).encode()
        try:
            while data:
                data = data[await self._write(data) :]
        except OSError as exc:  # the destination's fault and not the data's: the same batch comes again
            raise RetryableExportError(f"cannot write: {exc.strerror}", retry_after=1.0) from exc
        self._delivered.inc(len(batch))


@asynccontextmanager
async def _open(config: Config, context: PluginContext) -> AsyncIterator[Exporter]:
    async with await trio.open_file(config.path, "ab", buffering=0) as file:
        yield _Exporter(file.write, context)


@hookimpl
def flowjoin_exporter_types() -> list[ExporterType]:
    """Hand over the type that ``type: example`` stands for."""
    return [ExporterType("example", Config, _open, api_version=1)]
