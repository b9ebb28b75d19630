"""The exporter as a lane sees it: real files, retries that double nothing, errors that say what to do."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pty
import subprocess
import sys
import termios
import textwrap
from pathlib import Path
from typing import Any

import pytest
import trio
from waiting import until

import flowjoin_log
from flowjoin.api import ConfigError, FlowBatch, RetryableExportError
from flowjoin.testing import RecordingContext, numbered_flows, plain_flows, standard_flow
from flowjoin.wire import default_registry
from flowjoin_log import FilterConfig, LogConfig
from flowjoin_log._backups import Backups
from flowjoin_log._columns import columns_of
from flowjoin_log._config import check
from flowjoin_log._exporter import _LogExporter, make_writer, open_log
from flowjoin_log._file import RotatingFile, StandardOutput
from flowjoin_log._filters import FlowFilters

MEGABYTE = 1024 * 1024


def config_for(path: Path, **keys: Any) -> LogConfig:
    return LogConfig(path=str(path), **keys)


def ports_in(directory: Path) -> list[int]:
    """Source ports of every line in every file, rotated and compressed ones too."""
    ports: list[int] = []
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        ports += [int(row[4]) for row in csv.reader(io.StringIO(text, newline=""))]
    return ports


def files_in(directory: Path, pattern: str = "*") -> list[Path]:
    return sorted(directory.glob(pattern))


async def test_counters_and_log_say_what_was_written(tmp_path: Path) -> None:
    context = RecordingContext()
    filters = (FilterConfig(ingress_network_policy_rule_actions=("Drop",)),)
    path = tmp_path / "flows.log"
    async with open_log(config_for(path, filters=filters), context) as exporter:
        await exporter.export(standard_flow())
        await exporter.export(plain_flows(3))
        assert path.read_text().count("\n") == 1
    assert {name: counter.value for name, counter in context.counters.items()} == {
        "rows_delivered": 1,
        "rows_filtered": 3,
        "octets": path.stat().st_size,
        "rotations": 0,
    }


async def test_a_batch_is_written_once_however_often_it_had_to_be_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = RecordingContext()
    batch = numbered_flows(600)
    write = os.write
    failures = 0

    def full(descriptor: int, data: memoryview) -> int:
        nonlocal failures
        if failures < 3:
            failures += 1
            write(descriptor, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    async with open_log(config_for(tmp_path / "flows.log"), context) as exporter:
        await exporter.export(numbered_flows(1))
        monkeypatch.setattr(os, "write", full)
        for _ in range(3):
            with pytest.raises(RetryableExportError, match=r"cannot write .*flows\.log: No space left on device"):
                await exporter.export(batch)
        await exporter.export(batch)
    assert ports_in(tmp_path) == [1024, *range(1024, 1624)]
    assert context.counters["rows_delivered"].value == 601


async def test_rotation_compresses_in_the_background_and_keeps_the_newest(tmp_path: Path) -> None:
    context = RecordingContext()
    path = tmp_path / "flows.log"
    batch = numbered_flows(4096)
    async with open_log(config_for(path, max_size=1, max_backups=2), context) as exporter:
        for _ in range(4):
            await exporter.export(batch)
        assert all(each.stat().st_size <= MEGABYTE for each in files_in(tmp_path, "*.log"))
        await until(lambda: len(files_in(tmp_path, "flows-*.gz")) == 2 and not files_in(tmp_path, "flows-*.log"))
    assert context.counters["rotations"].value >= 4
    assert "file_rotated" in context.events
    assert len(files_in(tmp_path)) == 3


async def test_count_in_is_count_out_while_logrotate_and_rotation_work_on_the_file(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    path = directory / "flows.log"
    sent: list[int] = []
    context = RecordingContext()
    async with open_log(config_for(path, max_size=1, max_backups=0), context) as exporter:
        for round_ in range(24):
            batch = numbered_flows(500, first=500 * round_)
            await exporter.export(batch)
            sent += [int(str(port)) for port in batch.column("sourceTransportPort")]
            if round_ % 3 == 1:
                path.rename(directory / f"taken-{round_}.log")
            elif round_ % 5 == 4:
                path.rename(directory / f"taken-{round_}.log")
                path.touch()
    assert sorted(ports_in(directory)) == sorted(sent)
    assert context.events.count("file_reopened") == len(list(directory.glob("taken-*.log")))


async def test_leaving_stops_a_compression_and_the_next_start_does_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "flows.log"
    async with open_log(config_for(path, max_size=1, compress=False), RecordingContext()) as exporter:
        await exporter.export(numbered_flows(4096))
    (plain,) = files_in(tmp_path, "flows-*.log")
    content = plain.read_bytes()
    partial = plain.with_name(plain.name + ".gz.partial")
    partial.write_bytes(b"\x1f\x8b half of it")  # what a crash leaves
    async with open_log(config_for(path), RecordingContext()):
        await until(lambda: not plain.exists())
    assert not partial.exists()
    assert gzip.decompress(plain.with_name(plain.name + ".gz").read_bytes()) == content


async def test_a_directory_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be a log: is a directory; name a file in it") as caught:
        async with open_log(config_for(tmp_path), RecordingContext()):
            pass
    assert caught.value.path == "path"


async def test_a_second_instance_on_one_file_is_refused_also_through_a_link(tmp_path: Path) -> None:
    path, link = tmp_path / "flows.log", tmp_path / "link.log"
    link.symlink_to(path)
    async with open_log(config_for(path), RecordingContext()):
        for name in (path, link):
            with pytest.raises(ConfigError, match="written by another instance; give each its own file"):
                async with open_log(config_for(name), RecordingContext()):
                    pass


async def test_a_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be a log"):
        async with open_log(config_for(tmp_path / "file" / "flows.log"), RecordingContext()):
            pass


async def test_a_disk_that_is_full_at_start_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = RecordingContext()
    path = tmp_path / "flows.log"

    def full(_file: RotatingFile, _mode: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(RotatingFile, "_open", full)
        manager = open_log(config_for(path), context)
        exporter = await manager.__aenter__()
        with pytest.raises(RetryableExportError):
            await exporter.export(numbered_flows(1))
    await exporter.export(numbered_flows(1))
    await manager.__aexit__(None, None, None)
    assert ports_in(tmp_path) == [1024]
    assert context.events == ["file_not_opened"]


async def test_an_unknown_element_is_refused_with_its_place(tmp_path: Path) -> None:
    config = config_for(tmp_path / "flows.log", elements=("octetTotalCount", "octetsTotal"))
    with pytest.raises(ConfigError, match="no Information Element 'octetsTotal'") as caught:
        async with open_log(config, RecordingContext()):
            pass
    assert caught.value.path == "elements[1]"


async def test_an_unknown_action_in_a_filter_lets_nothing_through(tmp_path: Path) -> None:
    context = RecordingContext()
    filters = (FilterConfig(egress_network_policy_rule_actions=("Permit",)),)
    async with open_log(config_for(tmp_path / "flows.log", filters=filters), context) as exporter:
        await exporter.export(standard_flow())
    assert (tmp_path / "flows.log").read_bytes() == b""


@pytest.mark.parametrize("compatibility", ["antrea-2.3", "antrea-2.7"])
async def test_the_header_has_the_columns_of_the_release(tmp_path: Path, compatibility: str) -> None:
    path = tmp_path / "flows.log"
    for _ in range(2):
        async with open_log(config_for(path, header=True), RecordingContext(compatibility=compatibility)) as exporter:
            await exporter.export(plain_flows(1))
    lines = path.read_text().splitlines()
    assert lines[0] == ",".join(columns_of(compatibility))
    assert len(lines) == 3


async def test_without_flows_there_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "flows.log"
    async with open_log(config_for(path, header=True), RecordingContext()) as exporter:
        await exporter.export(plain_flows(0))
    assert path.read_bytes() == b""


async def test_a_rotated_file_that_cannot_be_tidied_is_told_and_lines_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = RecordingContext()

    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Backups, "tidy", fail)
    async with open_log(config_for(tmp_path / "flows.log"), context) as exporter:
        await until(lambda: "rotated_files_not_tidied" in context.events)
        await exporter.export(numbered_flows(2))
    assert ports_in(tmp_path) == [1024, 1025]


async def test_an_error_of_the_body_is_raised_and_the_file_closed(tmp_path: Path) -> None:
    path = tmp_path / "flows.log"
    with pytest.raises(ExceptionGroup) as caught:
        async with open_log(config_for(path), RecordingContext()):
            raise KeyError("body")
    assert caught.group_contains(KeyError)
    async with open_log(config_for(path), RecordingContext()):  # the lock is free
        pass


PROGRAM = textwrap.dedent(
    """
    import sys, trio
    from flowjoin.testing import RecordingContext, plain_flows
    from flowjoin_log import LogConfig
    from flowjoin_log._exporter import open_log

    async def main():
        config = LogConfig(path=sys.argv[1], format=sys.argv[2])
        async with open_log(config, RecordingContext()) as exporter:
            await exporter.export(plain_flows(3))

    trio.run(main)
    """
)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "format_"), [("-", "table"), ("/dev/stdout", "jsonLines")])
def test_standard_output_gets_lines_without_colours_when_it_is_no_terminal(path: str, format_: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, path, format_], capture_output=True, timeout=60, check=True)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 3 + (format_ == "table")
    assert "\x1b" not in done.stdout.decode()
    if format_ == "jsonLines":
        assert [json.loads(line)["octetTotalCount"] for line in lines] == [1500, 3000, 4500]


@pytest.mark.slow
def test_a_reader_that_went_away_is_retryable() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    program = PROGRAM.replace(
        "        await exporter.export(plain_flows(3))",
        "        try:\n"
        "            await exporter.export(plain_flows(3))\n"
        "        except Exception as exc:\n"
        "            print(repr(exc), file=sys.stderr)",
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "-", "csv"],
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    os.close(writing)
    assert b"RetryableExportError('cannot write standard output: Broken pipe')" in done.stderr


async def test_a_reader_that_reads_nothing_does_not_hold_up_the_end() -> None:
    reading, writing = os.pipe()
    output = StandardOutput(b"", writing)
    writer = make_writer(LogConfig(path="-"), compatibility="antrea-2.7", terminal_width=None, colours=False)
    exporter = _LogExporter(writer, FlowFilters(()), output, "standard output", RecordingContext())
    output.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exporter.export, numbered_flows(4096))  # far more than a pipe holds
        await until(output._writing.locked)
        nursery.cancel_scope.cancel()
    output.close()
    os.close(writing)

    def read_all_lines() -> int:
        lines = 0
        while lines < 4096:
            lines += os.read(reading, 65_536).count(b"\n")
        return lines

    # Nobody else got the descriptor meanwhile: what was under way goes on when somebody reads.
    assert await trio.to_thread.run_sync(read_all_lines) == 4096
    await until(lambda: not output._writing.locked())
    output.close()
    os.close(reading)


@pytest.mark.slow
def test_a_terminal_gets_colours_and_its_width() -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 90))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    done = subprocess.run([sys.executable, "-c", PROGRAM, "-", "table"], stdout=theirs, env=environment, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "\x1b[1m2023-11-14  SOURCE" in shown
    assert "PACKETS" not in shown  # no room for it in 90 cells
    assert shown.count("\n") == 4


async def test_rows_keep_their_order(tmp_path: Path) -> None:
    batches: list[FlowBatch] = [numbered_flows(700, first=700 * number) for number in range(3)]
    async with open_log(config_for(tmp_path / "flows.log"), RecordingContext()) as exporter:
        for batch in batches:
            await exporter.export(batch)
    assert ports_in(tmp_path) == list(range(1024, 1024 + 2100))


@pytest.mark.parametrize("path", ["", "  ", "a\0b", "logs/"])
def test_what_names_no_file_is_refused_when_the_configuration_is_read(path: str) -> None:
    with pytest.raises(ConfigError, match=r"^path: must be the path of a file, or - for standard output"):
        LogConfig(path=path)


async def test_a_name_that_this_system_cannot_write_is_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"cannot be a file here: .*; use ASCII letters"):
        async with open_log(LogConfig(path="/tmp/\udc80\ud800"), RecordingContext()):  # as in an ASCII locale
            pass


def test_a_path_that_only_a_shell_understands_is_refused() -> None:
    with pytest.raises(ConfigError, match="begins with ~, which only a shell understands; write it in full"):
        LogConfig(path="~/flows.log")


def test_what_can_be_known_before_the_file_is_opened_is_said(tmp_path: Path) -> None:
    check(config_for(tmp_path / "not" / "there.log"), default_registry())
    check(LogConfig(path="-"), default_registry())
    with pytest.raises(ConfigError, match=r"^path: .* is a directory; name a file in it"):
        check(config_for(tmp_path), default_registry())
    with pytest.raises(ConfigError, match=r"^elements\[0\]: there is no Information Element 'no'"):
        check(config_for(tmp_path / "flows.log", elements=("no",)), default_registry())


def test_only_a_reader_of_standard_output_may_stop_for_ever(tmp_path: Path) -> None:
    (log_type,) = flowjoin_log.flowjoin_exporter_types()
    assert log_type.patience(LogConfig(path="-")) == float("inf")
    assert log_type.patience(LogConfig(path=str(tmp_path / "flows.log"))) == 0
