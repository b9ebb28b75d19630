"""What a checkpoint of the flow table costs: ``python tests/benchmarks/checkpoint_table.py [FLOWS ...]``.

Half of the flows wait for their other half. CPU time: of the dump, which trio's thread does, of dump and packing, which
another thread does, and of the way back.
"""

from __future__ import annotations

import sys
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parent))

from kernel_table import Traffic, feed, kernel_with_template
from rich.console import Console
from rich.table import Table

from flowjoin._kernel.interface import KeepsFlows


def row(form: str, flows: int) -> list[str]:
    traffic = Traffic(is_ipv6=False, per_message=20)
    kernel = kernel_with_template(form, traffic)
    feed(kernel, traffic.messages(0, flows // 2, 10, (0, 1)))
    feed(kernel, traffic.messages(flows // 2, flows, 10, (0,)))
    assert isinstance(kernel, KeepsFlows)
    packed: list[bytes] = []
    began, longest, dumping = time.process_time(), 0.0, 0.0
    cursor: int | None = 0
    while cursor is not None:
        at = time.thread_time()
        block, cursor = kernel.dump(cursor, kernel.flows_per_slice)
        slice_seconds = time.thread_time() - at
        longest, dumping = max(longest, slice_seconds), dumping + slice_seconds
        packed.append(zlib.compress(block, 1))
    writing = time.process_time() - began
    other = kernel_with_template(form, traffic)
    assert isinstance(other, KeepsFlows)
    began = time.process_time()
    longest_back = 0.0
    for octets in packed:
        block = zlib.decompress(octets)
        at = time.thread_time()
        other.restore(block, 0.0, is_continued=True)
        longest_back = max(longest_back, time.thread_time() - at)
    while other.order_restored(kernel.flows_per_slice):
        pass
    reading = time.process_time() - began
    held = other.statistics().flows_held
    assert held == kernel.statistics().flows_held
    size = sum(map(len, packed))
    return [
        form,
        f"{held:,}",
        f"{dumping / held * 1e6:.2f}",
        f"{longest * 1e3:.1f}",
        f"{writing / held * 1e6:.2f}",
        f"{size / held:.0f}",
        f"{reading / held * 1e6:.2f}",
        f"{longest_back * 1e3:.1f}",
    ]


def main() -> None:
    table = Table()
    for name in (
        "kernel",
        "flows",
        "dump, µs a flow",
        "longest slice, ms",
        "and packed, µs a flow",
        "octets a flow",
        "read, µs a flow",
        "longest slice, ms",
    ):
        table.add_column(name, justify="right")
    for flows in map(int, sys.argv[1:] or ("100000",)):
        for form in ("compiled", "python"):
            table.add_row(*row(form, flows))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
