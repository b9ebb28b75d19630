from __future__ import annotations

import io
import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from capture_writer import ethernet, ipv4, message, pcap, tcp, udp
from rich.console import Console

from flowjoin.__main__ import main
from flowjoin._cli.capture_file import progress_of
from flowjoin._collector.capture import CaptureReader

TEMPLATE = struct.pack(">HHHHHHHH", 2, 16, 256, 2, 82, 65_535, 1, 4)
RECORD = struct.pack(">HH", 256, 4 + 5 + 4) + b"\x04eth\x1b" + struct.pack(">I", 2**32 - 1)
MESSAGE = message(TEMPLATE + RECORD)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "flows.pcap"
    path.write_bytes(pcap([(1.0, ethernet(ipv4(udp(MESSAGE, destination_port=port)))) for port in (4739, 9995)]))
    return path


def json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_is_one_line_for_each_template_and_record_and_the_counters_last(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", str(capture), "--output", "json"]) == 0
    printed = capsys.readouterr()
    assert [line["type"] for line in json_lines(printed.out)] == ["template", "record"] * 2 + ["counters"]
    assert json_lines(printed.out)[1]["elements"] == [["interfaceName", "eth\x1b"], ["octetDeltaCount", 4_294_967_295]]
    assert printed.err == ""


def test_what_another_program_reads_is_json_unless_told_otherwise(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["decode", str(capture)])
    assert json_lines(capsys.readouterr().out)[-1]["type"] == "counters"


def test_a_terminal_gets_text_without_control_characters(
    capture: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["decode", str(capture)]) == 0
    printed = capsys.readouterr().out
    assert "interfaceName=eth\\x1b  octetDeltaCount=4294967295" in printed
    assert "\x1b" not in printed.replace("\x1b[", "")


def test_a_table_shows_records_and_what_they_add_up_to(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", str(capture), "--output", "table"]) == 0
    printed = capsys.readouterr().out
    assert "template 256, observation domain 1, from 192.0.2.1:50001" in printed
    assert [line.split() for line in printed.splitlines() if line.startswith(("messages", "records"))] == [
        ["messages", "2"],
        ["records", "2"],
    ]


def test_a_table_names_reasons_and_spells_booleans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "flows.ipfix"
    boolean = struct.pack(">HHHHHHHHB", 2, 12, 256, 1, 276, 1, 256, 5, 1)
    path.write_bytes(message(boolean) + message(struct.pack(">HH", 2, 3)))
    assert main(["decode", str(path), "--output", "table"]) == 0
    printed = capsys.readouterr().out
    assert "dataRecordsReliability=true" in printed
    assert [line.split() for line in printed.splitlines() if "set_too_short" in line] == [["set_too_short", "1"]]


def test_ports_narrow(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["decode", str(capture), "--port", "9995", "--port", "1"])
    assert json_lines(capsys.readouterr().out)[-1]["messages"] == 1


@pytest.mark.parametrize("command", ["decode", "replay"])
def test_ports_are_refused_where_there_are_none(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "flows.ipfix"
    path.write_bytes(MESSAGE)
    assert main([command, str(path), "--port", "4739"]) == 2
    assert capsys.readouterr().err == f"flowjoin: {path} is an IPFIX File, which knows no ports: leave --port out\n"


@pytest.mark.parametrize("port", ["0", "65536", "-1", "x"])
def test_what_is_no_port_is_a_usage_error(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "file", f"--port={port}"]) == 2
    assert "--port" in capsys.readouterr().err


def test_strict_refuses_templates_with_unknown_elements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "flows.ipfix"
    path.write_bytes(message(struct.pack(">HHHHHHI", 2, 16, 256, 1, 0x8000 | 999, 1, 56506)))
    main(["decode", str(path), "--strict"])
    assert json_lines(capsys.readouterr().out)[-1]["reasons"] == {"element_unknown": 1}
    main(["decode", str(path)])
    assert json_lines(capsys.readouterr().out)[-1]["reasons"] == {}


def test_a_file_cut_short_is_read_as_far_as_it_goes_and_fails(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture.write_bytes(capture.read_bytes()[:-1])
    assert main(["decode", str(capture)]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("flowjoin: input file cut short: ")
    counters = json_lines(printed.out)[-1]
    assert (counters["messages"], counters["reasons"]) == (1, {"file_truncated": 1})


def test_a_damaged_file_is_told_from_one_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "flows.ipfix"
    path.write_bytes(MESSAGE + b"something else")
    assert main(["decode", str(path)]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("flowjoin: input file damaged: ")
    assert json_lines(printed.out)[-1]["reasons"] == {"stream_desynchronised": 1}


@pytest.mark.parametrize("content", [b"", b"no capture\n"])
def test_an_unknown_format_is_unusable(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert main(["decode", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "neither a pcap, a pcapng nor an IPFIX File" in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("file", ["missing", ".", "a\0b"])
def test_a_file_that_cannot_be_opened_is_unusable(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["decode", file]) == 2
    printed = capsys.readouterr()
    assert "cannot be read: " in printed.err
    assert printed.err.count("\n") == 1


class BadDisk(io.RawIOBase):
    """Gives a file's beginning, then fails."""

    def __init__(self, octets: bytes) -> None:
        self._octets = io.BytesIO(octets)

    def read(self, size: int = -1, /) -> bytes:
        if octets := self._octets.read(size):
            return octets
        raise OSError(5, "Input/output error")


def test_a_medium_that_fails_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = BadDisk(MESSAGE)

        def fileno(self) -> int:
            raise io.UnsupportedOperation

    monkeypatch.setattr(sys, "stdin", Input())
    assert main(["decode", "-"]) == 2
    assert capsys.readouterr().err == "flowjoin: - cannot be read: Input/output error\n"


def test_standard_input_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MESSAGE)))
    assert main(["decode", "-"]) == 0
    assert json_lines(capsys.readouterr().out)[-1]["records"] == 1


def test_a_capture_without_messages_says_what_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.pcap"
    path.write_bytes(pcap([(0.0, ethernet(ipv4(udp(b"dns")))), (1.0, b"")]))
    assert main(["decode", str(path), "--port", "4739"]) == 0
    assert capsys.readouterr().err == (
        "flowjoin: no IPFIX Message sent to port 4739: 2 frames, of them 1 UDP datagrams and 0 TCP streams of other "
        "traffic, 1 neither\n"
    )


def test_a_capture_of_netflow_says_which_versions_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "netflow.pcap"
    payloads = [
        b"\0\5" + bytes(22),
        b"\0\x09" + bytes(18),
        b"\0\x09" + bytes(18),
        b"\0\x09" + bytes(17),
        b"\0\6" + bytes(90),
    ]
    path.write_bytes(pcap([(0.0, ethernet(ipv4(udp(payload)))) for payload in payloads]))
    assert main(["decode", str(path)]) == 0
    assert capsys.readouterr().err == (
        "flowjoin: no IPFIX Message, but UDP datagrams of what this version does not read (1 of NetFlow v5, 2 of "
        "NetFlow v9): 5 frames, of them 5 UDP datagrams and 0 TCP streams of other traffic, 0 neither\n"
    )


def test_what_another_program_reads_as_a_table_has_a_line_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "flows.ipfix"
    fields = [(element, 4) for element in (8, 12, 10, 14, 2, 1, 15, 16, 17, 18)]
    body = b"".join(struct.pack(">HH", *field) for field in fields)
    template = struct.pack(">HHHH", 2, 8 + len(body), 256, len(fields)) + body
    path.write_bytes(message(template + struct.pack(">HH", 256, 44) + bytes(40)))
    assert main(["decode", str(path), "--output", "table"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.count("=") for line in lines if line.startswith("  ") and "=" in line] == [10, 10]


def test_a_tcp_stream_that_loses_its_place_is_a_malformed_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "stream.pcap"
    path.write_bytes(pcap([(0.0, ethernet(ipv4(tcp(MESSAGE + b"\xff\xff", sequence=1), protocol=6)))]))
    assert main(["decode", str(path)]) == 0
    counters = json_lines(capsys.readouterr().out)[-1]
    assert (counters["records"], counters["malformed_messages"]) == (1, 1)
    assert counters["reasons"] == {"stream_desynchronised": 1}


def test_a_long_file_shows_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowjoin._cli.capture_file._LONG_FILE_OCTETS", 1)
    monkeypatch.setattr("flowjoin._cli.capture_file._PROGRESS_EVERY_ITEMS", 2)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        "flowjoin._cli.capture_file.Console", lambda stderr: Console(stderr=stderr, force_terminal=True, width=80)
    )
    path = tmp_path / "flows.ipfix"
    path.write_bytes(MESSAGE * 4)
    reader = CaptureReader(io.BytesIO(MESSAGE * 4))
    with progress_of(reader, str(path)) as tell:
        for _ in reader:
            tell(1)
    assert f"{4 * len(MESSAGE)}" in capsys.readouterr().err


def test_a_short_file_and_a_pipe_show_no_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "flows.ipfix"
    path.write_bytes(MESSAGE)
    for file in (str(path), "-"):
        with progress_of(CaptureReader(io.BytesIO(MESSAGE)), file) as tell:
            tell(1)
    assert capsys.readouterr().err == ""
