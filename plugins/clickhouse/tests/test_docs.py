"""The plugin's reference page has every key, counter and event, with the default that the code has."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from flowjoin._config.fields import fields_of
from flowjoin._config.plain import to_plain
from flowjoin_clickhouse import ClickHouseConfig, SchemaConfig, TlsConfig

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "reference" / "exporters" / "clickhouse.md").read_text(encoding="utf-8")
SOURCES = "".join(
    path.read_text(encoding="utf-8")
    for path in (Path(__file__).parents[1] / "src" / "flowjoin_clickhouse").glob("*.py")
)


def written(default: object, hint: object) -> str:
    if dataclasses.is_dataclass(default) or default in (None, ""):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "`[]`" if default == () else f"`{to_plain(default, hint)}`"


@pytest.mark.parametrize("cls", [ClickHouseConfig, SchemaConfig, TlsConfig])
def test_each_key_is_there_with_its_default(cls: type[object]) -> None:
    for spec in fields_of(cls):
        row = re.search(rf"^\| `{spec.key}` \|[^|]*\| (\S+) \|", PAGE, re.MULTILINE)
        assert row is not None, f"the page lacks {spec.key}"
        assert row[1] == ("required" if spec.required else written(spec.default, spec.hint)), spec.key
        assert spec.documentation


def test_each_counter_and_event_is_there() -> None:
    counters = re.findall(r'\.counter\("(\w+)"', SOURCES)
    events = set(re.findall(r'\blog\.\w+\(\s*"(\w+)"', SOURCES)) | set(re.findall(r'_log\.\w+\(\s*"(\w+)"', SOURCES))
    assert len(counters) == 5
    assert len(events) == 7
    for name in [*(f"flowjoin_clickhouse_{counter}_total" for counter in counters), *events]:
        assert f"| `{name}` |" in PAGE, name
