from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from pipeline_fakes import MemoryExporter, batch_of
from spool_bench import SpoolBench

from flowjoin.__main__ import main
from flowjoin._pipeline.spool import inspecting
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.segments import SegmentFiles
from flowjoin._pipeline.state_directory import open_state
from flowjoin.api import Batching, PermanentExportError


async def refuse(_batch: object) -> None:
    raise PermanentExportError("too blue", rows=[0])


async def for_ever(_batch: object) -> None:
    await trio.sleep_forever()


def fill(directory: Path, *numbers: int, refused: int = 0) -> None:
    """A state directory with a spool of that many rows, and dead letters."""
    with open_state(directory) as state:
        place = state.directory_of("spool", "audit")
    assert place is not None

    async def run() -> None:
        exporter = MemoryExporter([refuse] * refused + [for_ever])
        bench = SpoolBench(exporter.open, place, batching=Batching(records=1))
        for number in numbers:
            bench.lane.offer(batch_of(number))
        with trio.move_on_after(0.3):
            await bench.lane.run()

    trio.run(run)


def shown(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def delivered(directory: Path, epoch: int = 90) -> list[tuple[str, list[int]]]:
    exporter = MemoryExporter()

    async def run() -> None:
        bench = SpoolBench(exporter.open, directory, epoch=epoch)
        with trio.move_on_after(0.3):
            await bench.lane.run()

    trio.run(run)
    return [(id, numbers) for _, id, numbers in exporter.calls]


def test_what_waits_and_what_was_refused_are_listed(tmp_path, capsys) -> None:
    fill(tmp_path, 1, 2, 3, refused=1)
    assert main(["spool", "list", str(tmp_path), "--output", "json"]) == 0
    waiting, letters = shown(capsys)
    assert (waiting["exporter"], waiting["kind"], waiting["rows"], waiting["segments"]) == ("audit", "waiting", 2, 1)
    assert (letters["exporter"], letters["kind"], letters["rows"]) == ("audit", "dead letters", 1)
    assert letters["reasons"] == ["1 rows: too blue"]
    assert waiting["oldest"].startswith("2026-")


@pytest.mark.parametrize("place", ["", "spool", "spool/audit"])
def test_a_state_directory_its_spools_and_one_of_them_may_be_named(tmp_path, capsys, place) -> None:
    fill(tmp_path, 1)
    assert main(["spool", "list", str(tmp_path / place), "--output", "json"]) == 0
    assert [row["rows"] for row in shown(capsys)] == [1]


def test_an_empty_state_directory_has_nothing_waiting(tmp_path, capsys) -> None:
    with open_state(tmp_path):
        pass
    assert main(["spool", "list", str(tmp_path)]) == 0
    assert "nothing waits" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nowhere", "empty", "with\0nul"])
def test_a_directory_without_spools_is_refused_with_advice(tmp_path, capsys, name) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["spool", "check", str(tmp_path / name)]) == 2
    assert "flowjoin: " in capsys.readouterr().err


def test_a_sound_spool_is_good_and_a_damaged_one_is_not(tmp_path, capsys) -> None:
    fill(tmp_path, 1, 2)
    assert main(["spool", "check", str(tmp_path)]) == 0
    path = tmp_path / "spool" / "audit" / "0000000001.ipfix"
    octets = bytearray(path.read_bytes())
    octets[-1] ^= 1
    path.write_bytes(octets)
    capsys.readouterr()
    assert main(["spool", "check", str(tmp_path), "--output", "json"]) == 1
    captured = capsys.readouterr()
    (row,) = json.loads(captured.out)
    assert (row["rows"], row["damaged_rows"]) == (2, 1)
    assert "octets have changed" in captured.err


def test_octets_without_their_index_are_named(tmp_path, capsys) -> None:
    fill(tmp_path, 1, 2, 3)
    (tmp_path / "spool" / "audit" / "0000000001.index").unlink()

    assert main(["spool", "list", str(tmp_path)]) == 0
    data = tmp_path / "spool" / "audit" / "0000000001.ipfix"
    problem = f"flowjoin: {data}: its index is not there, so its rows are counted nowhere\n"
    assert capsys.readouterr().err == problem
    assert main(["spool", "check", str(tmp_path)]) == 1
    assert capsys.readouterr().err == problem + "flowjoin: not all of it can be delivered; the rest is\n"


def test_what_a_running_flowjoin_delivers_meanwhile_is_passed_over(tmp_path, capsys, monkeypatch) -> None:
    fill(tmp_path, 1, 2, 3)
    whole = inspecting.list_segments

    def and_one_that_is_gone(disk: Disk, directory: Path) -> list[SegmentFiles]:
        return [SegmentFiles(directory, 99), *whole(disk, directory)]

    monkeypatch.setattr(inspecting, "list_segments", and_one_that_is_gone)
    assert main(["spool", "check", str(tmp_path), "--output", "json"]) == 0
    assert [row["rows"] for row in shown(capsys)] == [3]


def test_dead_letters_are_sent_again_to_the_exporter_that_refused_them(tmp_path, capsys) -> None:
    fill(tmp_path, 1, 2, 3, refused=2)
    letters = tmp_path / "spool" / "audit" / "dead-letters"
    assert main(["spool", "resend", str(letters)]) == 0
    assert "2 rows in 2 batches wait for audit" in capsys.readouterr().out
    assert list(letters.iterdir()) == []
    got = delivered(tmp_path / "spool" / "audit")
    assert [numbers for _, numbers in got] == [[3], [1], [2]]
    assert len({id for id, _ in got}) == 3


def test_an_orphan_is_sent_to_another_exporter_under_new_ids(tmp_path, capsys) -> None:
    fill(tmp_path, 1, 2)
    assert main(["spool", "resend", str(tmp_path / "spool" / "audit"), "--to", "other"]) == 0
    assert delivered(tmp_path / "spool" / "audit") == []
    got = delivered(tmp_path / "spool" / "other")
    assert [numbers for _, numbers in got] == [[1], [2]]
    assert all("/other/2/" in id for id, _ in got)


def test_a_copy_outside_is_sent_and_stays(tmp_path, capsys) -> None:
    fill(tmp_path / "state", 1, 2)
    copy = tmp_path / "copy"
    (tmp_path / "state" / "spool" / "audit").rename(copy)
    assert main(["spool", "resend", str(copy), "--to", "audit"]) == 2
    assert "--state" in capsys.readouterr().err
    assert main(["spool", "resend", str(copy), "--to", "audit", "--state", str(tmp_path / "state")]) == 0
    assert len(list(copy.glob("*.ipfix"))) == 1
    assert [numbers for _, numbers in delivered(tmp_path / "state" / "spool" / "audit")] == [[1], [2]]


def test_damaged_batches_stay_and_the_others_are_sent(tmp_path, capsys) -> None:
    fill(tmp_path, 1, 2)
    path = tmp_path / "spool" / "audit" / "0000000001.ipfix"
    octets = bytearray(path.read_bytes())
    octets[-1] ^= 1
    path.write_bytes(octets)
    assert main(["spool", "resend", str(tmp_path / "spool" / "audit"), "--to", "other"]) == 1
    assert "1 rows were damaged" in capsys.readouterr().err
    assert [numbers for _, numbers in delivered(tmp_path / "spool" / "other")] == [[1]]
    assert path.with_name(path.name + ".damaged").exists()


def test_a_running_flowjoin_locks_its_spools(tmp_path, capsys) -> None:
    fill(tmp_path, 1)
    with open_state(tmp_path):
        assert main(["spool", "resend", str(tmp_path / "spool" / "audit"), "--to", "other"]) == 2
    assert "in use" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["..", "a/b", ""])
def test_a_name_that_no_exporter_can_have_is_refused(tmp_path, capsys, name) -> None:
    fill(tmp_path, 1)
    code = main(["spool", "resend", str(tmp_path / "spool" / "audit"), "--to", name])
    assert code == 2


def test_rows_of_open_batches_in_the_target_survive_a_resend(tmp_path) -> None:
    fill(tmp_path, 1)

    async def leave_open() -> None:
        place = tmp_path / "spool" / "other"
        bench = SpoolBench(MemoryExporter().open, place, batching=Batching(interval=1e6))
        bench.lane.offer(batch_of(7, 8))
        with trio.move_on_after(0.3):
            await bench.lane.run()

    trio.run(leave_open)
    assert main(["spool", "resend", str(tmp_path / "spool" / "audit"), "--to", "other"]) == 0
    assert [numbers for _, numbers in delivered(tmp_path / "spool" / "other")] == [[7, 8], [1]]


def test_replay_refuses_a_segment_wherever_it_lies_and_says_what_to_do(tmp_path, capsys) -> None:
    fill(tmp_path / "state", 1)
    segment = tmp_path / "state" / "spool" / "audit" / "0000000001.ipfix"
    assert main(["replay", str(segment)]) == 2
    assert "spool resend" in capsys.readouterr().err
    copy = tmp_path / "copy.ipfix"
    segment.rename(copy)
    assert main(["replay", str(copy)]) == 2
    assert "flowjoin spool resend DIR" in capsys.readouterr().err


def test_decode_reads_a_segment(tmp_path, capsys) -> None:
    fill(tmp_path, 1, 2)
    segment = tmp_path / "spool" / "audit" / "0000000001.ipfix"
    assert main(["decode", str(segment), "--output", "json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    numbers = [dict(each["elements"])["octetDeltaCount"] for each in records if each["type"] == "record"]
    assert numbers == [1, 2]


def test_check_names_the_spools_of_no_exporter(tmp_path, capsys) -> None:
    fill(tmp_path / "state", 1)
    config = tmp_path / "flowjoin.yaml"
    config.write_text(
        f"aggregatorTransportProtocol: UDP\nstateDirectory: {tmp_path}/state\n"
        f"exporters: [{{type: log, path: {tmp_path}/flows}}]\n"
    )
    assert main(["check", "-c", str(config)]) == 0
    captured = capsys.readouterr()
    assert "rows wait in the spool audit" in captured.err
    assert "good" in captured.out
