"""Turns the tables beside this file into Python modules: ``python core/elements/generate.py``.

The tables hold facts of two registries: ``iana.csv`` IANA's "IPFIX Information Elements" (state of
2026-07-22), ``antrea.csv`` enterprise 56506. An empty ``length`` means the data type's own,
``merge_rule`` is set only where the rule that follows from ``semantics`` would give a wrong value.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

TABLES: Final = Path(__file__).parent
TARGET: Final = TABLES.parent / "src" / "flowjoin" / "wire"

# RFC 9740 and RFC 9870 brought unsigned256 for bit fields; as a number it fits no column, so its octets are kept.
DATA_TYPES: Final = {"unsigned256": "octetArray"}


def render(table: Path) -> str:
    """The module's text for one table, rows in order of id."""
    with table.open(newline="", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["id"]))
    lines = [
        f'"""Generated from core/elements/{table.name}: edit that, then run `python core/elements/generate.py`."""',
        "",
        "from typing import Final",
        "",
        "# id, name, data type, semantics, units, length (0: the data type's own), merge rule",
        "ROWS: Final[tuple[tuple[int, str, str, str, str, int, str], ...]] = (",
    ]
    for row in rows:
        data_type = DATA_TYPES.get(row["data_type"], row["data_type"])
        texts = [f'"{text}"' for text in (row["name"], data_type, row["semantics"], row["units"])]
        lines.append(f'    ({row["id"]}, {", ".join(texts)}, {row["length"] or 0}, "{row["merge_rule"]}"),')
    lines.append(")")
    return "\n".join(lines) + "\n"


def modules() -> dict[Path, str]:
    """Every generated module and the text it should have."""
    return {TARGET / f"_elements_{name}.py": render(TABLES / f"{name}.csv") for name in ("iana", "antrea")}


if __name__ == "__main__":
    for path, text in modules().items():
        path.write_text(text, encoding="utf-8")
