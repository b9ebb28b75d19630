"""The rules for Prometheus name figures that there are, use them by their types, and are explained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowjoin._kernel.interface import KernelStatistics

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
RULES = yaml.safe_load((REPOSITORY / "deploy" / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
WATCH = (DOCS / "how-to" / "watch-it-run.md").read_text(encoding="utf-8")
# That every figure of the program stands in this table with its type is tests/unit/pipeline/test_metrics.py's business.
TABLE = {
    name: (kind, set(re.findall(r"\w+", labels)))
    for name, kind, labels in re.findall(
        r"^\| `(flowjoin_\w+)` \| (\w+) \| ([^|]*) \|",
        (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8"),
        re.M,
    )
}
FIGURE = re.compile(r"(?:(\w+)\()?\b(flowjoin_\w+)(\[\w+\])?")
QUERIES = re.findall(r"`([^`\n]*\bflowjoin_[^`\n]*)`", WATCH.partition("For a dashboard:")[2].partition("\n\n[")[0])


def assert_used_by_their_types(query: str) -> None:
    figures = FIGURE.findall(query)
    assert figures, query
    for function, name, over in figures:
        kind, _labels = TABLE[name]
        if over:
            assert function in ({"rate", "increase"} if kind == "counter" else {"delta"}), query
        elif kind == "counter":
            assert f"{name} > 0" in query, f"{query}: a counter by itself says only whether there ever was one"


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_a_rule_uses_figures_by_their_types_and_names_their_labels(rule: dict[str, Any]) -> None:
    known = {"instance", "job"}
    if rule["alert"] == "FlowjoinDown":  # of Prometheus' own figure, which goes away with the target
        assert rule["expr"] == 'up{job="flowjoin"} == 0 or absent(up{job="flowjoin"})'
    else:
        assert_used_by_their_types(rule["expr"])
        known |= set.intersection(*(TABLE[name][1] for _function, name, _over in FIGURE.findall(rule["expr"])))
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= known
    assert rule["labels"]["severity"] in {"warning", "critical"}


def test_every_rule_is_explained_and_nothing_else_is() -> None:
    assert re.findall(r"^\| `(Flowjoin\w+)` \|", WATCH, re.M) == [rule["alert"] for rule in ALERTS]


def test_the_queries_for_a_dashboard_use_figures_by_their_types() -> None:
    assert len(QUERIES) == 7
    for query in QUERIES:
        assert_used_by_their_types(query)


def test_every_cause_of_a_rejected_record_is_in_the_reference() -> None:
    told = re.search(r"records_rejected: (.*?)\n\s+flows_exported_last", KernelStatistics.__doc__ or "", re.DOTALL)
    assert told is not None
    causes = set(re.findall(r"``(\w+)``", told[1]))
    section = (
        (DOCS / "reference" / "errors.md").read_text(encoding="utf-8").partition("## Records that make no flow")[2]
    )
    assert causes == set(re.findall(r"^\| `(\w+)` \|", section, re.M))


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_names_no_figure_that_the_reference_lacks(page: Path) -> None:
    reference = "".join(each.read_text(encoding="utf-8") for each in (DOCS / "reference").rglob("*.md"))
    named = set(re.findall(r"\bflowjoin_\w+_(?:total|seconds|octets|rows|sessions|flows)\b", page.read_text("utf-8")))
    assert {name for name in named if f"`{name}`" not in reference} == set()


def test_the_charts_service_monitor_gives_the_job_that_the_rules_name() -> None:
    template = REPOSITORY / "deploy" / "helm" / "flowjoin" / "templates"
    assert "jobLabel: app.kubernetes.io/name" in (template / "servicemonitor.yaml").read_text(encoding="utf-8")
    assert "app.kubernetes.io/name: flowjoin" in (template / "_helpers.tpl").read_text(encoding="utf-8")
