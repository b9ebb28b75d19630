"""Each file in tests/data/config: a configuration, and what must come of it.

``<case>.expected.json`` has either ``error``, the exact text, or ``differs`` (the keys that are not at
their default, in the file's notation), ``notices`` in order, and ``unavailable``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flowjoin._config.load import load_config
from flowjoin._config.model import Config
from flowjoin._config.plain import dataclass_to_plain
from flowjoin._model.errors import ConfigError

CASES = Path(__file__).parents[2] / "data" / "config"


@pytest.mark.parametrize("file", sorted(CASES.glob("*.in.yaml")), ids=lambda file: file.name.removesuffix(".in.yaml"))
def test_a_configuration_gives_exactly_its_expected_values_or_error(file: Path) -> None:
    expected = json.loads(file.with_name(file.name.replace(".in.yaml", ".expected.json")).read_text(encoding="utf-8"))
    assert outcome(file.read_text(encoding="utf-8"), strict=expected.pop("strict", False)) == expected


def outcome(text: str, *, strict: bool) -> dict[str, Any]:
    try:
        loaded = load_config(text, "in.yaml", strict=strict)
    except ConfigError as exc:
        return {"error": str(exc)}
    defaults = dataclass_to_plain(Config())
    values = dataclass_to_plain(loaded.config)
    result: dict[str, Any] = {
        "differs": {key: value for key, value in values.items() if value != defaults[key]},
        "notices": [{"severity": notice.severity, "text": str(notice)} for notice in loaded.warnings],
    }
    if loaded.unavailable is not None:
        result["unavailable"] = str(loaded.unavailable)
    return result
