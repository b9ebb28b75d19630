"""Takes back what a crash left of a batch."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from flowjoin_log._progress import Stretch

__all__ = ["cut_off", "sync_directory"]


def cut_off(path: Path, stretch: Stretch) -> None:
    """Cut the stretch off the log, or off the file it was rotated to; a rotated one that held nothing else goes.

    A file that ends before the stretch or beyond it is left alone: it is not as the crash left it.
    """
    file = _find(path, stretch)
    if file is None:
        return
    with suppress(FileNotFoundError):
        size = file.stat().st_size
        if not stretch.start < size <= stretch.limit:
            return
        if stretch.start == 0 and file != path:
            file.unlink()
        else:
            os.truncate(file, stretch.start)


def sync_directory(directory: Path) -> None:
    """Wait until the names in it are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _find(path: Path, stretch: Stretch) -> Path | None:
    with os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.inode() == stretch.inode and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                if status.st_dev == stretch.device:
                    return Path(entry.path)
    return None
