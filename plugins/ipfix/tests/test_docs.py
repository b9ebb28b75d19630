"""The plugin's reference page has every key, counter and event, with the default that the code has."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path

import pytest

from flowjoin.api import Duration, Key, Octets
from flowjoin_ipfix import IpfixConfig, TlsConfig

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "reference" / "exporters" / "ipfix.md").read_text(encoding="utf-8")
SOURCES = "".join(
    path.read_text(encoding="utf-8") for path in (Path(__file__).parents[1] / "src" / "flowjoin_ipfix").glob("*.py")
)
WRITTEN = {600.0: "10m0s", 60.0: "1m0s", 10.0: "10s", 5.0: "5s"}


def keys_of(cls: type) -> dict[str, object]:
    """The keys in the file, with their defaults as the page writes them."""
    hints = typing.get_type_hints(cls, include_extras=True)
    keys = {}
    for field in dataclasses.fields(cls):
        hint, *metadata = typing.get_args(hints[field.name])
        head, *rest = field.name.split("_")
        key = next((each.name for each in metadata if isinstance(each, Key)), None)
        keys[key or head + "".join(word.capitalize() for word in rest)] = written(field.default, hint)
    return keys


def written(default: object, hint: object) -> str:
    if default is dataclasses.MISSING:
        return "required"
    if default is None:
        return "none"
    if hint is Duration:
        return f"`{WRITTEN[default]}`"  # type: ignore[index]
    if hint is Octets:
        return f"`{int(default) // 2**20}MiB`"  # type: ignore[call-overload]
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default != "" else '`""`'


@pytest.mark.parametrize("cls", [IpfixConfig, TlsConfig])
def test_each_key_is_there_with_its_default(cls: type) -> None:
    for key, default in keys_of(cls).items():
        row = re.search(rf"^\| `{key}` \|[^|]*\| (\S+) \|", PAGE, re.MULTILINE)
        assert row is not None, f"the page lacks {key}"
        assert row[1] == default, key


def test_each_counter_and_event_is_there() -> None:
    counters = re.findall(r'\.counter\("(\w+)"', SOURCES)
    events = re.findall(r'[._]log\.\w+\(\s*"(\w+)"', SOURCES) + re.findall(r'_warn_once\("(\w+)"', SOURCES)
    assert len(counters) == 8
    assert len(set(events)) == 12
    for name in [*(f"flowjoin_ipfix_{counter}_total" for counter in counters), *events]:
        assert f"| `{name}` |" in PAGE, name
