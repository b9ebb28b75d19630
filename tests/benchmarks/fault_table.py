"""What happens when a plugin fails, as tables of Markdown: ``python tests/benchmarks/fault_table.py``.

Each row is a run of flowjoin of its own, with traffic, a plugin that does one thing wrong, and another exporter.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from faults import ENRICHER_FAULTS, EXPORTER_FAULTS, suffer

HEADS = {
    "exporters": ("An exporter's", "the other exporter got", "its own rows: delivered, dead letters"),
    "enrichers": ("An enricher's", "the exporter got"),
}


def main() -> None:
    for kind, faults in (("exporters", EXPORTER_FAULTS), ("enrichers", ENRICHER_FAULTS)):
        heads = (*HEADS[kind], "its health", "warnings and errors", "exit")
        print(f"| {' | '.join(heads)} |")
        print("|---" * len(heads) + "|")
        for fault in faults:
            with tempfile.TemporaryDirectory() as folder:
                print(suffer(kind, fault, Path(folder)).line(fault), flush=True)
        print()


if __name__ == "__main__":
    main()
