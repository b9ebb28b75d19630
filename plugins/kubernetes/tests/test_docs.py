"""The plugin's reference page has every key, counter and event, and what the code says of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowjoin._config.fields import fields_of
from flowjoin._config.plain import to_plain
from flowjoin_kubernetes import KubernetesConfig, KubernetesLookupConfig
from flowjoin_kubernetes._enricher import ADDS, FILLS

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "reference" / "enrichers" / "kubernetes.md").read_text(encoding="utf-8")
SOURCES = "".join(
    path.read_text(encoding="utf-8")
    for path in (Path(__file__).parents[1] / "src" / "flowjoin_kubernetes").glob("*.py")
)


def written(default: object, hint: object) -> str:
    if default in (None, ""):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{to_plain(default, hint)}`"


@pytest.mark.parametrize("cls", [KubernetesConfig, KubernetesLookupConfig])
def test_each_key_is_there_with_its_default(cls: type[object]) -> None:
    for spec in fields_of(cls):
        row = re.search(rf"^\| `{spec.key}` \|[^|]*\| (\S+) \|", PAGE, re.MULTILINE)
        assert row is not None, f"the page lacks {spec.key}"
        assert row[1] == written(spec.default, spec.hint), spec.key
        assert spec.documentation


def test_each_counter_and_event_is_there() -> None:
    counters = re.findall(r'\.counter\(\s*"(\w+)"', SOURCES)
    events = set(re.findall(r'\b_?log\.\w+\(\s*"(\w+)"', SOURCES))
    assert len(counters) == 4
    assert len(events) == 7
    for name in [*(f"flowjoin_kubernetes_{counter}_total" for counter in counters), *events]:
        assert f"| `{name}` |" in PAGE, name


def test_each_element_is_there() -> None:
    section = PAGE.partition("## What flows get")[2].partition("\n## ")[0]
    for name in (*ADDS, *FILLS):
        source = name.replace("destination", "source")
        assert f"`{name}`" in section or f"`{source}`" in section, name


def test_the_rights_are_those_of_the_how_to() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "name-pods-in-flows.md").read_text(encoding="utf-8")
    assert "resources: [pods, nodes, services], verbs: [list, watch]" in page
    assert "resources: [configmaps], resourceNames: [antrea-cluster-identity], verbs: [get]" in page
