"""Compresses rotated files and removes what is over the limits: blocking, called from a worker thread."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Final

from flowjoin_log._rotation import COMPRESSED, PARTIAL, plan_tidying

__all__ = ["Backups"]

_PIECE: Final = 64 * 1024  # octets compressed between two looks at whether to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Backups:
    """The rotated files beside one log file.

    Attributes:
        should_stop: looked at often; true ends the work early, to be done again at the next start.
        clock: seconds since the Unix epoch.
        writing: held while lines are written; a file that is rotated is whole once it is free.
    """

    path: Path
    max_backups: int
    max_age: int
    compress: bool
    should_stop: Callable[[], bool]
    clock: Callable[[], float]
    writing: Lock

    def tidy(self) -> None:
        """Remove and compress as the settings say.

        Raises:
            OSError: something could not be removed or compressed; nothing is lost by it.
        """
        directory = self.path.parent
        with self.writing:
            names = os.listdir(directory)  # noqa: PTH208 - names are wanted
        plan = plan_tidying(
            self.path.name,
            names,
            now=datetime.fromtimestamp(self.clock(), UTC),
            max_backups=self.max_backups,
            max_age=self.max_age,
            compress=self.compress,
        )
        for name in plan.remove:
            (directory / name).unlink(missing_ok=True)
        for name in plan.compress:
            if self.should_stop():
                return
            with suppress(FileNotFoundError):  # taken by someone else meanwhile
                self._compress(directory / name)

    def _compress(self, plain: Path) -> None:
        partial = plain.with_name(plain.name + PARTIAL)
        try:
            with plain.open("rb") as source:
                status = os.fstat(source.fileno())
                descriptor = os.open(
                    partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, status.st_mode & 0o777
                )
                with (
                    os.fdopen(descriptor, "wb") as target,
                    gzip.GzipFile(plain.name, "wb", fileobj=target, mtime=int(status.st_mtime)) as compressed,
                ):
                    while piece := source.read(_PIECE):
                        if self.should_stop():
                            raise _StoppedError
                        compressed.write(piece)
                    compressed.close()
                    target.flush()
                    os.fsync(target.fileno())  # the plain file goes only when this one is safe
            os.utime(partial, ns=(status.st_atime_ns, status.st_mtime_ns))
            partial.replace(plain.with_name(plain.name + COMPRESSED))
        except _StoppedError:
            partial.unlink()
            return
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        plain.unlink()


class _StoppedError(Exception):
    """The instance is closing."""
