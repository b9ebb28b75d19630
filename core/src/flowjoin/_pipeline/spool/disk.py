"""The file system as the spool uses it: blocking calls, each a plain system call or two.

One class, so that a test can put faults in: short writes, a full disk, a medium that fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["Disk"]

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
_MODE: Final = 0o600  # flows say who talks to whom


class Disk:
    """Files, by path and descriptor. Every method may raise OSError."""

    def create(self, path: Path) -> int:
        """A new file to append to; one of that name that nobody finished is replaced."""
        try:
            return os.open(path, _NEW_FILE, _MODE)
        except FileExistsError:
            path.unlink()
            return os.open(path, _NEW_FILE, _MODE)

    def open_slots(self, path: Path, octets: int) -> int:
        """A file of a fixed size that is written in place, so that a full disk does not matter."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            missing = octets - os.fstat(descriptor).st_size
            if missing > 0:
                os.pwrite(descriptor, b" " * missing, octets - missing)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def write(self, descriptor: int, data: bytes | bytearray) -> None:
        """Append all of it."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.write_some(descriptor, rest) :]

    def write_some(self, descriptor: int, data: memoryview) -> int:
        """One system call."""
        return os.write(descriptor, data)

    def write_at(self, descriptor: int, data: bytes, offset: int) -> None:
        """Overwrite in place."""
        os.pwrite(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        """Wait until it is on the disk."""
        os.fdatasync(descriptor)

    def is_removed(self, descriptor: int) -> bool:
        """Whether the file has no name any more, so that what is written to it is lost."""
        return os.fstat(descriptor).st_nlink == 0

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def read(self, path: Path, offset: int, length: int) -> bytes:
        """What is there of that stretch."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts: list[bytes] = []
            while length > 0 and (part := os.pread(descriptor, length, offset)):
                parts.append(part)
                offset += len(part)
                length -= len(part)
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def lines(self, path: Path, limit: int) -> Iterator[bytes]:
        """The lines of a file; one longer than ``limit`` comes in parts, none of which has the whole."""
        with path.open("rb") as file:
            while line := file.readline(limit):
                yield line

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def remove(self, path: Path) -> None:
        """Whether it is there or not."""
        path.unlink(missing_ok=True)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def names(self, directory: Path) -> list[str]:
        return os.listdir(directory)  # noqa: PTH208 - names are wanted

    def sync_directory(self, directory: Path) -> None:
        """Wait until the names in it are on the disk."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
