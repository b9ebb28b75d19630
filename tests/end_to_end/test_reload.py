"""Changing a running program's configuration: real files, real signals, real rows."""

from __future__ import annotations

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from running_flowjoin import Program, Run, send
from waiting import wait_until

from flowjoin._generator.config import TrafficConfig

pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")

pytestmark = pytest.mark.slow


def started(run: Run, path: Path) -> tuple[Program, str]:
    """A run of that file, and where it listens."""
    program = run("-c", str(path))
    return program, program.wait_ready()


def text_of(folder: Path, exporters: str, rest: str = "") -> str:
    return (
        f"stateDirectory: {folder}/state\n"
        'collectors: [{protocol: tcp, address: "127.0.0.1:0"}]\n'
        f"exporters: [{exporters}]\n{rest}"
    )


def log_to(folder: Path, name: str, file: str | None = None) -> str:
    return f"{{type: log, name: {name}, path: {folder}/{file or name}.csv}}"


def rows(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def put(path: Path, text: str) -> None:
    """As careful programs write: all at once."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)


def test_exporters_are_added_changed_and_removed_when_the_file_is_edited_and_no_row_is_lost(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "flowjoin.yaml"
    path.write_text(
        text_of(tmp_path, ", ".join(log_to(tmp_path, name) for name in ("same", "changed", "removed")))
        + "activeFlowRecordTimeout: 1s\n"
    )
    program, address = started(run, path)
    send(address, TrafficConfig(flows=50, seed=2))
    exporters = [log_to(tmp_path, "same"), log_to(tmp_path, "changed", "other"), log_to(tmp_path, "added")]
    path.write_text(text_of(tmp_path, ", ".join(exporters)) + "activeFlowRecordTimeout: 2s\nlog: {level: debug}\n")

    done = program.wait_line("configuration_reloaded")
    assert done["keys"] == ["exporters", "log.level"]
    assert (done["exporters_added"], done["exporters_changed"], done["exporters_removed"]) == (
        ["added"],
        ["changed"],
        ["removed"],
    )
    assert program.wait_line("restart_needed")["keys"] == ["activeFlowRecordTimeout"]
    program.wait_line("exporter_taken_out")
    send(address, TrafficConfig(flows=50, seed=3))

    assert program.stop() == 0
    assert "books_do_not_balance" not in program.text
    same = rows(tmp_path / "same.csv")
    assert len(same) >= 100
    assert sorted(rows(tmp_path / "changed.csv") + rows(tmp_path / "other.csv")) == sorted(same)
    added, removed = rows(tmp_path / "added.csv"), rows(tmp_path / "removed.csv")
    assert len(added) >= 50
    assert sorted(added + removed) == sorted(same)
    opened = [line for line in program.text.splitlines() if '"exporter_opened"' in line and '"same"' in line]
    assert len(opened) == 1  # it noticed nothing


def test_a_config_map_whose_links_are_swapped_is_seen(run: Run, tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    for version, level in (("..1", "info"), ("..2", "warning")):
        (mount / version).mkdir(parents=True)
        text = text_of(tmp_path, log_to(tmp_path, "a"), f"shutdownGracePeriod: {1 if level == 'info' else 2}s\n")
        (mount / version / "flowjoin.yaml").write_text(text)
    (mount / "..data").symlink_to("..1")
    (mount / "flowjoin.yaml").symlink_to("..data/flowjoin.yaml")
    program, _ = started(run, mount / "flowjoin.yaml")
    (mount / "..fresh").symlink_to("..2")
    (mount / "..fresh").rename(mount / "..data")

    assert program.wait_line("configuration_reloaded")["keys"] == ["shutdownGracePeriod"]
    assert program.stop() == 0


def test_what_cannot_be_used_is_refused_with_its_line_and_the_run_goes_on(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "flowjoin.yaml"
    good = text_of(tmp_path, log_to(tmp_path, "a"))
    path.write_text(good)
    program, address = started(run, path)
    put(path, good + "limits: {flows: many}\n")
    assert f"{path}:4: limits.flows" in program.wait_line("configuration_refused")["problem"]
    put(path, good.replace("type: log", "type: absent"))
    assert "if there is such a plugin" in program.wait_line("configuration_refused")["problem"]
    put(path, good + "mode: Proxy\nlog: {level: debug}\n")
    assert f"{path}: mode: cannot change" in program.wait_line("configuration_refused")["problem"]
    path.unlink()
    assert program.wait_line("configuration_refused")["problem"] == f"{path}: cannot be read: No such file or directory"
    put(path, good)
    program.wait_line("configuration_unchanged")
    send(address, TrafficConfig(flows=10, seed=2))

    assert program.stop() == 0
    assert len(rows(tmp_path / "a.csv")) == 10


def test_sighup_looks_at_once_and_unchanged_octets_do_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "flowjoin.yaml"
    path.write_text(text_of(tmp_path, log_to(tmp_path, "a")))
    program, _ = started(run, path)
    program.process.send_signal(signal.SIGHUP)
    program.wait_line("configuration_unchanged")
    put(path, "exporters: [")
    program.process.send_signal(signal.SIGHUP)
    program.wait_line("configuration_refused")
    program.process.send_signal(signal.SIGHUP)
    program.wait_line("configuration_refused")

    assert program.stop() == 0
    assert "configuration_reloaded" not in program.text


def test_what_is_spooled_goes_to_the_new_destination_of_the_same_name(run: Run, tmp_path: Path) -> None:
    (tmp_path / "full.csv").symlink_to("/dev/full")
    path = tmp_path / "flowjoin.yaml"
    path.write_text(text_of(tmp_path, log_to(tmp_path, "a", "full")) + "activeFlowRecordTimeout: 1s\n")
    program, address = started(run, path)
    send(address, TrafficConfig(flows=20, seed=2))
    program.wait_line("export_retried")
    put(path, text_of(tmp_path, log_to(tmp_path, "a", "room")) + "activeFlowRecordTimeout: 1s\n")
    program.wait_line("configuration_reloaded")

    assert program.stop() == 0
    assert len(rows(tmp_path / "room.csv")) >= 20


def test_an_exporter_that_is_removed_leaves_its_spool_and_one_that_comes_back_takes_it(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "full.csv").symlink_to("/dev/full")
    path = tmp_path / "flowjoin.yaml"
    rest = "activeFlowRecordTimeout: 1s\nshutdownGracePeriod: 1s\n"
    path.write_text(text_of(tmp_path, log_to(tmp_path, "a", "full"), rest))
    program, address = started(run, path)
    send(address, TrafficConfig(flows=20, seed=2))
    program.wait_line("export_retried")
    put(path, text_of(tmp_path, log_to(tmp_path, "b"), rest))
    left = program.wait_line("spool_orphaned")["rows"]
    assert left >= 20
    program.wait_line("exporter_taken_out")
    put(path, text_of(tmp_path, log_to(tmp_path, "a", "room"), rest))
    program.wait_line("spool_restored")

    assert program.stop() == 0
    assert len(rows(tmp_path / "room.csv")) >= left
    assert "books_do_not_balance" not in program.text


def test_a_lane_gets_a_spool_and_leaves_it_again_by_reloads_and_no_row_is_lost(run: Run, tmp_path: Path) -> None:
    (tmp_path / "full.csv").symlink_to("/dev/full")
    path = tmp_path / "flowjoin.yaml"
    rest = "activeFlowRecordTimeout: 1s\nshutdownGracePeriod: 1s\n"
    in_memory = f"{{type: log, name: a, path: {tmp_path}/full.csv, spool: none}}"
    path.write_text(text_of(tmp_path, in_memory, rest))
    program, address = started(run, path)
    send(address, TrafficConfig(flows=20, seed=2))
    program.wait_line("export_retried")
    put(path, text_of(tmp_path, log_to(tmp_path, "a", "full"), rest))
    changed = program.wait_line("store_changed")
    assert (changed["to"], changed["rows"] >= 20) == ("spool", True)
    assert program.stop() == 0  # what nobody took is in the spool

    put(path, text_of(tmp_path, log_to(tmp_path, "a", "room"), rest))
    program, address = started(run, path)
    put(path, text_of(tmp_path, f"{{type: log, name: a, path: {tmp_path}/room.csv, spool: none}}", rest))
    assert program.wait_line("store_changed")["to"] == "memory"
    send(address, TrafficConfig(flows=30, seed=3))
    assert program.stop() == 0
    assert len(rows(tmp_path / "room.csv")) >= 50
    assert not list((tmp_path / "state" / "spool" / "a").glob("*.ipfix"))
    assert "restart_needed" not in program.text
    assert "books_do_not_balance" not in program.text


def test_reloads_under_load_lose_no_row_and_the_books_balance(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "flowjoin.yaml"
    rest = "activeFlowRecordTimeout: 1s\n"
    always = log_to(tmp_path, "always")
    path.write_text(text_of(tmp_path, f"{always}, {log_to(tmp_path, 'moving', 'moving-0')}", rest))
    program, address = started(run, path)
    with ThreadPoolExecutor(1) as thread:
        sending = [thread.submit(send, address, TrafficConfig(flows=400, seed=seed)) for seed in range(2, 8)]
        for number in range(1, 7):
            others = [log_to(tmp_path, "moving", f"moving-{number}")]
            if number % 2:
                others.append(log_to(tmp_path, "now-and-then", f"sometimes-{number}"))
            put(path, text_of(tmp_path, ", ".join([always, *others]), rest))
            program.process.send_signal(signal.SIGHUP)
            program.wait_line("configuration_reloaded")
    for each in sending:
        each.result()

    assert program.stop() == 0
    assert "books_do_not_balance" not in program.text
    moved = [row for number in range(7) for row in rows(tmp_path / f"moving-{number}.csv")]
    everything = rows(tmp_path / "always.csv")
    assert len(everything) >= 2000, program.text[-2500:]  # some flows of different seeds are the same
    assert sorted(moved) == sorted(everything)
    *_, books, _ = map(json.loads, program.text.splitlines())
    assert books["rows"] == len(everything)


def test_killed_in_the_middle_of_reloads_it_starts_again_and_doubles_and_loses_nothing_that_was_spooled(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "flowjoin.yaml"
    rest = "activeFlowRecordTimeout: 1s\n"

    def exporters(number: int) -> str:
        always = log_to(tmp_path, "always")
        others = [log_to(tmp_path, "moving", f"moving-{number % 3}")]
        if number % 2:
            others.append(log_to(tmp_path, "now-and-then", "sometimes"))
        return text_of(tmp_path, ", ".join([always, *others]), rest)

    path.write_text(exporters(0))
    random = Random(20)
    for life in range(5):
        program, address = started(run, path)
        before = len(rows(tmp_path / "always.csv"))
        for number in range(1, 4):
            send(address, TrafficConfig(flows=60, seed=10 * life + number))
            if number == 3:
                wait_until(lambda before=before: len(rows(tmp_path / "always.csv")) > before)
            put(path, exporters(number))
            program.process.send_signal(signal.SIGHUP)
            if number < 3:
                program.wait_line("configuration_reloaded")
        time.sleep(random.uniform(0, 0.3))  # anywhere in the last one
        program.process.kill()
        program.process.communicate(timeout=60)
    program, _ = started(run, path)

    assert program.stop() == 0
    assert "books_do_not_balance" not in program.text
    everything = rows(tmp_path / "always.csv")
    moved = [row for number in range(3) for row in rows(tmp_path / f"moving-{number}.csv")]
    assert everything
    assert len(set(everything)) == len(everything)
    assert len(set(moved)) == len(moved)
    assert not list((tmp_path / "state" / "spool").glob("*/*.ipfix"))
