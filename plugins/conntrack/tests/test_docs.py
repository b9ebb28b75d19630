"""The reference pages have every key with the default that the code has, and every counter."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from flowjoin._config.fields import FieldSpec, fields_of
from flowjoin._config.plain import to_plain
from flowjoin_conntrack._config import ConntrackConfig, DeniedConfig, DeniedRule
from flowjoin_conntrack.policy_rules import PolicyRulesConfig

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
SOURCE = (REFERENCE / "sources" / "conntrack.md").read_text(encoding="utf-8")
LOOKUP = (REFERENCE / "lookups" / "policy_rules.md").read_text(encoding="utf-8")
CODE = Path(__file__).parents[1] / "src" / "flowjoin_conntrack"
KEYS = [
    *((SOURCE, spec) for config in (ConntrackConfig, DeniedConfig, DeniedRule) for spec in fields_of(config)),
    *((LOOKUP, spec) for spec in fields_of(PolicyRulesConfig)),
]


@pytest.mark.parametrize(("page", "spec"), KEYS, ids=lambda value: value.key if isinstance(value, FieldSpec) else "")
def test_each_key_is_there_with_its_default(page: str, spec: FieldSpec) -> None:
    row = re.search(rf"^\| [^|]*`{spec.key}`[^|]*\|[^|]*\|([^|]*)\|", page, re.MULTILINE)
    assert row is not None, f"the page lacks {spec.key}"
    if spec.required:
        assert row[1].strip() == "required"
    elif spec.default not in ("", None, ()) and not dataclasses.is_dataclass(spec.default):
        plain = to_plain(spec.default, spec.hint)
        text = str(plain).lower() if isinstance(plain, bool) else plain
        assert row[1].strip() in (f"`{text}`", "any, all bits"), spec.key


@pytest.mark.parametrize("name", ["sources/conntrack.md", "lookups/policy_rules.md"])
def test_each_counter_is_there(name: str) -> None:
    page = (REFERENCE / name).read_text(encoding="utf-8")
    is_lookup = name.startswith("lookups")
    paths = [path for path in CODE.glob("*.py") if (path.name == "policy_rules.py") == is_lookup]
    counters = re.findall(r"\.counter\(\s*\"(\w+)\"", "".join(path.read_text(encoding="utf-8") for path in paths))
    assert counters
    for counter in counters:
        assert f"`flowjoin_{Path(name).stem}_{counter}_total`" in page, counter
