"""What happens to the file under the exporter: rows in are rows out, each once; the reference has the table."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from flowjoin.api import ConfigError, Exporter, RetryableExportError
from flowjoin.testing import RecordingContext, numbered_flows
from flowjoin_log import LogConfig
from flowjoin_log._exporter import open_log

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "exporters" / "log.md"
ROWS, BATCHES = 700, 4
Action = Callable[[], object]


@dataclass
class Bench:
    """A log and what is done to it after the second of four batches; ``mend``: what the operator does when told."""

    directory: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def path(self) -> Path:
        return self.directory / "logs" / "flows.log"

    @property
    def state(self) -> Path:
        return self.directory / "state"


def failing(bench: Bench, name: str, number: int, times: int, *, half: bool = False) -> None:
    """The next calls of a function of ``os`` on the log fail so."""
    real: Callable[..., int] = getattr(os, name)
    left = times

    def fail(first: object, *arguments: object, **more: object) -> int:
        nonlocal left
        if left and (name != "open" or str(first) == str(bench.path)):
            left -= 1
            if half:
                data = arguments[0]
                assert isinstance(data, memoryview)
                real(first, data[: len(data) // 2])
            raise OSError(number, os.strerror(number))
        return real(first, *arguments, **more)

    bench.monkeypatch.setattr(os, name, fail)


def replaced(make: Callable[[Path], object]) -> Callable[[Bench], Action]:
    def spoil(bench: Bench) -> Action:
        bench.path.rename(bench.path.with_name("moved.log"))
        make(bench.path)
        return lambda: bench.path.rmdir() if bench.path.is_dir() else bench.path.unlink()

    return spoil


def disk_full(bench: Bench) -> None:
    failing(bench, "write", errno.ENOSPC, 3, half=True)


def disk_error(bench: Bench) -> None:
    failing(bench, "fsync", errno.EIO, 2)


def permission_lost(bench: Bench) -> None:
    bench.path.rename(bench.path.with_name("moved.log"))
    failing(bench, "open", errno.EACCES, 2)


def too_many_open_files(bench: Bench) -> None:
    bench.path.rename(bench.path.with_name("moved.log"))
    failing(bench, "open", errno.EMFILE, 2)


def moved(bench: Bench) -> None:
    bench.path.rename(bench.path.with_name("moved.log"))


def moved_and_made_anew(bench: Bench) -> None:
    moved(bench)
    bench.path.touch()


def copied_and_cut(bench: Bench) -> None:
    shutil.copyfile(bench.path, bench.path.with_name("copied.log"))
    os.truncate(bench.path, 0)


def directory_moved(bench: Bench) -> None:
    bench.path.parent.rename(bench.directory / "other-logs")


def note_torn(bench: Bench) -> None:
    note = next(bench.state.iterdir())
    note.write_bytes(b"\xff" * 8192)


def note_gone(bench: Bench) -> None:
    next(bench.state.iterdir()).unlink()


def nothing(_bench: Bench) -> None:
    """Rotation alone, every file compressed."""


FAULTS: dict[str, Callable[[Bench], Action | None]] = {
    "the disk is full in the middle of a batch": disk_full,
    "the disk does not confirm (`EIO`)": disk_error,
    "moved away, as by logrotate with `nocreate`": moved,
    "moved away and made anew, as by logrotate with `create`": moved_and_made_anew,
    "copied and cut to nothing, as by logrotate with `copytruncate`": copied_and_cut,
    "its directory is moved away": directory_moved,
    "a directory takes its name": replaced(Path.mkdir),
    "a FIFO takes its name": replaced(os.mkfifo),
    "no new file may be opened (`EACCES`)": permission_lost,
    "no descriptor is free (`EMFILE`)": too_many_open_files,
    "the note of what is written is overwritten": note_torn,
    "the note of what is written is deleted": note_gone,
    "nothing, but every megabyte is rotated and compressed": nothing,
}


def numbers_below(directory: Path) -> list[int]:
    """Of the flows in every file, by their octetTotalCount."""
    found: list[int] = []
    for path in sorted(each for each in directory.rglob("*") if each.is_file() and "state" not in each.parts):
        octets = path.read_bytes()
        text = (gzip.decompress(octets) if path.suffix == ".gz" else octets).decode()
        found += [int(row[-1]) // 1000 for row in csv.reader(io.StringIO(text, newline=""))]
    return found


async def delivered(exporter: Exporter, number: int, mend: Action | None) -> int:
    """Deliver a batch as a lane does; gives how often it had to come again."""
    batch = numbered_flows(ROWS, first=number * ROWS).with_id(f"here/log/1/{number + 1}")
    for tries in range(10):
        try:
            await exporter.export(batch)
        except RetryableExportError:
            if mend is not None and tries:
                mend()
        else:
            return tries
    raise AssertionError("it never went through")


@contextmanager
def bench_in(directory: Path) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        (directory / "state").mkdir()
        yield Bench(directory, monkeypatch)


async def outcome(spoil: Callable[[Bench], Action | None], directory: Path) -> tuple[int, int, int]:
    """Rows in, distinct rows out, and how many of them are there twice."""
    with bench_in(directory) as bench:
        config = LogConfig(path=str(bench.path), elements=("octetTotalCount",), max_size=1, max_backups=0)
        context = RecordingContext(state_directory=bench.state)
        async with open_log(config, context) as exporter:
            for number in range(2):
                await delivered(exporter, number, None)
            mend = spoil(bench)
            for number in range(2, BATCHES):
                await delivered(exporter, number, mend)
        assert context.counters["rows_delivered"].value == BATCHES * ROWS
        again = RecordingContext(state_directory=bench.state)
        async with open_log(config, again) as exporter:  # a restart, before which the last batch was not acknowledged
            await delivered(exporter, BATCHES - 1, None)
        found = numbers_below(directory)
    return BATCHES * ROWS, len(set(found)), len(found) - len(set(found))


@pytest.mark.parametrize("fault", FAULTS)
async def test_rows_in_are_rows_out(fault: str, tmp_path: Path) -> None:
    rows_in, rows_out, twice = await outcome(FAULTS[fault], tmp_path)
    assert rows_out == rows_in
    assert twice == 0
    assert f"| {fault} | {rows_in:,} | {rows_out:,} | {twice} |" in REFERENCE.read_text(encoding="utf-8")


def test_the_reference_has_no_fault_that_was_not_tried() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    table = text[text.index("| fault |") :].partition("\n\n")[0].splitlines()[2:]
    assert [line.split(" | ")[0].removeprefix("| ") for line in table] == list(FAULTS)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "fifo"])
async def test_a_note_that_is_no_file_is_named(make: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    make(tmp_path / "state" / "written")
    with pytest.raises(ConfigError, match=r"state/written cannot be used") as refused:
        async with open_log(
            LogConfig(path=str(tmp_path / "flows.log")), RecordingContext(state_directory=tmp_path / "state")
        ):
            pass
    assert str(tmp_path / "state") in str(refused.value)
