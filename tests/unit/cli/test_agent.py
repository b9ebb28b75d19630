from __future__ import annotations

from pathlib import Path

import pytest

from flowjoin.__main__ import main

AGENT = 'flowExporter: {enable: true, flowCollectorAddr: "127.0.0.1:1:tcp"}\n'
OURS = "exporters: [{type: log, path: flows}]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "antrea-agent.conf"


def said(file: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main([*words, "-c", str(file)])
    return code, capsys.readouterr().err.replace(str(file), "F")


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    from flowjoin._plugins import loader

    installed = loader.installed_plugins
    monkeypatch.setattr(loader, "installed_plugins", lambda: tuple(p for p in installed() if p.name not in names))


@pytest.mark.parametrize(
    ("text", "plugin", "sentence"),
    [
        (AGENT, "conntrack", "plugin 'conntrack': is not installed: pip install flowjoin-conntrack (named at "),
        (AGENT, "ipfix", "plugin 'ipfix': is not installed: pip install flowjoin-ipfix (named at F:1: flowExporter)"),
        (OURS, "conntrack", "plugin 'conntrack': is not installed: pip install flowjoin-conntrack (named at "),
    ],
)
def test_what_is_not_installed_is_named_with_the_package_that_brings_it(
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    plugin: str,
    sentence: str,
) -> None:
    file.write_text(text)
    hide(monkeypatch, plugin)
    code, errors = said(file, capsys, "agent")
    assert code == 2
    assert errors.startswith(f"flowjoin: {sentence}")
    assert errors.count("\n") == 1


def test_an_agent_that_has_nowhere_to_send_does_not_start(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("featureGates: {FlowExporter: false}\n")
    code, errors = said(file, capsys, "agent")
    assert (code, errors) == (
        2,
        "flowjoin: F: flowExporter.enable: nothing says where flows go; write flowExporter: "
        "{enable: true, flowCollectorAddr: ADDRESS}, or exporters\n",
    )


@pytest.mark.parametrize("words", [("check",), ("check", "--agent"), ("check", "--strict")])
def test_check_understands_an_agents_file(
    file: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    file.write_text(AGENT + "ovsBridge: br-int\ntunnelType: geneve\n")
    assert said(file, capsys, *words) == (0, "")
    file.write_text(AGENT.replace("tcp", "grpc"))
    code, errors = said(file, capsys, *words)
    assert code == 2
    assert errors.startswith("flowjoin: F:1: flowExporter.flowCollectorAddr: gRPC is not supported")


def test_a_key_that_nobody_knows_is_a_warning(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(AGENT + "tunneltype: geneve\n")
    code, errors = said(file, capsys, "check")
    assert (code, errors) == (
        0,
        'warning: F:2: tunneltype: is not a known key; did you mean "tunnelType"?; ignored\n',
    )


def test_check_reads_our_own_keys_as_an_agent_does_when_told_so(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(OURS)
    hide(monkeypatch, "conntrack")
    assert said(file, capsys, "check") == (0, "")
    assert said(file, capsys, "check", "--agent")[0] == 2
