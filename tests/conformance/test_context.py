"""The recording context is a PluginContext, and refuses what the core would."""

from __future__ import annotations

import pytest

from flowjoin.api import ConfigError, PluginContext, PodLookup
from flowjoin.testing import RecordingContext


def test_it_is_a_plugin_context() -> None:
    context: PluginContext = RecordingContext(name="mine")
    assert context.name == "mine"
    assert context.state_directory is None
    assert context.compatibility == "antrea-2.7"
    assert context.registry.by_name("octetDeltaCount").element_id == 1


def test_lines_are_kept_with_their_level_and_facts() -> None:
    context = RecordingContext()
    for level in ("debug", "info", "warning", "error"):
        getattr(context.log, level)("happened", level=level)
    assert [(line.level, line.facts["level"]) for line in context.log.lines] == [
        (level, level) for level in ("debug", "info", "warning", "error")
    ]
    assert context.events == ["happened"] * 4


def test_a_counter_is_one_however_often_it_is_asked_for_and_only_grows() -> None:
    context = RecordingContext()
    context.counter("rows", "rows").inc(2)
    context.counter("rows", "rows").inc()
    assert context.counters["rows"].value == 3
    with pytest.raises(ValueError, match="only grows"):
        context.counters["rows"].inc(-1)
    with pytest.raises(ValueError, match="says nothing"):
        context.counter("others", "")


def test_gauges_and_histograms_are_kept_by_name() -> None:
    context = RecordingContext()
    context.gauge("held", "Held.", lambda: 1)
    context.gauge("held", "Held.", lambda: 2, also="their_name")
    assert context.gauges["held"]() == 2
    assert context.others_names == {"held": "their_name"}
    context.histogram("seconds", "Seconds.", (1, 2)).observe(1.5)
    assert context.histograms["seconds"].figures == [1.5]
    with pytest.raises(ValueError, match="do not rise"):
        context.histogram("other", "Other.", (2, 1))
    with pytest.raises(ValueError, match="says nothing"):
        context.gauge("silent", "", lambda: 1)


def test_a_look_up_that_is_not_provided_is_the_operators_mistake() -> None:
    provider = object()
    context = RecordingContext(lookups={PodLookup: provider})
    assert context.lookup(PodLookup) is provider
    with pytest.raises(ConfigError, match="nothing configured under lookups: provides PodLookup"):
        RecordingContext().lookup(PodLookup)
