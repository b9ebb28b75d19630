"""The file: every line once, through rotation, moves, deletion and a disk that fills up."""

from __future__ import annotations

import errno
import gzip
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock

import pytest

from flowjoin_log import _file
from flowjoin_log._backups import Backups
from flowjoin_log._file import InUseError, NotAFileError, RotatingFile, StandardOutput

EPOCH = 1_764_511_509.123  # 2025-11-30T14:05:09.123Z


class Clock:
    def __init__(self) -> None:
        self.now = EPOCH

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "flows.log"


@pytest.fixture
def make_file(path: Path) -> Iterator[Callable[..., RotatingFile]]:
    made: list[RotatingFile] = []

    def make(max_octets: int = 100, header: bytes = b"") -> RotatingFile:
        made.append(RotatingFile(path, max_octets=max_octets, header=header, clock=Clock()))
        return made[-1]

    yield make
    for file in made:
        file.close()


def all_lines(path: Path) -> list[bytes]:
    """Of all files of the directory, in the order of their names: rotated ones first, in time's order."""
    texts = [each.read_bytes() for each in sorted(path.parent.iterdir()) if each.is_file()]
    return b"".join(texts).splitlines()


def backups(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir() if each != path)


def test_directory_and_file_are_made_for_their_owner_alone(path: Path, make_file: Callable[..., RotatingFile]) -> None:
    make_file().open()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.parent.is_dir()


def test_lines_are_appended_to_what_is_there(path: Path, make_file: Callable[..., RotatingFile]) -> None:
    path.parent.mkdir()
    path.write_bytes(b"earlier\n")
    written = make_file().write([b"one\n", b"two\n"])
    assert path.read_bytes() == b"earlier\none\ntwo\n"
    assert (written.octets, written.rotations, written.reopened) == (8, 0, False)


def test_a_line_that_a_crash_cut_short_is_not_continued(path: Path, make_file: Callable[..., RotatingFile]) -> None:
    path.parent.mkdir()
    path.write_bytes(b"whole\nha")
    make_file().write([b"next\n"])
    assert path.read_bytes() == b"whole\nha\nnext\n"


def test_a_chunk_that_would_make_the_file_too_large_goes_to_a_new_one(
    path: Path, make_file: Callable[..., RotatingFile]
) -> None:
    file = make_file(max_octets=100)
    for number in range(30):
        file.write([b"%09d\n" % number] * 3)
    assert [len(each.read_bytes()) for each in sorted(path.parent.iterdir())] == [100] * 9
    assert all_lines(path) == [b"%09d" % (number // 3) for number in range(90)]


def test_one_write_may_fill_several_files(path: Path, make_file: Callable[..., RotatingFile]) -> None:
    file = make_file(max_octets=100)
    assert file.write([b"%09d\n" % number for number in range(35)]).rotations == 3
    assert all_lines(path) == [b"%09d" % number for number in range(35)]
    assert len(backups(path)) == 3


def test_a_file_may_be_exactly_full(path: Path, make_file: Callable[..., RotatingFile]) -> None:
    file = make_file(max_octets=20)
    assert file.write([b"%09d\n" % 1, b"%09d\n" % 2]).rotations == 0
    assert file.write([b"x\n"]).rotations == 1


def test_a_chunk_larger_than_a_file_may_be_stands_alone(path: Path, make_file: Callable[..., RotatingFile]) -> None:
    file = make_file(max_octets=10)
    file.write([b"a\n", b"b" * 50 + b"\n", b"c\n"])
    assert all_lines(path) == [b"a", b"b" * 50, b"c"]
    assert len(backups(path)) == 2


def test_names_of_rotated_files_are_antreas(path: Path, make_file: Callable[..., RotatingFile]) -> None:
    file = make_file(max_octets=10)
    file.write([b"123456789\n", b"x\n"])
    assert backups(path) == ["flows-2025-11-30T14-05-09.124.log"]


def test_the_new_file_has_the_mode_of_the_old_one(path: Path, make_file: Callable[..., RotatingFile]) -> None:
    file = make_file(max_octets=10)
    file.write([b"123456789\n"])
    path.chmod(0o640)
    file.close()
    file.write([b"123456789\n"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_each_file_begins_with_the_header(path: Path, make_file: Callable[..., RotatingFile]) -> None:
    file = make_file(max_octets=20, header=b"name\n")
    file.write([b"123456789\n"])
    file.write([b"123456789\n"])
    file.close()
    file.write([b"1\n"])
    assert [each.read_bytes() for each in sorted(path.parent.iterdir())] == [
        b"name\n123456789\n",
        b"name\n123456789\n1\n",
    ]


@pytest.mark.parametrize("move", ["rename", "unlink", "replace", "directory"])
def test_no_line_is_lost_when_the_file_is_moved_or_deleted(
    path: Path, tmp_path: Path, make_file: Callable[..., RotatingFile], move: str
) -> None:
    file = make_file(max_octets=10_000)
    file.write([b"before\n"])
    moved = tmp_path / "flows.log.1"
    if move == "unlink":
        path.unlink()
    elif move == "directory":
        path.parent.rename(tmp_path / "elsewhere")
    else:
        path.rename(moved)
        if move == "replace":
            path.touch(mode=0o640)  # logrotate's `create`
    written = file.write([b"after\n"])
    assert written.reopened
    assert path.read_bytes() == b"after\n"
    if move in ("rename", "replace"):
        assert moved.read_bytes() == b"before\n"
    assert not file.write([b"again\n"]).reopened


def test_a_file_cut_to_nothing_is_written_on(path: Path, make_file: Callable[..., RotatingFile]) -> None:
    file = make_file(max_octets=30)
    file.write([b"123456789\n"] * 3)
    os.truncate(path, 0)  # logrotate's `copytruncate`
    file.write([b"after\n"])
    assert path.read_bytes() == b"after\n"
    assert backups(path) == []


def test_a_file_deleted_while_it_is_written_is_written_anew(
    path: Path, make_file: Callable[..., RotatingFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_file()
    file.open()
    write_all = _file._write_all

    def write_then_delete(descriptor: int, data: bytes) -> None:
        write_all(descriptor, data)
        monkeypatch.setattr(_file, "_write_all", write_all)
        path.unlink()

    monkeypatch.setattr(_file, "_write_all", write_then_delete)
    file.write([b"one\n"])
    assert path.read_bytes() == b"one\n"


class FullDisk:
    """Takes so many octets, then says what a full disk says, after a part of the data."""

    def __init__(self, room: int, error: int = errno.ENOSPC) -> None:
        self.room = room
        self._error = error
        self._write = os.write

    def write(self, descriptor: int, data: memoryview) -> int:
        if self.room == 0:
            raise OSError(self._error, os.strerror(self._error))
        taken = self._write(descriptor, data[: self.room])
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", range(0, 70, 3))
def test_a_disk_that_fills_up_takes_all_of_a_write_or_nothing(
    path: Path, make_file: Callable[..., RotatingFile], monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    file = make_file(max_octets=30, header=b"#\n")
    file.write([b"%09d\n" % 0])
    chunks = [b"%09d\n" % number for number in range(1, 8)]
    disk = FullDisk(room)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", disk.write)
        with pytest.raises(OSError, match="No space left"):
            file.write(chunks)
    file.write(chunks)
    assert [line for line in all_lines(path) if line != b"#"] == [b"%09d" % number for number in range(8)]


def test_when_no_new_file_can_be_opened_the_old_one_is_put_back(
    path: Path, make_file: Callable[..., RotatingFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_file(max_octets=10)
    file.write([b"123456789\n"])
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(os, "open", refuse)
        with pytest.raises(OSError, match="No space left"):
            file.write([b"x\n"])
    assert backups(path) == []
    file.write([b"x\n"])
    assert all_lines(path) == [b"123456789", b"x"]


def test_no_descriptor_is_left_by_rotation_or_failure(
    path: Path, make_file: Callable[..., RotatingFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    file = make_file(max_octets=10)
    file.write([b"123456789\n"] * 5)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", FullDisk(15).write)
        with pytest.raises(OSError, match="No space left"):
            file.write([b"123456789\n"] * 5)
    file.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_two_instances_on_one_file_are_refused_also_after_rotation(
    path: Path, make_file: Callable[..., RotatingFile]
) -> None:
    first, second = make_file(max_octets=10), make_file()
    first.write([b"123456789\n"] * 2)
    with pytest.raises(InUseError, match="is written by another instance"):
        second.open()
    first.close()
    second.write([b"mine\n"])


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "fifo"])
def test_what_is_no_file_is_refused(
    path: Path, make_file: Callable[..., RotatingFile], make: Callable[[Path], None]
) -> None:
    path.parent.mkdir()
    make(path)
    with pytest.raises(NotAFileError):
        make_file().open()


def test_a_device_is_written_and_never_rotated(tmp_path: Path) -> None:
    file = RotatingFile(Path("/dev/null"), max_octets=10, header=b"#\n", clock=Clock())
    assert file.write([b"x" * 50] * 3).rotations == 0
    file.close()
    full = RotatingFile(Path("/dev/full"), max_octets=10, header=b"", clock=Clock())
    with pytest.raises(OSError, match="No space left"):
        full.write([b"x"])
    full.close()


def test_standard_output_gets_the_header_once(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    output = StandardOutput(b"#\n", writing)
    output.open()
    os.close(writing)
    output.write([b"1\n"])
    output.write([b"2\n", b"3\n"])
    output.close()
    with os.fdopen(reading, "rb") as end:
        assert end.read() == b"#\n1\n2\n3\n"


def tidier(path: Path, **changes: object) -> Backups:
    settings: dict[str, object] = {
        "max_backups": 3,
        "max_age": 0,
        "compress": True,
        "should_stop": lambda: False,
        "clock": lambda: EPOCH + 10,
        "writing": Lock(),
        **changes,
    }
    return Backups(path=path, **settings)  # type: ignore[arg-type]  # as above


def test_rotated_files_are_compressed_with_mode_and_time_and_the_oldest_go(
    path: Path, make_file: Callable[..., RotatingFile]
) -> None:
    file = make_file(max_octets=10)
    file.write([b"%09d\n" % number for number in range(6)])
    oldest_kept = sorted(path.parent.glob("flows-*.log"))[-3]
    modified = oldest_kept.stat().st_mtime_ns
    tidier(path).tidy()
    assert len(backups(path)) == 3
    assert all(name.endswith(".log.gz") for name in backups(path))
    compressed = path.parent / f"{oldest_kept.name}.gz"
    assert gzip.decompress(compressed.read_bytes()) == b"%09d\n" % 2
    assert stat.S_IMODE(compressed.stat().st_mode) == 0o600
    assert compressed.stat().st_mtime_ns == modified
    assert path.read_bytes() == b"%09d\n" % 5


def test_compression_that_is_stopped_leaves_the_plain_file_alone(
    path: Path, make_file: Callable[..., RotatingFile]
) -> None:
    make_file(max_octets=10).write([b"123456789\n", b"x\n"])
    before = backups(path)
    looks = iter([False, True])
    tidier(path, should_stop=lambda: next(looks)).tidy()
    assert backups(path) == before


def test_compression_that_fails_leaves_the_plain_file_alone(
    path: Path, make_file: Callable[..., RotatingFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_file(max_octets=10).write([b"123456789\n", b"x\n"])
    before = backups(path)

    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        tidier(path).tidy()
    assert backups(path) == before


def test_a_file_is_not_compressed_while_it_may_be_cut_back(path: Path, make_file: Callable[..., RotatingFile]) -> None:
    make_file(max_octets=10).write([b"123456789\n", b"x\n"])
    writing = Lock()
    listed: list[bool] = []

    class Watched:
        def __enter__(self) -> None:
            writing.acquire()
            listed.append(writing.locked())

        def __exit__(self, *_: object) -> None:
            writing.release()

    tidier(path, writing=Watched()).tidy()
    assert listed == [True]
