"""Every key of the configuration stands in the reference, as the dataclasses have it."""

from __future__ import annotations

import runpy
from pathlib import Path

from flowjoin._config import antrea
from flowjoin._config.fields import Settings, fields_of

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = DOCS / "configuration_tables.py"
TEXT = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")


def test_the_tables_are_what_the_dataclasses_say() -> None:
    assert runpy.run_path(str(SCRIPT))["updated"](TEXT) == TEXT, f"run python {SCRIPT}"


def test_every_dataclass_has_its_table_and_heading() -> None:
    for name, cls in runpy.run_path(str(SCRIPT))["described_classes"]().items():
        assert f"<!-- keys of {name} -->" in TEXT
        assert f"# {name}\n" in TEXT or name == "Config"
        for spec in fields_of(cls):
            assert spec.hint is Settings or f"| `{spec.key}` |" in TEXT
            assert spec.hint is Settings or spec.documentation, f"{name}.{spec.name} says nothing"


def test_every_section_of_antreas_is_named() -> None:
    for key in antrea.SECTIONS:
        assert f"| `{key}` |" in TEXT
