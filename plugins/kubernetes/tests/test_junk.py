"""Whatever the server answers, it is an answer that can be used, trouble that passes, or an object that is counted."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes_objects import node, pod, service

from flowjoin.testing import RecordingContext
from flowjoin_kubernetes._client import ApiError, _object
from flowjoin_kubernetes._http import HttpTrouble
from flowjoin_kubernetes._pages import Page
from flowjoin_kubernetes._records import NodeRecord, PodRecord, ServiceRecord
from flowjoin_kubernetes._store import TimedStore
from flowjoin_kubernetes._tables import Table
from flowjoin_kubernetes._watch import Lines, Resource, Watcher

DEEP = [b"[" * 200_000, b'{"a":' * 200_000, b'{"type": "ADDED", "object": ' + b'{"a":' * 200_000]
SEEDS = {
    PodRecord: pod("p", "10.0.0.1", "2001:db8::1", labels={"a": "b"}, uid="27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e02"),
    NodeRecord: node(
        "n", "192.0.2.1", pod_networks=("10.0.0.0/24", "2001:db8::/64"), uid="27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e03"
    ),
    ServiceRecord: service("s", "10.96.0.1", uid="27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e04"),
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def spoilt(manifest: Any, draw: st.DrawFn) -> Any:
    """The same with one thing in it replaced, at any depth."""
    if isinstance(manifest, dict) and manifest and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(manifest)))
        return {**manifest, key: spoilt(manifest[key], draw)}
    if isinstance(manifest, list) and manifest and draw(st.integers(0, 3)):
        return [spoilt(manifest[0], draw), *manifest[1:]]
    return draw(VALUES)


@st.composite
def objects(draw: st.DrawFn) -> tuple[Any, Any]:
    kind = draw(st.sampled_from(list(SEEDS)))
    return kind, spoilt(SEEDS[kind], draw)


def table_of(kind: Any) -> Table[Any]:
    context = RecordingContext()
    counters = {name: context.counter(name, name) for name in ("changes", "unreadable")}
    return Table(kind, TimedStore(kind, kept_seconds=300.0), wall=lambda: 1.0, **counters)


@given(objects())
def test_an_object_that_is_spoilt_anywhere_is_taken_or_counted(what: tuple[Any, Any]) -> None:
    kind, manifest = what
    table = table_of(kind)
    table.begin_list()
    table.put(manifest)
    table.put(SEEDS[kind])
    table.delete(manifest)
    table.end_list()


@given(st.binary() | st.sampled_from(DEEP) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_octets_are_an_object_or_trouble(octets: bytes) -> None:
    with suppress(HttpTrouble):
        assert isinstance(_object(octets), dict)


@given(st.binary() | st.sampled_from(DEEP) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_octets_are_a_page_or_an_error_that_the_watcher_takes_for_trouble(octets: bytes) -> None:
    with suppress(ValueError, RecursionError):
        for item in Page(octets):
            assert isinstance(item, dict)


@given(
    st.binary()
    | st.sampled_from(DEEP)
    | st.builds(
        lambda kind, value: json.dumps({"type": kind, "object": value}).encode(),
        st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", 7]),
        objects().map(lambda what: what[1]) | VALUES | st.builds(lambda code: {"code": code}, SCALARS),
    )
)
def test_any_octets_are_events_or_trouble(octets: bytes) -> None:
    context = RecordingContext()
    watcher = Watcher(
        Resource.PODS,
        None,  # type: ignore[arg-type]  # nothing is asked
        table_of(PodRecord),
        log=context.log,
        random=lambda: 0.0,
        tell_trouble=lambda _problem: None,
    )
    with suppress(HttpTrouble, ApiError):
        for line in Lines(1_000_000).receive(octets + b"\n"):
            watcher._take_event(line)


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 10**400, "80", -1])
def test_a_port_that_is_none_is_counted_and_no_more(number: Any) -> None:
    manifest = service("s", "10.96.0.1", port=number, uid="27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e04")
    table_of(ServiceRecord).put(manifest)


@pytest.mark.parametrize("octets", DEEP, ids=["lists", "objects", "an event"])
def test_what_is_too_deep_is_trouble(octets: bytes) -> None:
    with pytest.raises(HttpTrouble):
        _object(octets)
