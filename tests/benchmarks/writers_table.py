"""Rows a CPU second of the writers: ``python tests/benchmarks/writers_table.py``; medians, both forms."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from kernel_table import Traffic, feed, kernel_with_template
from one_table import Figure, show

from flowjoin._kernel import row_writing
from flowjoin.api import FlowBatch
from flowjoin.api.lines import CsvLines, JsonLines
from flowjoin.api.writers import Fixed, NetworkOrder, NumberColumn, PackedColumn, Piece, TextStyle, texts_of
from flowjoin_log._columns import columns_of
from flowjoin_log._pretty import PRETTY

FLOWS, RUNS = 20_000, 7


def batches() -> list[FlowBatch]:
    """What the kernel gives for an agent's flows: 81 columns, 22 of them strings."""
    traffic = Traffic(is_ipv6=False, per_message=60)
    kernel = kernel_with_template("auto", traffic)
    feed(kernel, traffic.messages(0, FLOWS, 10, (0, 1)))
    made = []
    while (due := kernel.next_expiry()) is not None and due <= 0.0:
        made += kernel.expire(0.0, 4_096)
    return made


def csv_of(batch: FlowBatch) -> None:
    for _ in CsvLines(columns_of("antrea-2.7"), is_quoted=True, words=PRETTY).render(batch):
        pass


def json_of(batch: FlowBatch) -> None:
    for _ in JsonLines().render(batch):
        pass


def ipfix_of(batch: FlowBatch) -> None:
    pieces: list[Piece] = []
    for element in batch.schema.elements:
        column = batch.column(element.name)
        if isinstance(column, NumberColumn):
            pieces.append(NetworkOrder(column))
        elif isinstance(column, PackedColumn):
            pieces.append(Fixed(column))
        else:
            pieces.append(texts_of(batch, element.name, TextStyle.IPFIX))
    row_writing.write_rows(pieces, len(batch))


def native_of(batch: FlowBatch) -> None:
    """ClickHouse's Native format: numbers and addresses are sent as they lie, texts written column by column."""
    block: list[bytes | memoryview] = []
    for element in batch.schema.elements:
        column: Any = batch.column(element.name)
        if isinstance(column, NumberColumn | PackedColumn):
            block.append(column.buffer)
        else:
            block.append(row_writing.write_rows([texts_of(batch, element.name, TextStyle.NATIVE)], len(batch))[0])
    b"".join(block)


def figures() -> Iterator[Figure]:
    """All of them, as they are found."""
    given = batches()
    rows = sum(map(len, given))
    compiled = row_writing._compiled
    for name, write in WRITERS.items():
        for program, form, runs in (("flowjoin", compiled, RUNS), ("flowjoin, plain", lambda: None, 2)):
            row_writing._compiled = form  # type: ignore[assignment]
            found = []
            for _ in range(runs):
                fresh = [batch.slice(0, len(batch)) for batch in given]  # what a batch remembers of its texts is gone
                began = time.process_time()
                for batch in fresh:
                    write(batch)
                found.append(rows / (time.process_time() - began))
            yield Figure(name, "rows/s", program, statistics.median(found))
    row_writing._compiled = compiled


WRITERS: dict[str, Callable[[FlowBatch], None]] = {
    "CSV, Antrea's 30 columns": csv_of,
    "JSON lines, 81 members": json_of,
    "IPFIX, 81 elements": ipfix_of,
    "ClickHouse Native, 81 columns": native_of,
}


if __name__ == "__main__":
    show(figures())
