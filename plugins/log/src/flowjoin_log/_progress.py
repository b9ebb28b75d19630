"""How far the file is written, kept in the state directory: what makes the file hold each row once.

Two facts are kept, in one line: the last batch that is in the file and on the disk, and, while one is being written,
which stretches of which files it may cover. A start after a crash finds both. The batch that was being written comes
again, under its id, because it was not acknowledged: its stretches are cut off first. A batch that comes again although
it is in the file (the crash came between our note and the lane's) is passed over.

Files are known by device and inode. A stretch is cut only if the file ends within it: what somebody else has written
behind it meanwhile stays.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

__all__ = ["NoteError", "Progress", "Stretch", "is_settled"]

_SLOT: Final = 4096
_FILE: Final = "written"
_ID: Final = re.compile(r"(.*)/(\d{1,20})/(\d{1,20})(?:\[(\d{1,20}):(\d{1,20})\])?", re.DOTALL)


class NoteError(OSError):
    """The file of the note cannot be used."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where in a file a batch may lie: from ``start``, not beyond ``limit``."""

    device: int
    inode: int
    start: int
    limit: int


@dataclass(frozen=True, slots=True)
class _Note:
    number: int = 0
    written: str = ""  # id of the last batch that is in the file
    writing: str = ""  # id of the batch that is on its way
    stretches: tuple[Stretch, ...] = ()


class Progress:
    """Reads and writes the note; blocking.

    Invariant: the note on the disk is the last one written or the one before it.
    """

    def __init__(self, directory: Path) -> None:
        """Remember the place; nothing is opened."""
        self._path = directory / _FILE
        self._descriptor: int | None = None
        self._note = _Note()

    @property
    def written(self) -> str:
        """Id of the last batch that is in the file; empty when none is known."""
        return self._note.written

    @property
    def interrupted(self) -> str:
        """Id of the batch whose writing did not end; empty when none."""
        return self._note.writing

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Where that batch may lie."""
        return self._note.stretches

    def open(self) -> None:
        """Read what an earlier run left.

        Raises:
            NoteError: the file cannot be used.
            OSError: it cannot be read.
        """
        if self._descriptor is not None:
            return
        self._descriptor = self._opened()
        data = os.pread(self._descriptor, 2 * _SLOT, 0)
        notes = [note for note in (_read(data[:_SLOT]), _read(data[_SLOT:])) if note is not None]
        self._note = max(notes, key=lambda note: note.number, default=_Note())

    def begin(self, batch_id: str, stretches: tuple[Stretch, ...]) -> None:
        """A batch is about to be written there; called again when it goes on into another file."""
        self._write(replace(self._note, writing=batch_id, stretches=stretches), is_synced=False)

    def end(self, batch_id: str) -> None:
        """The batch is in the file, and the file on the disk.

        Raises:
            OSError: that could not be noted, and the note before it holds.
        """
        before = self._note
        try:
            self._write(replace(before, written=batch_id, writing="", stretches=()), is_synced=True)
        except OSError:
            with suppress(OSError):  # the disk is failing; the batch comes again in any case
                self._write(before, is_synced=False)
            raise

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as exc:
            raise NoteError(exc.errno, f"{self._path} cannot be used: {exc.strerror}") from exc
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise NoteError(errno.EINVAL, f"{self._path} cannot be used: is no regular file; remove it")
        return descriptor

    def _write(self, note: _Note, *, is_synced: bool) -> None:
        assert self._descriptor is not None, "it was opened"
        if os.fstat(self._descriptor).st_nlink == 0:  # somebody deleted it: what is written there is lost
            gone, self._descriptor = self._descriptor, self._opened()
            os.close(gone)
        note = replace(note, number=self._note.number + 1)
        line = _line(note)
        if len(line) > _SLOT:  # a batch over dozens of files: it may come twice
            line = _line(replace(note, writing="", stretches=()))
        os.pwrite(self._descriptor, line.ljust(_SLOT), note.number % 2 * _SLOT)
        self._note = note
        if is_synced:
            os.fdatasync(self._descriptor)


def is_settled(batch_id: str, written: str) -> bool:
    """Whether a batch is in the file because a later one of its lane is, or it is itself.

    A lane delivers in the order of its ids (see FlowBatch.id); of a batch that had to be cut in the order of its rows.
    """
    ours, last = _ID.fullmatch(batch_id), _ID.fullmatch(written)
    if ours is None or last is None or ours[1] != last[1]:
        return bool(batch_id) and batch_id == written
    mine, theirs = (int(ours[2]), int(ours[3])), (int(last[2]), int(last[3]))
    if mine != theirs:
        return mine < theirs
    if last[5] is None:
        return True  # the whole batch is there
    return ours[5] is not None and int(ours[5]) <= int(last[5])


def _line(note: _Note) -> bytes:
    stretches = [[each.device, each.inode, each.start, each.limit] for each in note.stretches]
    text = json.dumps([note.number, note.written, note.writing, stretches]).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read(slot: bytes) -> _Note | None:
    checksum, _, text = slot.rstrip(b" ").rstrip(b"\n").partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None  # never written, or torn: the other one counts
    number, written, writing, stretches = json.loads(text)
    return _Note(number, written, writing, tuple(Stretch(*numbers) for numbers in stretches))
