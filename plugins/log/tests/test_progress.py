"""Each batch is in the file once, wherever a process was killed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from flowjoin.api import RetryableExportError
from flowjoin.testing import RecordingContext, numbered_flows
from flowjoin_log import LogConfig
from flowjoin_log._exporter import open_log
from flowjoin_log._file import RotatingFile
from flowjoin_log._progress import Progress, Stretch, is_settled


@pytest.mark.parametrize(
    ("batch_id", "written", "expected"),
    [
        ("here/audit/1/5", "here/audit/1/5", True),
        ("here/audit/1/4", "here/audit/1/5", True),
        ("here/audit/1/6", "here/audit/1/5", False),
        ("here/audit/2/1", "here/audit/1/5", False),
        ("here/audit/1/9", "here/audit/2/1", True),
        ("here/audit/1/5[0:2]", "here/audit/1/5", True),
        ("here/audit/1/5[0:2]", "here/audit/1/5[0:2]", True),
        ("here/audit/1/5[2:4]", "here/audit/1/5[0:2]", False),
        ("here/audit/1/5", "here/audit/1/5[0:2]", False),
        ("there/audit/1/5", "here/audit/1/5", False),
        ("here/other/1/5", "here/audit/1/5", False),
        ("something", "something", True),
        ("something", "else", False),
        ("", "", False),
        ("here/audit/1/5", "", False),
    ],
)
def test_what_is_settled_is_told_from_the_order_of_ids(batch_id: str, written: str, expected: bool) -> None:
    assert is_settled(batch_id, written) is expected


def make(tmp_path: Path, *, max_octets: int = 10_000, header: bytes = b"") -> RotatingFile:
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "logs").mkdir(exist_ok=True)
    return RotatingFile(
        tmp_path / "logs" / "flows.log",
        max_octets=max_octets,
        header=header,
        clock=lambda: 1_790_000_000.0,
        progress=Progress(tmp_path / "state"),
    )


def content(tmp_path: Path) -> bytes:
    backups = sorted((tmp_path / "logs").glob("flows-*"))
    return b"".join(path.read_bytes() for path in [*backups, tmp_path / "logs" / "flows.log"])


class KilledError(BaseException):
    """The process is gone at this system call."""


def killed_at(monkeypatch: pytest.MonkeyPatch, call: int) -> list[int]:
    """Every write and sync counts; from that one on nothing happens any more. A write is cut in the middle."""
    calls = [0]
    originals = {name: getattr(os, name) for name in ("write", "pwrite", "fsync", "fdatasync", "ftruncate", "truncate")}

    def patched(name: str):
        def replacement(*arguments):
            calls[0] += 1
            if calls[0] > call:
                raise KilledError
            if calls[0] == call and name == "write":
                originals["write"](arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                raise KilledError
            if calls[0] == call and name == "pwrite":
                originals["pwrite"](arguments[0], bytes(arguments[1])[:9], arguments[2])
                raise KilledError
            return originals[name](*arguments)

        return replacement

    for name in originals:
        monkeypatch.setattr(os, name, patched(name))
    return calls


@pytest.mark.parametrize("max_octets", [10_000, 40])
@pytest.mark.parametrize("header", [b"", b"# header\n"])
def test_killed_at_any_system_call_each_line_is_there_once(tmp_path: Path, max_octets: int, header: bytes) -> None:
    chunks = [[b"one %d\n" % number, b"two %d\n" % number, b"three %d\n" % number] for number in range(4)]
    call = 0
    while True:
        call += 1
        base = tmp_path / str(call)
        base.mkdir()
        acknowledged = -1
        with pytest.MonkeyPatch.context() as monkeypatch:
            file = make(base, max_octets=max_octets, header=header)
            file.open()
            killed_at(monkeypatch, call)
            try:
                for number, lines in enumerate(chunks):
                    file.write(lines, f"here/audit/1/{number}")
                    acknowledged = number
            except KilledError:
                pass
        os.close(file._file.descriptor)  # type: ignore[union-attr]  # as the kernel does when a process ends
        if acknowledged == 3:
            break
        again = make(base, max_octets=max_octets, header=header)
        again.open()
        if acknowledged >= 0:  # the lane's own note may be one batch behind
            assert again.write(chunks[acknowledged], f"here/audit/1/{acknowledged}").was_there
        for number in range(acknowledged + 1, 4):
            again.write(chunks[number], f"here/audit/1/{number}")
        again.close()
        lines = [line for line in content(base).splitlines(keepends=True) if line != header]
        assert sorted(lines) == sorted(line for each in chunks for line in each), call
    assert call > 15


def test_without_the_batch_coming_again_nothing_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(tmp_path)
    file.open()
    file.write([b"one\n"], "here/audit/1/1")
    with pytest.MonkeyPatch.context() as patch:
        killed_at(patch, 3)
        with pytest.raises(KilledError):
            file.write([b"two\n"], "here/audit/1/2")
    os.close(file._file.descriptor)  # type: ignore[union-attr]  # as above
    again = make(tmp_path)
    again.open()
    again.write([b"three\n"], "here/audit/2/1")
    again.close()
    assert content(tmp_path) == b"one\ntwo\nthree\n"


def test_what_another_program_added_stays(tmp_path: Path) -> None:
    file = make(tmp_path)
    file.open()
    with pytest.MonkeyPatch.context() as patch:
        killed_at(patch, 3)
        with pytest.raises(KilledError):
            file.write([b"two\n"], "here/audit/1/2")
    os.close(file._file.descriptor)  # type: ignore[union-attr]  # as above
    with (tmp_path / "logs" / "flows.log").open("ab") as other:
        other.write(b"a line of somebody else\n")
    again = make(tmp_path)
    again.open()
    again.write([b"two\n"], "here/audit/1/2")
    again.close()
    assert content(tmp_path) == b"two\na line of somebody else\ntwo\n"


def test_a_torn_note_gives_the_one_before_it(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.open()
    progress.end("a/b/1/1")
    progress.begin("a/b/1/2", (Stretch(1, 2, 3, 4),))
    progress.close()
    whole = (tmp_path / "written").read_bytes()
    for at in range(0, len(whole), 97):
        (tmp_path / "written").write_bytes(whole[:at])
        torn = Progress(tmp_path)
        torn.open()
        assert torn.written in ("", "a/b/1/1")
        torn.close()


def test_a_batch_over_many_files_keeps_the_note_in_its_place(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.open()
    progress.begin("a/b/1/2", tuple(Stretch(1, number, 3, 4) for number in range(2000)))
    progress.close()
    assert (tmp_path / "written").stat().st_size <= 8192


async def test_a_note_that_cannot_be_written_is_retryable_and_nothing_is_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = RecordingContext(state_directory=tmp_path)
    path = tmp_path / "flows.log"
    async with open_log(LogConfig(path=str(path)), context) as exporter:
        with monkeypatch.context() as patch:

            def full(*_arguments: object) -> None:
                raise OSError(errno.EIO, "no")

            patch.setattr(os, "fdatasync", full)
            with pytest.raises(RetryableExportError):
                await exporter.export(numbered_flows(5).with_id("here/audit/1/1"))
        await exporter.export(numbered_flows(5).with_id("here/audit/1/1"))
    assert path.read_bytes().count(b"\n") == 5


async def test_a_batch_that_comes_again_after_a_crash_is_passed_over_and_said(tmp_path: Path) -> None:
    context = RecordingContext(state_directory=tmp_path)
    path = tmp_path / "flows.log"
    for _ in range(2):
        async with open_log(LogConfig(path=str(path)), context) as exporter:
            await exporter.export(numbered_flows(5).with_id("here/audit/1/1"))
    assert path.read_bytes().count(b"\n") == 5
    assert "batch_was_written" in context.events
