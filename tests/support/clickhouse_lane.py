"""Plays the lane towards a ClickHouse exporter, and counts what came of it.

The same batch comes again after each RetryableExportError, and never after anything else.
"""

from __future__ import annotations

from collections.abc import Callable

from clickhouse_process import ClickHouseProcess

from flowjoin.api import Exporter, FlowBatch, RetryableExportError
from flowjoin.testing.context import RecordingContext

MOST_ATTEMPTS = 20


def context() -> RecordingContext:
    return RecordingContext(name="clickhouse")


async def deliver(exporter: Exporter, batch: FlowBatch, *, between: Callable[[], None] = lambda: None) -> list[str]:
    """What the lane does; gives the problems on the way."""
    problems: list[str] = []
    for _ in range(MOST_ATTEMPTS):
        try:
            await exporter.export(batch)
        except RetryableExportError as exc:
            problems.append(str(exc))
            between()
        else:
            return problems
    raise AssertionError(f"not delivered after {MOST_ATTEMPTS} attempts: {problems[-1]}")


def sums(server: ClickHouseProcess, database: str) -> list[int]:
    """Rows and octets in the table, and what the four views made of them."""
    table = f"{database}.flows"
    (table_row,) = server.query(f"SELECT count(), sum(octetDeltaCount) FROM {table}")
    views = [
        server.query(f"SELECT sum(octetDeltaCount) FROM {table}_{view}_view")[0][0]
        for view in ("pod", "node", "policy", "minute")
    ]
    minutes = server.query(f"SELECT sum(flows) FROM {table}_minute_view")[0][0]
    return [int(value) for value in (*table_row, *views, minutes)]


def expected(batches: list[FlowBatch]) -> list[int]:
    rows = sum(map(len, batches))
    octets = sum(int(value) for batch in batches for value in batch.column("octetDeltaCount"))
    return [rows, octets, octets, octets, octets, octets, rows]
