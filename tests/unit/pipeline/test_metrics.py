from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from pipeline_fakes import MemoryLog

from flowjoin._kernel.interface import KernelStatistics
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._pipeline import metrics
from flowjoin._pipeline.books import Books
from flowjoin._pipeline.lookups import Lookups
from flowjoin._pipeline.metrics import pipeline_metrics
from flowjoin._pipeline.plugin_context import InstanceContext
from flowjoin._telemetry.metrics import Metrics

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def test_every_figure_of_the_kernel_is_a_metric() -> None:
    fields = {item.name for item in dataclasses.fields(KernelStatistics)}

    assert fields == {*metrics._COUNTERS, *metrics._GAUGES, *metrics._LABELLED}


def test_every_metric_stands_in_the_reference() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for family in pipeline_metrics(Books(kernel=KernelStatistics()), (), 0):
        suffix = "_total" if family.type == "counter" else ""
        assert f"| `{family.name}{suffix}` | {family.type} |" in page


@pytest.mark.parametrize(
    ("plugin", "metric"),
    [
        ("log", "flowjoin_log_lines_total"),
        ("Click-House.v2", "flowjoin_click_house_v2_lines_total"),
        ("lane", "flowjoin_lane_plugin_lines_total"),
    ],
)
def test_a_plugins_counter_is_named_for_the_plugin_and_labelled_with_the_instance(plugin: str, metric: str) -> None:
    registry = Metrics()
    context = InstanceContext(
        plugin=plugin,
        name="audit",
        log=MemoryLog(),
        state_directory=None,
        instance_id="i",
        cluster_uuid="c",
        compatibility="antrea-2.7",
        registry=ElementRegistry([]),
        metrics=registry,
        lookups=Lookups([]),
        asks_pod_labels=lambda: False,
        tell_impaired=lambda _problem: None,
        tell_progress=lambda: None,
    )
    context.counter("lines", "Lines.").inc(3)
    context.gauge("open_files", "Files.", lambda: 2)
    context.histogram("write_seconds", "Writes.", (1,)).observe(0.5)

    text = registry.expose().decode()
    assert f'{metric}{{name="audit"}} 3.0' in text
    prefix = metric.removesuffix("_lines_total")
    assert f'{prefix}_open_files{{name="audit"}} 2.0' in text
    assert f'{prefix}_write_seconds_count{{name="audit"}} 1.0' in text
