"""The plugin's reference page has every key, counter and event, with the default that the code has."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from flowjoin._config.fields import FieldSpec, fields_of
from flowjoin._config.plain import to_plain
from flowjoin_s3 import S3Config, TlsConfig
from flowjoin_s3._columns import columns_of
from flowjoin_s3._keys import MOST_HOURS

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "reference" / "exporters" / "s3.md").read_text(encoding="utf-8")
SOURCES = "".join(
    path.read_text(encoding="utf-8") for path in (Path(__file__).parents[1] / "src" / "flowjoin_s3").glob("*.py")
)
KEYS = [*fields_of(S3Config), *fields_of(TlsConfig)]


@pytest.mark.parametrize("spec", KEYS, ids=lambda spec: spec.key)
def test_each_key_is_there_with_its_default(spec: FieldSpec) -> None:
    row = re.search(rf"^\| `{spec.key}` \|[^|]*\|([^|]*)\|", PAGE, re.MULTILINE)
    assert row is not None, f"the page lacks {spec.key}"
    if spec.required:
        assert row[1].strip() == "required"
    elif spec.default not in ("", None) and not dataclasses.is_dataclass(spec.default):
        plain = to_plain(spec.default, spec.hint)
        text = str(plain).lower() if isinstance(plain, bool) else "[]" if plain == [] else plain
        assert row[1].strip() == f"`{text}`"


@pytest.mark.parametrize("spec", KEYS, ids=lambda spec: spec.key)
def test_each_key_says_what_it_is_for(spec: FieldSpec) -> None:
    assert spec.documentation


def test_each_counter_and_event_is_there() -> None:
    counters = re.findall(r'\.counter\("(\w+)"', SOURCES)
    events = re.findall(r'log\.\w+\(\s*"(\w+)"', SOURCES)
    assert len(counters) == 4
    assert len(set(events)) == 6
    for name in [*(f"flowjoin_s3_{counter}_total" for counter in counters), *events]:
        assert f"| `{name}` |" in PAGE, name
    assert f"Beyond {MOST_HOURS} hours" in PAGE


@pytest.mark.parametrize("compatibility", ["antrea-2.3", "antrea-2.7"])
def test_each_column_is_there(compatibility: str) -> None:
    for name in columns_of(compatibility):
        assert f"`{name}`" in PAGE or name.startswith("egressNetworkPolicy"), name
