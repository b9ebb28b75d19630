"""An exporter that tests open, and what its collector got."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from ipfix_collector import Collector

from flowjoin.api import AddressFamily, RetryableExportError
from flowjoin.testing import RecordingContext
from flowjoin_ipfix import IpfixConfig
from flowjoin_ipfix._exporter import open_ipfix

__all__ = ["PATIENCE", "V4", "V6", "Start", "exporter_ready", "facts_of", "numbers", "opened", "ports"]

Start = Callable[..., Awaitable[Collector]]
V4, V6 = AddressFamily.IPV4, AddressFamily.IPV6
PATIENCE = 60.0  # the machine may be busy


def ports(collector: Collector) -> list[object]:
    return [record["sourceTransportPort"] for record in collector.records]


def numbers(first: int, count: int) -> list[object]:
    return [1024 + number for number in range(first, first + count)]


@asynccontextmanager
async def opened(config: IpfixConfig, context: RecordingContext | None = None) -> AsyncIterator[Any]:
    with trio.fail_after(PATIENCE):
        async with open_ipfix(config, context or RecordingContext(name="ipfix")) as exporter:
            yield exporter


def facts_of(context: RecordingContext, event: str) -> dict[str, object]:
    [line] = [line for line in context.log.lines if line.event == event]
    return dict(line.facts)


async def exporter_ready(exporter: Any, batch: Any) -> int:
    """Exports until it goes through, as a lane does; gives how often it did not."""
    failures = 0
    while True:
        try:
            await exporter.export(batch)
        except RetryableExportError:
            failures += 1
            await trio.sleep(0.01)
        else:
            return failures
