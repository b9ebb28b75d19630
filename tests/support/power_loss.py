"""A disk that knows what a loss of power leaves at the worst: what was synced, under names that were synced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowjoin._pipeline.spool.disk import Disk


class PowerLossDisk(Disk):
    """The real disk, whose writes and names count when they were waited for."""

    def __init__(self) -> None:
        self._synced: dict[int, bytes] = {}  # by inode
        self._names: dict[Path, dict[str, int]] = {}  # of directories
        self._held: list[int] = []  # descriptors, so that no inode is used again

    def create(self, path: Path) -> int:
        return self._hold(super().create(path))

    def open_slots(self, path: Path, octets: int) -> int:
        return self._hold(super().open_slots(path, octets))

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self._synced[os.fstat(descriptor).st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def sync_directory(self, directory: Path) -> None:
        super().sync_directory(directory)
        self._names[directory] = {path.name: path.stat().st_ino for path in directory.iterdir()}

    def leave(self, spool: Path, target: Path) -> None:
        """Make in another directory what there is of the spool after the power is back."""
        target.mkdir()
        if spool.parent.name not in self._names.get(spool.parent.parent, ()):
            return
        for folder, place in ((spool, target), (spool / "dead-letters", target / "dead-letters")):
            if folder.name not in self._names.get(folder.parent, ()):
                continue
            place.mkdir(exist_ok=True)
            for name, inode in self._names.get(folder, {}).items():
                if not (folder / name).is_dir():
                    (place / name).write_bytes(self._synced.get(inode, b""))

    @contextmanager
    def closing(self) -> Iterator[PowerLossDisk]:
        try:
            yield self
        finally:
            for descriptor in self._held:
                os.close(descriptor)

    def _hold(self, descriptor: int) -> int:
        self._held.append(os.dup(descriptor))
        return descriptor
