"""``flowjoin replay``: captures written here through the whole pipeline, from the file to the printed line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from capture_writer import FIN, SYN, ethernet, ipv4, pcap, tcp, udp
from hand_made import AGENT, D1, D2, S1, S2, SOURCE, Record, data_set, message, template_set, worked_example

from flowjoin.__main__ import main

SOURCE_NODE, DESTINATION_NODE = "192.0.2.11", "192.0.2.12"


def sent(time: float, node: str, *records: Record, sequence: int = 0) -> tuple[float, bytes]:
    """A frame with an agent's Message, its Template in front."""
    octets = message(template_set(AGENT), data_set(AGENT, *records), sequence=sequence)
    return time, ethernet(ipv4(udp(octets), source=node))


def both_halves() -> list[tuple[float, bytes]]:
    return [
        sent(1000.0, SOURCE_NODE, S1),
        sent(1001.0, DESTINATION_NODE, D1),
        sent(1010.0, SOURCE_NODE, S2, sequence=1),
        sent(1011.5, DESTINATION_NODE, D2, sequence=1),
    ]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "flows.pcap"
    path.write_bytes(pcap(both_halves()))
    return path


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_two_halves_become_one_flow(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(capture), "--output", "json"]) == 0
    printed = capsys.readouterr()
    (*_, last) = found = rows(printed.out)
    assert {(row["sourcePodName"], row["destinationPodName"]) for row in found} == {("pod1", "pod2")}
    assert (last["packetTotalCount"], last["packetTotalCountFromSourceNode"]) == (1005, 1000)
    assert (last["packetTotalCountFromDestinationNode"], last["flowEndSeconds"]) == (1005, 10)
    books = {line.split()[0]: line for line in printed.err.splitlines()}
    assert "4 received: 1 made a flow, 3 merged" in books["records"]
    assert "1 created: 1 exported to the end" in books["flows"]


def test_a_half_whose_other_half_never_comes_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "half.pcap"
    path.write_bytes(pcap(both_halves()[::2]))
    assert main(["replay", str(path)]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "1 created: 1 halves given up" in printed.err


def test_the_same_capture_gives_the_same_lines(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for _ in range(2):
        main(["replay", str(capture)])
        printed.append(capsys.readouterr())
    assert printed[0] == printed[1]


def test_active_flows_leave_by_the_captures_own_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, config = tmp_path / "flows.pcap", tmp_path / "flowjoin.yaml"
    later = worked_example(30, 2000, 1000, 4000, 2000, 2, "ESTABLISHED")
    path.write_bytes(pcap([*both_halves(), sent(1030.0, SOURCE_NODE, later | SOURCE, sequence=2)]))
    config.write_text("activeFlowRecordTimeout: 5s\n")
    main(["replay", str(path), "-c", str(config)])
    assert [row["flowEndSeconds"] for row in rows(capsys.readouterr().out)] == [1, 10, 30]
    main(["replay", str(path)])
    assert [row["flowEndSeconds"] for row in rows(capsys.readouterr().out)] == [1, 30]


def test_people_read_one_line_a_flow(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(capture), "--output", "table"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "1970-01-01T00:00:10Z  tcp    10.0.0.1:1234 (/pod1) -> 10.0.0.2:5678 (/pod2)  "
        "1,005 packets, 2,050 octets, 2,050 back"
    )


def test_configured_exporters_take_the_flows(tmp_path: Path, capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")
    flows, config = tmp_path / "flows.jsonl", tmp_path / "flowjoin.yaml"
    state = tmp_path / "state"
    config.write_text(
        f"stateDirectory: {state}\ncollectors: [{{protocol: udp, address: '127.0.0.1:1'}}]\n"
        f"exporters: [{{type: log, path: {flows}, format: jsonLines, spool: none}}]\n"
    )
    assert main(["replay", str(capture), "-c", str(config)]) == 0
    assert [row["packetTotalCount"] for row in rows(flows.read_text())][-1] == 1005
    assert capsys.readouterr().out == ""
    assert not state.exists(), "a replay's state is thrown away"


def test_output_beside_exporters_is_refused(tmp_path: Path, capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")
    config = tmp_path / "flowjoin.yaml"
    config.write_text(f"exporters: [{{type: log, path: {tmp_path}/flows, spool: none}}]\n")
    assert main(["replay", str(capture), "-c", str(config), "--output", "json"]) == 2
    assert "--output" in capsys.readouterr().err


def test_tcp_and_udp_give_the_same_flows(tmp_path: Path, capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = []
    for node, records in (
        (SOURCE_NODE, ((1000.0, S1), (1010.0, S2))),
        (DESTINATION_NODE, ((1001.0, D1), (1011.5, D2))),
    ):
        at = 1
        segments = [(1000.0, tcp(sequence=0, flags=SYN))]
        for sequence, (time, record) in enumerate(records):
            stream = message(template_set(AGENT), data_set(AGENT, record), sequence=sequence)
            for start in range(0, len(stream), 100):
                piece = stream[start : start + 100]
                segments.append((time, tcp(piece, sequence=at)))
                at += len(piece)
        segments.append((1012.0, tcp(sequence=at, flags=FIN)))
        frames += [(time, ethernet(ipv4(segment, protocol=6, source=node))) for time, segment in segments]
    frames.sort(key=itemgetter(0))
    path = tmp_path / "stream.pcap"
    path.write_bytes(pcap(frames))
    main(["replay", str(path)])
    over_tcp = rows(capsys.readouterr().out)
    main(["replay", str(capture)])
    assert over_tcp == rows(capsys.readouterr().out)


def test_a_file_cut_short_gives_what_is_whole_and_fails(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture.write_bytes(capture.read_bytes()[:-1])
    assert main(["replay", str(capture)]) == 1
    printed = capsys.readouterr()
    assert rows(printed.out)[-1]["packetTotalCountFromSourceNode"] == 1000
    assert "input file cut short" in printed.err
    assert "3 received" in printed.err


def test_an_unknown_format_is_unusable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"no capture")
    assert main(["replay", str(path)]) == 2
    assert "neither a pcap, a pcapng nor an IPFIX File" in capsys.readouterr().err


def test_a_medium_that_fails_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class BadDisk(io.RawIOBase):
        def read(self, size: int = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    class Input:
        buffer = BadDisk()

        def fileno(self) -> int:
            raise io.UnsupportedOperation

    monkeypatch.setattr(sys, "stdin", Input())
    assert main(["replay", "-"]) == 2
    assert "flowjoin: - cannot be read: Input/output error\n" in capsys.readouterr().err


def test_a_capture_without_messages_says_what_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.pcap"
    path.write_bytes(pcap([(0.0, ethernet(ipv4(udp(b"dns"))))]))
    assert main(["replay", str(path)]) == 0
    assert "no IPFIX Message: 1 frames" in capsys.readouterr().err


@pytest.mark.parametrize("inside", ["", "spool/audit/segment-1.ipfix"])
def test_what_a_state_directory_holds_is_not_joined_again(
    inside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    path = state / inside
    path.parent.mkdir(parents=True, exist_ok=True)
    state.mkdir(exist_ok=True)
    if inside:
        path.write_bytes(message())
    for name in ("instance-id", "epoch"):
        (state / name).write_text("1\n")
    assert main(["replay", str(path)]) == 2
    printed = capsys.readouterr()
    assert "its flows are joined already" in printed.err
    assert printed.err.count("\n") == 1


def test_standard_input_is_no_part_of_the_directory_one_stands_in(
    tmp_path: Path, capture: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("instance-id", "epoch"):
        (tmp_path / name).write_text("1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(capture.read_bytes())))
    assert main(["replay", "-"]) == 0
    assert len(rows(capsys.readouterr().out)) == 2


@pytest.mark.parametrize("file", ["a\0b", "x" * 5000, "missing"])
def test_a_path_that_leads_nowhere_is_unusable(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", file]) == 2
    printed = capsys.readouterr()
    assert "cannot be read: " in printed.err
    assert printed.err.count("\n") == 1


def test_a_directory_is_unusable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path)]) == 2
    assert "cannot be read: Is a directory" in capsys.readouterr().err


def test_rows_that_nobody_takes_within_the_grace_period_are_a_failure(
    tmp_path: Path, capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")
    config = tmp_path / "flowjoin.yaml"
    (tmp_path / "full").symlink_to("/dev/full")
    config.write_text(f"shutdownGracePeriod: 100ms\nexporters: [{{type: log, path: {tmp_path}/full, spool: none}}]\n")
    assert main(["replay", str(capture), "-c", str(config)]) == 1
    assert "2 rows were not delivered within shutdownGracePeriod" in capsys.readouterr().err


def many_flows(directory: Path) -> Path:
    """Their rows as JSON are several times what a pipe holds (pipe(7): 64 KiB)."""
    path = directory / "flows.pcap"
    frames = [
        sent(1020.0 + port, node, half | {"sourceTransportPort": port}, sequence=port)
        for port in range(2, 300)
        for node, half in ((SOURCE_NODE, S1), (DESTINATION_NODE, D1))
    ]
    path.write_bytes(pcap(both_halves() + frames))
    return path


def left_after_a_line(*arguments: str) -> tuple[int, bytes]:
    """How a replay ends whose reader takes one line and goes, and what it says on standard error."""
    process = subprocess.Popen(
        [sys.executable, "-m", "flowjoin", "replay", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        process.stderr.close()
        return process.wait(timeout=60), said
    finally:
        process.kill()


def test_a_reader_that_has_enough_ends_it_quietly(tmp_path: Path) -> None:
    assert left_after_a_line(str(many_flows(tmp_path)), "--output", "json") == (0, b"")


@pytest.mark.parametrize("spool", ["none", "{maxSize: 1MiB}"])
def test_so_it_does_where_an_exporter_of_the_configuration_writes_to_standard_output(
    tmp_path: Path, spool: str
) -> None:
    pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")
    config = tmp_path / "flowjoin.yaml"
    config.write_text(
        f'exporters: [{{type: log, path: "-", format: jsonLines, spool: {spool}}}]\nlog: {{level: error}}\n'
    )
    assert left_after_a_line(str(many_flows(tmp_path)), "-c", str(config)) == (0, b"")


def test_where_others_wanted_the_rows_too_it_says_that_they_have_not_got_all(tmp_path: Path) -> None:
    pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")
    config = tmp_path / "flowjoin.yaml"
    output, file = '{type: log, path: "-", format: jsonLines}', f"{{type: log, name: file, path: {tmp_path}/log}}"
    config.write_text(f"exporters: [{output}, {file}]\nlog: {{level: error}}\n")
    code, said = left_after_a_line(str(many_flows(tmp_path)), "-c", str(config))
    assert code == 1
    assert said.startswith(b"flowjoin: nobody reads standard output any more"), said
