"""More than flowjoin can take, over UDP and TCP: ``python tests/benchmarks/overload.py [SECONDS]``.

First it is measured how much it can take: what TCP's flow control lets pass. Then twice as much comes over UDP, then a
third of it, to see that it recovers; with a large receive buffer, and with a small one. The plain-Python kernel is
taken, since one sender on the same machine cannot outrun the compiled one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from overload import Overloaded
from rich.console import Console
from rich.table import Table


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    os.environ["FLOWJOIN_KERNEL"] = "python"
    table = Table()
    for name in (
        "",
        "sent, /s",
        "taken, /s",
        "dropped, counted",
        "dropped, in truth",
        "memory, MiB",
        "latency, s: median",
        "longest",
        "longest reply, s",
    ):
        table.add_column(name, justify="right")
    with tempfile.TemporaryDirectory() as directory:
        for receive_buffer in ("64MiB", "2MiB"):
            bench = Overloaded(Path(directory) / receive_buffer, receive_buffer=receive_buffer)
            try:
                capacity = bench.phase("tcp", 0, seconds / 2)
                rate = int(capacity.taken / capacity.seconds)
                table.add_row("TCP, as fast as it goes", *capacity.line())
                table.add_row(f"UDP, twice that, {receive_buffer}", *bench.phase("udp", 2 * rate, seconds).line())
                table.add_row("UDP, a third of that", *bench.phase("udp", rate // 3, seconds / 2).line())
                bench.program.process.terminate()
                assert bench.program.finish() == 0
                assert "books_do_not_balance" not in bench.program.text
            finally:
                bench.program.process.kill()
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
