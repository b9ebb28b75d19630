from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowjoin._config.file import parse_file, read_again
from flowjoin._config.plain import node_to_plain
from flowjoin._model.errors import ConfigError


def problem_of(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_again(str(path))
    return str(caught.value)


def test_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "flowjoin.yaml"
    path.write_bytes(b"mode: Proxy\n")
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_again(str(link)) == b"mode: Proxy\n"


@pytest.mark.parametrize("octets", [b"", b"\n \n", b"# mode: Proxy\n  #\n"])
def test_what_an_editor_or_a_full_disk_left_empty_is_no_configuration(tmp_path: Path, octets: bytes) -> None:
    path = tmp_path / "flowjoin.yaml"
    path.write_bytes(octets)
    assert problem_of(path) == f"{path}: is empty"


def test_a_pipe_in_the_files_place_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "flowjoin.yaml"
    os.mkfifo(path)  # to open it for reading would wait for a writer
    assert problem_of(path) == f"{path}: cannot be read: it is no file any more"


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    assert problem_of(tmp_path / "absent") == f"{tmp_path / 'absent'}: cannot be read: No such file or directory"
    assert problem_of(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"


@pytest.mark.parametrize(
    ("environment", "types"),
    [
        ({}, []),
        ({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, []),
        ({"KUBERNETES_SERVICE_HOST": "10.96.0.1", "POD_NAMESPACE": "flow-aggregator"}, ["kubernetes"]),
    ],
)
def test_in_a_pod_antreas_file_has_kubernetes_name_the_pods(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], types: list[str]
) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "POD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("flowjoin._config.file.entry_points", lambda **_: ["flowjoin-kubernetes"])
    loaded = parse_file(b"flowLogger: {enable: true}", "f")
    assert [entry.type for entry in loaded.config.enrichers] == types
    assert [entry.type for entry in loaded.config.lookups] == types
    assert [notice.path for notice in loaded.warnings if notice.severity == "info"] == [
        "enrichers",
        "lookups",
        "apiServer",
    ][: 3 * len(types)]
    loaded.require_available()
    api = loaded.config.api_server
    assert (str(api.endpoint), api.tls, api.review_tokens) == (
        ("[::]:10348", "selfSigned", True) if types else ("127.0.0.1:10348", "none", False)
    )


def test_in_a_pod_what_the_file_says_of_enrichers_and_lookups_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("POD_NAMESPACE", "flow-aggregator")
    monkeypatch.setattr("flowjoin._config.file.entry_points", lambda **_: ["flowjoin-kubernetes"])
    loaded = parse_file(b"enrichers: []\nlookups: [{type: file, path: x}]\nflowLogger: {enable: true}", "f")
    assert loaded.config.enrichers == ()
    assert [entry.type for entry in loaded.config.lookups] == ["file"]


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("apiServer: {apiPort: 10349}", "[::]:10349"),
        ('apiServer: {address: "127.0.0.1:10348"}', "127.0.0.1:10348"),
        ("apiServer: {address: none}", "None"),
        ("apiServer: {token: {env: TOKEN}}", "127.0.0.1:10348"),
        ("lookups: []", "127.0.0.1:10348"),  # nobody there could be asked who may read
    ],
)
def test_in_a_pod_the_api_is_reached_from_outside_unless_the_file_says_where(
    monkeypatch: pytest.MonkeyPatch, text: str, endpoint: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("POD_NAMESPACE", "flow-aggregator")
    monkeypatch.setattr("flowjoin._config.file.entry_points", lambda **_: ["flowjoin-kubernetes"])
    api = parse_file(text.encode(), "f").config.api_server
    assert str(api.endpoint) == endpoint
    assert api.review_tokens == (endpoint.startswith("[::]"))


def test_in_a_pod_without_the_plugin_nothing_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("POD_NAMESPACE", "flow-aggregator")
    monkeypatch.setattr("flowjoin._config.file.entry_points", lambda **_: [])
    assert parse_file(b"flowLogger: {enable: true}", "f").config.enrichers == ()


@pytest.mark.parametrize(("name", "given"), [(None, {}), ("", {}), ("node-1", {"onlyNode": True})])
def test_an_agent_that_knows_its_node_watches_the_pods_of_that_node_alone(
    monkeypatch: pytest.MonkeyPatch, name: str | None, given: dict[str, bool]
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    if name is not None:
        monkeypatch.setenv("NODE_NAME", name)
    antreas = b"clientConnection: {kubeconfig: /k}\nflowExporter: {enable: true, flowCollectorAddr: 192.0.2.1}\n"
    (lookup,) = parse_file(antreas, "antrea-agent.conf").config.lookups
    kubernetes = {"clusterUUID": "none", "kubeconfig": "/k"}
    assert node_to_plain(lookup.settings.node) == {**kubernetes, **given}


def test_a_look_up_that_is_written_out_is_left_as_it_is_whatever_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "node-1")
    written = b"lookups: [{type: kubernetes}]\nflowExporter: {enable: true}\n"
    (lookup,) = parse_file(written, "antrea-agent.conf").config.lookups
    assert node_to_plain(lookup.settings.node) == {}
