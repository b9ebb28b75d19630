"""Tables follow the API server through pages, watches, 410 Gone, faults and dropped streams."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import trio
import trio.testing
from kubernetes_objects import node, pod, service
from kubernetes_stand_in import Fault, KubernetesStandIn
from waiting import until

from flowjoin.testing import RecordingContext
from flowjoin_kubernetes import KubernetesConfig, _tables, _watch
from flowjoin_kubernetes._client import load_api
from flowjoin_kubernetes._tables import ClusterTables, open_tables

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits after failures take no time worth speaking of."""
    timing = replace(_watch.TIMING, first_wait=0.001, longest_wait=0.01)
    monkeypatch.setattr(_watch, "TIMING", timing)


@asynccontextmanager
async def tables_of(
    kubeconfig: Path, context: RecordingContext | None = None, **settings: object
) -> AsyncIterator[ClusterTables]:
    config = KubernetesConfig(kubeconfig=kubeconfig, **settings)  # type: ignore[arg-type]
    with trio.fail_after(PATIENCE):
        async with open_tables(load_api(config), config, context or RecordingContext()) as tables:
            yield tables


def names(tables: ClusterTables, *addresses: str) -> list[str | None]:
    records = [tables.pod_record(address, None) for address in addresses]
    return [None if record is None else record.name for record in records]


async def test_all_that_there_is_is_known_when_it_is_open(server: KubernetesStandIn, kubeconfig: Path) -> None:
    for number in range(1234):
        server.put("pods", pod(f"pod-{number}", f"10.0.{number // 250}.{number % 250}"))
    server.put("nodes", node("node-1", "192.0.2.1"))
    server.put("services", service("web", "10.96.0.1"))
    async with tables_of(kubeconfig) as tables:
        assert len(tables.pods) == 1234
        assert tables.node_record("node-1", None) is not None
        assert tables.node_at("192.0.2.1", None) is not None
        assert tables.service_at("10.96.0.1", 80, 6, None) is not None
    lists = [target for target in server.requests if target.startswith("/api/v1/pods?limit")]
    assert len(lists) == 3


@pytest.mark.parametrize("split", [None, 1, 7])
async def test_changes_come_through_however_the_stream_is_split(
    server: KubernetesStandIn, kubeconfig: Path, split: int | None
) -> None:
    server.split = split
    server.put("pods", pod("first", "10.0.0.1"))
    async with tables_of(kubeconfig) as tables:
        server.put("pods", pod("second", "10.0.0.2", labels={"name": "Zoë"}))
        server.delete("pods", "default", "first")
        server.put("pods", pod("second", "10.0.0.3", labels={"name": "Zoë"}))
        await until(lambda: names(tables, "10.0.0.1", "10.0.0.2", "10.0.0.3") == [None, None, "second"])
        found = tables.pod_record("10.0.0.3", None)
        assert found is not None
        assert found.labels == '{"name":"Zoë"}'


async def test_a_watch_that_breaks_goes_on_from_the_last_change(server: KubernetesStandIn, kubeconfig: Path) -> None:
    async with tables_of(kubeconfig, nodes_and_services=False) as tables:
        for number in range(5):
            await server.wait_watches(1)
            await server.drop_connections()
            server.put("pods", pod(f"pod-{number}", f"10.0.0.{number}"))
            await until(lambda number=number: names(tables, f"10.0.0.{number}") == [f"pod-{number}"])  # type: ignore[misc]
    assert sum("limit=" in target for target in server.requests) == 1


async def test_a_bookmark_spares_a_list_where_the_history_before_it_is_gone(
    server: KubernetesStandIn, kubeconfig: Path
) -> None:
    async with tables_of(kubeconfig, nodes_and_services=False) as tables:
        await server.wait_watches(1)
        server.put("services", service("other", "10.96.0.7"))
        server.compact()
        server.bookmark()
        server.put("pods", pod("after", "10.0.0.9"))
        await until(lambda: names(tables, "10.0.0.9") == ["after"])
        await server.drop_connections()
        server.put("pods", pod("again", "10.0.0.10"))
        await until(lambda: names(tables, "10.0.0.10") == ["again"])
    assert sum("limit=" in target for target in server.requests) == 1


@pytest.mark.parametrize("kind", ["event", "status", "in the stream"])
async def test_where_the_version_is_gone_all_is_listed_again_and_unseen_deletions_count(
    server: KubernetesStandIn, kubeconfig: Path, kind: str
) -> None:
    server.gone_as_status = kind == "status"
    server.put("pods", pod("stays", "10.0.0.1"))
    server.put("pods", pod("goes", "10.0.0.2"))
    context = RecordingContext()
    async with tables_of(kubeconfig, context, nodes_and_services=False) as tables:
        await server.wait_watches(1)
        if kind == "in the stream":
            server.gone_event()
            server.compact()
        else:
            await server.drop_connections()
            server.compact()
        server.delete("pods", "default", "goes")
        server.put("pods", pod("comes", "10.0.0.3"))
        server.compact()
        await until(lambda: names(tables, "10.0.0.1", "10.0.0.2", "10.0.0.3") == ["stays", None, "comes"])
        assert tables.pod_record("10.0.0.2", 1e9) is not None  # found by flows of its time
        server.put("pods", pod("later", "10.0.0.4"))
        await until(lambda: names(tables, "10.0.0.4") == ["later"])
    assert "list_again" in context.events


async def test_a_continue_token_that_expires_is_answered_by_larger_pages(
    server: KubernetesStandIn, kubeconfig: Path
) -> None:
    for number in range(1200):
        server.put("pods", pod(f"pod-{number}", f"10.0.{number // 250}.{number % 250}"))
    server.faults.append(Fault(410, match="continue=", times=1))
    async with tables_of(kubeconfig, nodes_and_services=False) as tables:
        assert len(tables.pods) == 1200
    lists = [target for target in server.requests if "watch" not in target]
    assert [target.partition("limit=")[2].partition("&")[0] for target in lists] == ["500", "500", "5000"]


async def test_larger_pages_that_are_too_long_are_answered_by_small_ones(
    server: KubernetesStandIn, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = [server.put("pods", pod(f"pod-{n}", f"10.0.{n // 250}.{n % 250}")) for n in range(600)]
    monkeypatch.setattr(_watch, "_PAGE_OCTETS", len(json.dumps(stored)) - 1)
    server.faults.append(Fault(410, match="continue="))
    context = RecordingContext()
    async with tables_of(kubeconfig, context, nodes_and_services=False) as tables:
        assert len(tables.pods) == 600
    sizes = [parse_qs(target)["/api/v1/pods?limit"][0] for target in server.requests if "limit=" in target]
    assert sizes == ["500", "500", "5000", "500", "500"]
    assert any("longer than" in problem for problem in context.impairments)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_server_that_fails_for_a_while_is_asked_again(
    server: KubernetesStandIn, kubeconfig: Path, status: int
) -> None:
    server.put("pods", pod("one", "10.0.0.1"))
    server.faults.append(Fault(status, times=4, headers={"Retry-After": "0"}))
    context = RecordingContext()
    async with tables_of(kubeconfig, context) as tables:
        assert names(tables, "10.0.0.1") == ["one"]
    assert "watch_failed" in context.events
    assert any("injected" in problem for problem in context.impairments)
    assert context.impairments[-1] == ""


async def test_a_server_that_is_down_is_asked_until_it_is_back(
    kubeconfig_of: Callable[..., Path], nursery: trio.Nursery
) -> None:
    server = KubernetesStandIn()
    server.put("pods", pod("one", "10.0.0.1"))
    async with server.serving():
        pass
    context = RecordingContext()

    async def come_back() -> None:
        await until(lambda: bool(context.impairments))
        async with server.serving():
            await trio.sleep_forever()

    nursery.start_soon(come_back)
    async with tables_of(kubeconfig_of(server.url), context) as tables:
        assert names(tables, "10.0.0.1") == ["one"]
    assert "no connection to 127.0.0.1" in context.impairments[0]
    nursery.cancel_scope.cancel()


async def test_a_missing_right_is_named_with_the_rule_that_gives_it(
    server: KubernetesStandIn, kubeconfig: Path
) -> None:
    server.forbidden = {"nodes"}
    server.put("pods", pod("one", "10.0.0.1"))
    context = RecordingContext()
    async with tables_of(kubeconfig, context) as tables:  # open without the Nodes
        assert names(tables, "10.0.0.1") == ["one"]
        (problem,) = [problem for problem in context.impairments if problem][:1]
        assert problem.startswith("nodes may not be read (nodes is forbidden: User")
        assert '{apiGroups: [""], resources: ["nodes"], verbs: ["list", "watch"]}' in problem
        server.forbidden = set()
        server.put("nodes", node("node-1", "192.0.2.1"))
        await until(lambda: tables.node_record("node-1", None) is not None)
        await until(lambda: context.impairments[-1] == "")


async def test_without_the_right_to_read_pods_it_does_not_open_and_says_why(
    server: KubernetesStandIn, kubeconfig: Path, nursery: trio.Nursery
) -> None:
    server.forbidden = {"pods"}
    context = RecordingContext()

    async def grant() -> None:
        await until(lambda: any("pods may not be read" in problem for problem in context.impairments))
        server.forbidden = set()

    nursery.start_soon(grant)
    async with tables_of(kubeconfig, context):
        assert server.forbidden == set()


async def test_credentials_that_are_not_accepted_are_named(
    server: KubernetesStandIn, kubeconfig: Path, nursery: trio.Nursery
) -> None:
    accepted, server.tokens = server.tokens, {"another"}
    context = RecordingContext()

    async def accept() -> None:
        await until(lambda: any("does not accept the credentials" in each for each in context.impairments))
        server.tokens = accepted

    nursery.start_soon(accept)
    async with tables_of(kubeconfig, context):
        assert server.tokens == accepted


@pytest.mark.parametrize(
    "octets",
    [
        b"no json\n",
        b"[]\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "ADDED", "object": {"metadata": {}}}\n',
        b'{"type": "ERROR", "object": {"code": 500, "message": "etcd is away"}}\n',
        b'{"type": "ERROR", "object": null}\n',
        b"\xff\xfe\n",
    ],
)
async def test_an_event_that_cannot_be_read_starts_the_watch_anew(
    server: KubernetesStandIn, kubeconfig: Path, octets: bytes
) -> None:
    context = RecordingContext()
    async with tables_of(kubeconfig, context, nodes_and_services=False) as tables:
        await server.wait_watches(1)
        server.send_to_watches(octets)
        await until(lambda: "watch_failed" in context.events)
        server.put("pods", pod("after", "10.0.0.1"))
        await until(lambda: names(tables, "10.0.0.1") == ["after"])
        await until(lambda: context.impairments[-1] == "")


async def test_an_event_that_cannot_be_read_whenever_it_is_told_is_passed_over_by_a_list(
    server: KubernetesStandIn, kubeconfig: Path
) -> None:
    server.put("pods", pod("goes", "10.0.0.1"))
    async with tables_of(kubeconfig, nodes_and_services=False) as tables:
        await server.wait_watches(1)
        server.spoil("pods", b"what is this\n")
        server.delete("pods", "default", "goes")
        server.put("pods", pod("after", "10.0.0.2"))
        await until(lambda: names(tables, "10.0.0.1", "10.0.0.2") == [None, "after"])
        server.put("pods", pod("later", "10.0.0.3"))
        await until(lambda: names(tables, "10.0.0.3") == ["later"])
    assert sum("limit=" in target for target in server.requests) == 2


async def test_an_object_without_what_every_object_has_is_counted_and_passed_over(
    server: KubernetesStandIn, kubeconfig: Path
) -> None:
    context = RecordingContext()
    async with tables_of(kubeconfig, context, nodes_and_services=False) as tables:
        await server.wait_watches(1)
        for broken in (b'{"status": []}', b'{"metadata": {"resourceVersion": "1", "uid": 3, "namespace": 4}}'):
            server.send_to_watches(b'{"type": "ADDED", "object": ' + broken + b"}\n")
        server.send_to_watches(b'{"type": "NEWER", "object": {"metadata": {"resourceVersion": "2000"}}}\n')
        server.put("pods", pod("after", "10.0.0.1", created="yesterday"))
        server.put("pods", pod("good", "10.0.0.2"))
        await until(lambda: names(tables, "10.0.0.1", "10.0.0.2") == [None, "good"])
    assert context.counters["objects_unreadable"].value >= 1


async def test_a_watch_that_the_server_ends_in_time_is_begun_again_without_a_list(
    server: KubernetesStandIn, kubeconfig: Path
) -> None:
    async with tables_of(kubeconfig, nodes_and_services=False) as tables:
        for number in range(3):
            await server.wait_watches(1)
            server.send_to_watches(None)
            await server.wait_watches(0)
            server.put("pods", pod(f"pod-{number}", f"10.0.0.{number}"))
        await until(lambda: names(tables, "10.0.0.2") == ["pod-2"])
    assert sum("limit=" in target for target in server.requests) == 1


@pytest.mark.parametrize("stalled", ["limit=", "watch=1"])
async def test_it_ends_at_once_whatever_the_server_does(
    server: KubernetesStandIn, kubeconfig: Path, stalled: str
) -> None:
    server.stall = stalled
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            opening = functools.partial(_stay_open, kubeconfig)
            nursery.start_soon(opening)
            await server.wait_requests(3)
            started = trio.current_time()
            nursery.cancel_scope.cancel()
        assert trio.current_time() - started < 1 + 10  # a second, and room for a machine that is busy


async def _stay_open(kubeconfig: Path) -> None:
    async with tables_of(kubeconfig):
        await trio.sleep_forever()


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b", b"\n", b"\n\nc", b"\n"], [b"ab", b"c"]),
        ([b"left over"], []),
    ],
)
def test_lines_are_cut_wherever_the_stream_is_split(pieces: Sequence[bytes], lines: list[bytes]) -> None:
    cut = _watch.Lines(100)
    assert [line for piece in pieces for line in cut.receive(piece)] == lines


def test_a_line_without_an_end_is_refused() -> None:
    cut = _watch.Lines(100)
    list(cut.receive(b"x" * 100))
    with pytest.raises(_watch.HttpTrouble, match="longer than 100 octets"):
        list(cut.receive(b"x"))


async def test_what_was_deleted_is_let_go_of_in_time_and_early_losses_are_counted(
    server: KubernetesStandIn, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tables, "_PURGE_SECONDS", 0.01)
    for name, address in (("one", "10.0.0.1"), ("two", "10.0.0.2")):
        server.put("pods", pod(name, address))
    context = RecordingContext()
    async with tables_of(kubeconfig, context, deleted_pods_kept=0.0) as tables:
        server.delete("pods", "default", "one")
        await until(lambda: len(tables.pods) == 1)
        assert tables.pod_record("10.0.0.1", 1e9) is None
        assert context.counters["deleted_forgotten_early"].value == 0
        monkeypatch.setattr(tables.pods, "_most_deleted", 0)
        server.delete("pods", "default", "two")
        await until(lambda: context.counters["deleted_forgotten_early"].value == 1)
        assert len(tables.pods) == 0


async def test_watches_end_without_waiting_for_anything(
    server: KubernetesStandIn, kubeconfig: Path, mock_clock: trio.testing.MockClock
) -> None:
    """The clock stands still: what waited for a moment of it would wait for ever."""
    config = KubernetesConfig(kubeconfig=kubeconfig)
    async with open_tables(load_api(config), config, RecordingContext()):
        await server.wait_watches(3)
    await server.wait_watches(0)
    await server.wait_connections(0)
    async with trio.open_nursery() as nursery, open_tables(load_api(config), config, RecordingContext()):
        await server.wait_watches(3)
        server.stall = "/api/v1/pods"
        await server.drop_connections()
        nursery.cancel_scope.cancel()  # while it connects anew
    await server.wait_connections(0)
