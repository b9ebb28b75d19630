"""The file that is written, with its rotation: blocking, called from one worker thread at a time.

Invariant: when ``write`` returns, every line is in the file or in a file it became (and on the disk, where progress is
noted); when it raises, none is, so that the same lines may come again. Whoever moves the file away (logrotate) or
deletes it loses no line: device and inode tell, and a new file is opened.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Final, Protocol

from flowjoin_log._progress import Progress, Stretch, is_settled
from flowjoin_log._recovery import cut_off, sync_directory
from flowjoin_log._rotation import backup_name

__all__ = ["Destination", "InUseError", "NotAFileError", "RotatingFile", "StandardOutput", "Written"]

_NEW_FILE_MODE: Final = 0o600
_DELETED_TRIES: Final = 3  # a file that is deleted under us again and again is somebody's mistake


class NotAFileError(OSError):
    """The path is something that no log can be appended to."""


class InUseError(OSError):
    """Another instance writes to this file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one write did."""

    octets: int
    rotations: int = 0
    reopened: bool = False
    was_there: bool = False


class Destination(Protocol):
    """Where lines go; every method may block.

    Attributes:
        may_stall: whether a write can wait for somebody for ever, so that whoever waits for it may leave.
    """

    may_stall: bool

    def open(self) -> None: ...
    def write(self, chunks: Sequence[bytes], batch_id: str = "") -> Written: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Opened:
    descriptor: int
    status: os.stat_result
    is_regular: bool

    @property
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size if self.is_regular else 0


class RotatingFile:
    """Appends chunks of whole lines; between two chunks it may rotate."""

    may_stall = False

    def __init__(
        self,
        path: Path,
        *,
        max_octets: int,
        header: bytes,
        clock: Callable[[], float],
        writing: Lock | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Remember the settings; nothing is opened.

        Args:
            max_octets: a chunk that would make the file larger goes to a new one.
            header: begins every file.
            clock: seconds since the Unix epoch, for the names of rotated files.
            writing: held while a write is under way: until then a rotated file may still be cut back.
            progress: where it is noted which batches are written; None notes nothing, and waits for no disk.
        """
        self._progress = progress
        self._has_written = False
        self._path = path
        self._max_octets = max_octets
        self._header = header
        self._clock = clock
        self._writing = writing or Lock()
        self._file: _Opened | None = None

    def open(self) -> None:
        """Open or create the file and its directory.

        Raises:
            NotAFileError: a directory, a FIFO or a socket has the name.
            InUseError: another instance writes to the file.
            OSError: the file cannot be opened.
        """
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open(_NEW_FILE_MODE)
        if self._progress is not None:
            self._progress.open()

    def write(self, chunks: Sequence[bytes], batch_id: str = "") -> Written:
        """Append all chunks, or none; none too if the batch of that id is there from before a crash.

        Raises:
            OSError: they could not be written; what was is cut off again.
        """
        with self._writing:
            if self._progress is not None and batch_id:
                self._progress.open()
                if not self._has_written and is_settled(batch_id, self._progress.written):
                    return Written(octets=0, was_there=True)
            return self._write(chunks, batch_id)

    def close(self) -> None:
        """Close the file and give up its lock."""
        if self._progress is not None:
            self._progress.close()
        self._close_file()

    def _close_file(self) -> None:
        opened, self._file = self._file, None
        if opened is not None:
            os.close(opened.descriptor)

    def _write(self, chunks: Sequence[bytes], batch_id: str) -> Written:
        for _ in range(_DELETED_TRIES):
            touched: list[tuple[_Opened, int]] = []
            try:
                reopened = self._follow_the_path()
                self._take_back_the_interrupted(batch_id)
                written = self._append(chunks, touched, batch_id)
                if not self._is_deleted():
                    self._note(touched, batch_id)
                    return Written(octets=written, rotations=len(touched) - 1, reopened=reopened)
                self._cut_back(touched)
            except OSError:
                self._cut_back(touched)
                raise
            finally:
                for opened, _length in touched:
                    if opened is not self._file:
                        os.close(opened.descriptor)
        raise OSError(errno.ESTALE, "the file is deleted again and again while it is written", str(self._path))

    def _take_back_the_interrupted(self, batch_id: str) -> None:
        """Cut off what a crash left of the first batch; if another one comes first, that one stays."""
        if self._has_written or self._progress is None:
            return
        self._has_written = True
        if self._progress.interrupted and self._progress.interrupted == batch_id:
            for stretch in self._progress.stretches:
                cut_off(self._path, stretch)
            self._close_file()  # the file may have got another size, or be gone
            self.open()

    def _begin(self, touched: Sequence[tuple[_Opened, int]], batch_id: str, planned: int) -> None:
        """Note where the batch may lie: in the last file up to all that is left of it, in the others to their end."""
        if self._progress is None or not batch_id or not touched[-1][0].is_regular:
            return
        stretches = [
            Stretch(opened.status.st_dev, opened.status.st_ino, start, opened.size) for opened, start in touched
        ]
        stretches[-1] = replace(stretches[-1], limit=stretches[-1].limit + planned)
        self._progress.begin(batch_id, tuple(stretches))

    def _note(self, touched: Sequence[tuple[_Opened, int]], batch_id: str) -> None:
        """Wait for the disk, then note that the batch is there."""
        if self._progress is None or not batch_id or not touched[-1][0].is_regular:
            return
        for opened, _start in touched:
            os.fsync(opened.descriptor)
        if len(touched) > 1 or not touched[0][1]:
            sync_directory(self._path.parent)
        self._progress.end(batch_id)

    def _append(self, chunks: Sequence[bytes], touched: list[tuple[_Opened, int]], batch_id: str) -> int:
        opened = self._file
        assert opened is not None, "_follow_the_path opened it"
        size = opened.size
        touched.append((opened, size))
        written = 0
        left = sum(map(len, chunks)) + len(self._header) + 1
        self._begin(touched, batch_id, left)
        for chunk in chunks:
            if opened.is_regular and size > 0 and size + len(chunk) > self._max_octets:
                opened = self._rotate(opened)
                size = opened.size
                touched.append((opened, size))
                self._begin(touched, batch_id, left)
            if opened.is_regular and size == 0 and self._header:
                _write_all(opened.descriptor, self._header)
                size += len(self._header)
                written += len(self._header)
            _write_all(opened.descriptor, chunk)
            size += len(chunk)
            written += len(chunk)
            left -= len(chunk)
        return written

    def _rotate(self, opened: _Opened) -> _Opened:
        directory = self._path.parent
        moment = datetime.fromtimestamp(self._clock(), UTC)
        backup = directory / backup_name(self._path.name, moment, set(os.listdir(directory)))  # noqa: PTH208 - names
        is_renamed = False
        with suppress(FileNotFoundError):  # moved away since we looked: only a new file is wanted
            self._path.rename(backup)
            is_renamed = True
        try:
            self._file = self._open(stat.S_IMODE(opened.status.st_mode))
        except OSError:
            if is_renamed and not self._path.exists():
                backup.rename(self._path)  # as it was, so that the next attempt finds it
            raise
        return self._file

    def _follow_the_path(self) -> bool:
        """See to it that the file is open and is the one of that name; whether another one had to be opened."""
        opened = self._file
        if opened is not None:
            try:
                now = self._path.stat()
            except FileNotFoundError:
                now = None
            if now is not None and (now.st_dev, now.st_ino) == (opened.status.st_dev, opened.status.st_ino):
                return False
            self._close_file()
        self.open()
        return opened is not None

    def _is_deleted(self) -> bool:
        opened = self._file
        assert opened is not None, "it was written to"
        return opened.is_regular and os.fstat(opened.descriptor).st_nlink == 0

    def _open(self, mode: int) -> _Opened:
        with suppress(FileNotFoundError):
            _refuse_what_is_no_file(self._path, self._path.stat().st_mode)
        # Not O_TRUNC, ever; O_NONBLOCK so that a FIFO that takes the name meanwhile cannot hold us.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        descriptor = os.open(self._path, flags, mode)
        try:
            status = os.fstat(descriptor)
            _refuse_what_is_no_file(self._path, status.st_mode)
            is_regular = stat.S_ISREG(status.st_mode)
            os.set_blocking(descriptor, True)
            if is_regular:
                _lock(descriptor, self._path)
                _end_a_cut_line(descriptor, status.st_size)
        except BaseException:
            os.close(descriptor)
            raise
        return _Opened(descriptor, status, is_regular)

    @staticmethod
    def _cut_back(touched: Sequence[tuple[_Opened, int]]) -> None:
        for opened, length in touched:
            # Another program may have made the file shorter meanwhile: never longer.
            if opened.is_regular and opened.size > length:
                os.ftruncate(opened.descriptor, length)


class StandardOutput:
    """The process's standard output, whatever it is connected to; not rotated."""

    may_stall = True

    def __init__(self, header: bytes, descriptor: int = 1) -> None:
        self._header = header
        self._source = descriptor
        self._descriptor: int | None = None
        self._writing = Lock()

    def open(self) -> None:
        self._descriptor = os.dup(self._source)

    def write(self, chunks: Sequence[bytes], batch_id: str = "") -> Written:
        with self._writing:
            assert self._descriptor is not None, "it was opened"
            data = self._header + b"".join(chunks)
            _write_all(self._descriptor, data)
            self._header = b""
            return Written(octets=len(data))

    def close(self) -> None:
        # A write that nobody waits for any more still has the descriptor: closing it could give its number away.
        if self._descriptor is not None and self._writing.acquire(blocking=False):
            os.close(self._descriptor)
            self._descriptor = None
            self._writing.release()


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _refuse_what_is_no_file(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise NotAFileError(errno.EISDIR, "is a directory; name a file in it", str(path))
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
        raise NotAFileError(errno.EINVAL, "is no regular file", str(path))


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise InUseError(errno.EBUSY, "is written by another instance; give each its own file", str(path)) from exc
    except OSError as exc:
        if exc.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # a file system without locks: nothing can tell another writer, as with any program there


def _end_a_cut_line(descriptor: int, size: int) -> None:
    """A crash can cut the last line short; the next one must not continue it."""
    if size > 0 and os.pread(descriptor, 1, size - 1) != b"\n":
        _write_all(descriptor, b"\n")
