"""The plugin's reference page has every key, counter and event, with the default that the code has."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from flowjoin_log import FilterConfig, LogConfig
from flowjoin_log._columns import columns_of

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "reference" / "exporters" / "log.md").read_text(encoding="utf-8")
SOURCES = "".join(
    path.read_text(encoding="utf-8") for path in (Path(__file__).parents[1] / "src" / "flowjoin_log").glob("*.py")
)


def key_of(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def written(default: object) -> str:
    if default is dataclasses.MISSING:
        return "required"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "`[]`" if default == () else f"`{default}`"


@pytest.mark.parametrize(
    "field", [*dataclasses.fields(LogConfig), *dataclasses.fields(FilterConfig)], ids=lambda field: field.name
)
def test_each_key_is_there_with_its_default(field: dataclasses.Field[object]) -> None:
    row = re.search(rf"^\| `{key_of(field.name)}` \|[^|]*\| (\S+) \|", PAGE, re.MULTILINE)
    assert row is not None, f"the page lacks {key_of(field.name)}"
    assert row[1] == written(field.default)


def test_each_counter_and_event_is_there() -> None:
    counters = re.findall(r'\.counter\("(\w+)"', SOURCES)
    events = re.findall(r'\.log\.\w+\(\s*"(\w+)"', SOURCES) + re.findall(r'_log\.\w+\("(\w+)"', SOURCES)
    assert len(counters) == 4
    assert len(set(events)) == 5
    for name in [*(f"flowjoin_log_{counter}_total" for counter in counters), *events]:
        assert f"| `{name}` |" in PAGE, name


@pytest.mark.parametrize("compatibility", ["antrea-2.3", "antrea-2.7"])
def test_each_column_is_there(compatibility: str) -> None:
    for name in columns_of(compatibility):
        assert f"`{name}`" in PAGE or name.startswith("egressNetworkPolicy"), name
