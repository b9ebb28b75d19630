"""The reference of the wire is complete."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from flowjoin import wire
from flowjoin._model.reasons import Reason
from flowjoin.wire import DecoderLimits

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "wire.md").read_text(encoding="utf-8")


def test_it_names_every_public_name() -> None:
    assert [name for name in wire.__all__ if f"`{name}" not in PAGE] == []


def test_it_names_every_reason() -> None:
    assert [reason.value for reason in Reason if f"`{reason.value}`" not in PAGE] == []


def test_it_names_every_limit_with_its_default() -> None:
    for limit in dataclasses.fields(DecoderLimits):
        [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `{limit.name}` |")]
        shown = row.split("|")[2].strip()
        units = {"KiB": 1024, "MiB": 1024 * 1024}
        number, _, unit = shown.partition(" ")
        assert int(number.replace(",", "")) * units.get(unit, 1) == limit.default
