"""All figures of the kernel, of receiving and of the writers, with the peers that are installed, in one table.

    pip install -r tests/benchmarks/requirements.txt; python tests/benchmarks/table.py

Medians of CPU time. The peers are ``nfcapd``, ``nfacctd`` (all of its processes) and PyPI's ``ipfix``.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import sys
from pathlib import Path

import kernel_table
import receive_table
import writers_table
from one_table import show


def machine() -> str:
    """What it was measured on, and how busy that was."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    return f"{os.cpu_count()} x {model}, Linux {platform.release()}, Python {platform.python_version()}, load {load}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each stream that is sent")
    parser.add_argument("--flows", type=int, default=1_000_000, help="of the large table")
    given = parser.parse_args()
    print(f"Before: {machine()}; {given.runs} runs.\n")
    show(
        itertools.chain(
            kernel_table.figures(given.runs, list(kernel_table.PROGRAMS), given.flows),
            receive_table.figures(given.runs, given.seconds, 1.0),
            writers_table.figures(),
        )
    )
    print(f"\nAfter: {machine()}.")


if __name__ == "__main__":
    sys.exit(main())
