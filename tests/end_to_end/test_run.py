"""``flowjoin run`` as a process: real sockets, real signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_traffic import agent_messages
from running_flowjoin import Run, send

from flowjoin._generator.config import TrafficConfig

pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., str]:
    def write(text: str = "", exporter: str = "", name: str = "flowjoin.yaml") -> str:
        path = tmp_path / name
        path.write_text(
            f"stateDirectory: {tmp_path}/state\n"
            'collectors: [{protocol: tcp, address: "127.0.0.1:0"}]\n'
            f"exporters: [{{type: log, path: {tmp_path}/flows.csv{exporter}}}]\n" + text
        )
        return str(path)

    return write


def test_sighup_is_answered_and_does_not_end_the_run(run: Run, config: Callable[..., str], tmp_path: Path) -> None:
    program = run("-c", config())
    address = program.wait_ready()
    program.process.send_signal(signal.SIGHUP)
    program.wait_line("configuration_unchanged")
    send(address, TrafficConfig(flows=10, seed=2))
    program.process.send_signal(signal.SIGTERM)

    assert program.finish() == 0
    assert len((tmp_path / "flows.csv").read_text().splitlines()) == 10


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_delivers_every_ready_flow_and_ends_with_0_and_the_books(
    run: Run, config: Callable[..., str], tmp_path: Path, number: signal.Signals
) -> None:
    program = run("-c", config())
    address = program.wait_ready()
    send(address, TrafficConfig(flows=100, seed=2))
    program.process.send_signal(number)

    assert program.finish() == 0
    assert len((tmp_path / "flows.csv").read_text().splitlines()) == 100
    *_, books, stopped = map(json.loads, program.text.splitlines())
    assert (books["flows"], books["flows_exported_last"], books["lanes"]["log"]["delivered"]) == (100, 100, 100)
    assert (stopped["event"], stopped["exit_code"]) == ("stopped", 0)


def test_a_second_process_on_the_same_state_directory_ends_with_2(run: Run, config: Callable[..., str]) -> None:
    path = config()
    first = run("-c", path)
    first.wait_line("ready")
    second = run("-c", path)

    assert second.finish() == 2
    assert f"is in use by process {first.process.pid}" in second.text
    first.process.terminate()
    assert first.finish() == 0


def test_an_address_in_use_ends_with_1_and_one_sentence(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = tmp_path / "flowjoin.yaml"
        path.write_text(
            f'stateDirectory: {tmp_path}/state\ncollectors: [{{protocol: tcp, address: "127.0.0.1:{port}"}}]\n'
        )
        program = run("-c", str(path))
        assert program.finish() == 1
    assert "Traceback" not in program.text
    assert f"127.0.0.1:{port}" in program.text


def test_a_state_directory_that_cannot_be_used_ends_with_2(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "flowjoin.yaml"
    path.write_text(f"stateDirectory: {tmp_path}/file/state\nsources: []\naggregatorTransportProtocol: None\n")
    program = run("-c", str(path))

    assert program.finish() == 2
    assert "stateDirectory" in program.text
    assert "Traceback" not in program.text


@pytest.mark.parametrize(("spool", "code"), [("", 0), (", spool: none", 1)])
def test_rows_that_nobody_took_end_with_1_after_the_grace_period_unless_they_are_in_a_spool(
    run: Run, config: Callable[..., str], tmp_path: Path, spool: str, code: int
) -> None:
    (tmp_path / "flows.csv").symlink_to("/dev/full")  # a disk without room
    program = run("-c", config("shutdownGracePeriod: 200ms\n", spool))
    address = program.wait_ready()
    send(address, TrafficConfig(flows=10))
    program.process.terminate()

    assert program.finish() == code
    assert "grace_period_over" in program.text


@pytest.mark.parametrize(("spool", "code"), [("", 0), (", spool: none", 1)])
def test_a_second_signal_stops_at_once(
    run: Run, config: Callable[..., str], tmp_path: Path, spool: str, code: int
) -> None:
    (tmp_path / "flows.csv").symlink_to("/dev/full")
    program = run("-c", config("shutdownGracePeriod: 1h\n", spool))
    address = program.wait_ready()
    send(address, TrafficConfig(flows=10))
    program.process.terminate()
    program.wait_line("draining")
    program.process.terminate()

    assert program.finish() == code
    *_, books, _ = map(json.loads, program.text.splitlines())
    assert books["lanes"]["log"]["held"] > 0


PLUGIN = """
from contextlib import asynccontextmanager
from dataclasses import dataclass
from flowjoin.api import EnricherType, hookimpl

@dataclass(frozen=True, kw_only=True)
class Settings:
    value: str

class Naming:
    def __init__(self, value):
        self.value = value

    def enrich(self, batch):
        return {"sourcePodLabels": [self.value] * len(batch)}

@asynccontextmanager
async def _open(config, context):
    yield Naming(config.value)

@hookimpl
def flowjoin_enricher_types():
    return [EnricherType("naming", Settings, (), ("sourcePodLabels",), _open, api_version=1)]
"""


def install(folder: Path, source: str) -> None:
    """A plugin ``naming`` as pip would lay it out."""
    info = folder / "flowjoin_naming-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flowjoin-naming\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("[flowjoin.plugins]\nnaming = flowjoin_naming_plugin\n")
    (folder / "flowjoin_naming_plugin.py").write_text(source)


def test_a_third_partys_plugin_is_found_by_its_entry_point_and_used(
    run: Run, config: Callable[..., str], tmp_path: Path
) -> None:
    install(tmp_path / "site", PLUGIN)
    program = run(
        "-c", config("enrichers: [{type: naming, value: seen}]\n", ", format: jsonLines"), path=tmp_path / "site"
    )
    address = program.wait_ready()
    send(address, TrafficConfig(flows=20))
    program.process.terminate()

    assert program.finish() == 0
    rows = [json.loads(line) for line in (tmp_path / "flows.csv").read_text().splitlines()]
    assert len(rows) == 20
    assert {row["sourcePodLabels"] for row in rows} >= {"seen"}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("", "", ""),
        ("def flowjoin_enricher_types", "def flowjoin_enricher_type", "did you mean 'flowjoin_enricher_types'?"),
        ("api_version=1", "api_version=2", "newer plugin API 2"),
        ("from dataclasses", "import absent_module\nfrom dataclasses", "No module named 'absent_module'"),
        ('"naming", Settings', '"name", Settings', "hands over no enricher of that name"),
        ("sourcePodLabels", "sourcePodLable", "did you mean 'sourcePodLabels'?"),
    ],
)
def test_a_broken_plugin_ends_the_start_with_2_and_its_name(
    run: Run, config: Callable[..., str], tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    if old:
        install(tmp_path / "site", PLUGIN.replace(old, new))
    path = tmp_path / "site"
    program = run("-c", config("enrichers: [{type: naming, value: seen}]\n"), path=path)

    assert program.finish() == 2
    assert "Traceback" not in program.text
    expected = "(distribution flowjoin-naming 1.5): " if old else "its distribution is as a rule flowjoin-naming"
    assert expected in program.text
    assert sentence in program.text
    assert "named at" in program.text


def test_the_demo_shows_joined_flows_and_ends_with_0(run: Run) -> None:
    program = run("--demo")
    assert program.process.stdout is not None
    flows = 0
    for line in program.process.stdout:
        flows += " TCP " in line or " UDP " in line
        if flows == 3:
            break
    program.process.send_signal(signal.SIGINT)

    assert flows == 3
    assert program.finish() == 0
    lines = list(map(json.loads, program.text.splitlines()))  # no line that a program could not read
    (books,) = [line for line in lines if line["event"] == "books"]
    assert books["lanes"]["terminal"]["delivered"] >= 3


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "write -c FILE to run a configuration, or --demo\n"),
        (("-c", "x.yaml", "--demo"), "write -c FILE to run a configuration, or --demo; not both\n"),
    ],
)
def test_it_must_be_said_what_to_run(run: Run, arguments: tuple[str, ...], problem: str) -> None:
    program = run(*arguments)

    assert program.finish() == 2
    assert problem in program.text


PIPED = """collectors: [{protocol: tcp, address: "127.0.0.1:0"}]
exporters: [{type: log, path: "-", spool: none}]
"""


@pytest.mark.parametrize("is_demo", [True, False])
def test_when_nobody_reads_standard_output_any_more_it_ends_quietly_with_0(
    run: Run, tmp_path: Path, is_demo: bool
) -> None:
    path = tmp_path / "flowjoin.yaml"
    path.write_text(f"stateDirectory: {tmp_path}/state\n{PIPED}")  # not the one that the machine has
    program = run("--demo") if is_demo else run("-c", str(path))
    assert program.process.stdout is not None
    if is_demo:
        assert program.process.stdout.readline()
    else:
        program.wait_line("ready")
    program.process.stdout.close()

    assert program.process.wait(timeout=60) == 0
    assert program.process.stderr is not None
    said = program.process.stderr.read()
    assert not {"Traceback", "Broken pipe", "bug"} & set(said.split())
    program.process.stderr.close()


def test_other_destinations_are_served_on_without_a_reader_of_standard_output(
    run: Run, config: Callable[..., str], tmp_path: Path
) -> None:
    program = run("-c", config(exporter=', spool: none}, {type: log, name: shown, path: "-", spool: none'))
    address = program.wait_ready()
    assert program.process.stdout is not None
    program.process.stdout.close()
    send(address, TrafficConfig(flows=10, seed=2))
    program.process.terminate()
    program.wait_line("draining")
    rows = tmp_path / "flows.csv"
    program.wait_until(lambda: rows.exists() and bool(rows.read_text()))
    program.process.terminate()  # what nobody reads is waited for no longer

    assert program.process.wait(timeout=60) == 1


BUG = """
import sys
from flowjoin import __main__
from flowjoin._kernel import intake  # of either form

ticks = []

def broken(self, now):
    ticks.append(now)
    if len(ticks) > 1:
        raise AssertionError("these tables do not agree")
    return ()

intake.Intake.tick = broken
sys.exit(__main__.main())
"""


def test_a_bug_of_the_core_ends_it_with_1_a_report_and_the_books(config: Callable[..., str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUG, "run", "-c", config()],
        env={**os.environ, "FLOWJOIN_KERNEL": "python"},  # the form that BUG breaks
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if '"core_failed"' in line]
    assert json.loads(line)["problem"] == "AssertionError: these tables do not agree"
    (books,) = [json.loads(line) for line in done.stderr.splitlines() if '"event": "books"' in line]
    assert list(books["lanes"]) == ["log"]
    assert 'raise AssertionError("these tables' not in done.stderr
    assert ", in broken" in done.stderr  # where it was


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("path: {0}", "exporters[0].path: {0} is a directory; name a file in it"),
        (
            "path: {0}/f, elements: [nope]",
            "exporters[0].elements[0]: there is no Information Element 'nope'; "
            "names are IANA's or Antrea's, such as octetDeltaCount",
        ),
    ],
)
def test_what_an_exporter_finds_wrong_in_its_configuration_ends_the_run_with_2_and_one_sentence(
    run: Run, tmp_path: Path, keys: str, problem: str
) -> None:
    path = tmp_path / "flowjoin.yaml"
    path.write_text(
        f"stateDirectory: {tmp_path}/state\n"
        'collectors: [{protocol: tcp, address: "127.0.0.1:0"}]\n'
        f"exporters: [{{type: log, {keys.format(tmp_path)}}}]\n"
    )
    program = run("-c", str(path))
    assert program.finish() == 2
    assert program.text.splitlines()[-1] == f"flowjoin: {path}:3: {problem.format(tmp_path)}"
    assert "Traceback" not in program.text


def test_templates_over_udp_outlive_a_restart(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "flowjoin.yaml"
    traffic = TrafficConfig(nodes=2, flows=20)
    sockets: dict[int, socket.socket] = {}
    port = 0
    for is_restart in (False, True):
        path.write_text(
            f"stateDirectory: {tmp_path}/state\n"
            f'collectors: [{{protocol: udp, address: "127.0.0.1:{port}"}}]\n'
            f"exporters: [{{type: log, path: {tmp_path}/flows.csv}}]\n"
        )
        program = run("-c", str(path))
        address = program.wait_ready()
        port = int(address.rpartition(":")[2])
        for message, session in agent_messages(traffic):
            if session.serial not in sockets:
                sockets[session.serial] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sender = sockets[session.serial]
            has_templates = message[16:18] == b"\0\2"
            if not (is_restart and has_templates):
                sender.sendto(message, ("127.0.0.1", port))
        program.process.send_signal(signal.SIGTERM)
        assert program.finish() == 0
        *_, books, _ = map(json.loads, program.text.splitlines())
        assert books["sets_without_template"] == 0, program.text
        assert ("templates_restored" in program.text) == is_restart
    for sender in sockets.values():
        sender.close()


def test_what_a_killed_run_had_spooled_is_in_the_log_of_the_next_once(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "flowjoin.yaml"
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    path.write_text(
        f"stateDirectory: {tmp_path}/state\nactiveFlowRecordTimeout: 1s\n"
        'collectors: [{protocol: tcp, address: "127.0.0.1:0"}]\n'
        f"exporters: [{{type: log, path: {blocked}/flows.csv}}]\n"
    )
    program = run("-c", str(path))
    address = program.wait_ready()
    if '"exporter_opened"' not in program.text:
        program.wait_line("exporter_opened")
    blocked.rename(tmp_path / "elsewhere")
    blocked.touch()  # a file where the directory was: nothing can be written
    send(address, TrafficConfig(nodes=2, flows=50))
    program.wait_line("export_retried")
    program.process.kill()
    program.finish()
    blocked.unlink()
    program = run("-c", str(path))
    program.wait_line("ready")
    program.process.send_signal(signal.SIGTERM)
    assert program.finish() == 0
    assert "spool_restored" in program.text
    lines = (blocked / "flows.csv").read_text().splitlines()
    assert len(lines) == len(set(lines)) > 0
    assert not list((tmp_path / "state" / "spool" / "log").glob("*.ipfix"))


def test_a_wish_to_stop_is_heard_from_the_first_line_on_and_once(run: Run, config: Callable[..., str]) -> None:
    program = run("-c", config())
    program.wait_line("starting")
    program.process.send_signal(signal.SIGTERM)

    assert program.finish() == 0
