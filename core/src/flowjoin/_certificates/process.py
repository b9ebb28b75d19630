"""TLS from files that may change while we run: a new certificate is shown to whoever connects next.

The files are read every second. What was read is acted upon when the next look finds the same, so that files half
written are not taken for whole ones. What cannot be used is refused, and what was there stays in use.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import trio

from flowjoin._certificates.files import ServerTls, TlsFiles, read_files, server_tls
from flowjoin._certificates.material import TlsMaterial
from flowjoin._model.errors import ConfigError
from flowjoin.api._types import Logger

__all__ = ["LOOK_SECONDS", "TlsFileKeeper", "open_file_tls"]

T = TypeVar("T")

LOOK_SECONDS: Final = 1.0
_REMARK_SECONDS: Final = 3600.0  # certificates come nearer to their end while nothing changes


@asynccontextmanager
async def open_file_tls(
    files: TlsFiles,
    *,
    log: Logger,
    report: Callable[[ConfigError | None], None],
    wall: Callable[[], float] = time.time,
) -> AsyncIterator[TlsFileKeeper]:
    """Read the files, and read them again until the block is left.

    Args:
        files: where the material is.
        log: for changes.
        report: told each change of what is wrong: None, nothing any more.
        wall: seconds since the Unix epoch.

    Raises:
        ConfigError: the files cannot be used.
    """
    keeper = TlsFileKeeper(files, log, report, wall)
    await keeper.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run, name=f"tls {files.path}")
        yield keeper
        nursery.cancel_scope.cancel()


class TlsFileKeeper:
    """A ``TlsSource``.

    Attributes:
        current: what the next handshake is made with.
    """

    current: ServerTls

    def __init__(
        self, files: TlsFiles, log: Logger, report: Callable[[ConfigError | None], None], wall: Callable[[], float]
    ) -> None:
        """Nothing is read before ``open``."""
        self._files = files
        self._log = log
        self._report = report
        self._wall = wall
        self._limiter = trio.CapacityLimiter(1)
        self._used: TlsMaterial | None = None
        self._settled: TlsMaterial | str | None = None  # what was read and dealt with: material, or why there is none
        self._remarked_at = -_REMARK_SECONDS

    async def wait_ready(self) -> None:
        """It is, since it was opened."""
        await trio.lowlevel.checkpoint()

    async def open(self) -> None:
        """Read the files for the first time.

        Raises:
            ConfigError: they cannot be used.
        """
        material = await self._in_thread(partial(read_files, self._files))
        self.current = server_tls(self._files, material, self._wall())
        self._used = self._settled = material
        self._report(None)
        self._remark()

    async def run(self) -> None:
        """Read them again and again, until cancelled."""
        before: TlsMaterial | str | None = self._settled
        while True:
            await trio.sleep(LOOK_SECONDS)
            found = await self._in_thread(self._read)
            if found == before and found != self._settled:
                self._settled = found
                self._take(found)
            elif trio.current_time() - self._remarked_at > _REMARK_SECONDS and self._used is not None:
                self.current = server_tls(self._files, self._used, self._wall())
                self._remark()
            before = found

    def _take(self, found: TlsMaterial | str) -> None:
        try:
            if isinstance(found, str):
                raise ConfigError(found)
            self.current = server_tls(self._files, found, self._wall())
        except ConfigError as exc:
            self._report(exc)
            self._log.error("certificate_refused", problem=str(exc), consequence="the one before stays in use")
            return
        is_new, self._used = found != self._used, found
        self._report(None)
        if is_new:
            self._log.info("certificate_replaced", path=self._files.path, expires=self.current.expires_text)
            self._remark()

    def _remark(self) -> None:
        self._remarked_at = trio.current_time()
        for path, problem in self.current.remarks:
            self._log.warning("certificate_remark", path=path, problem=problem)

    def _read(self) -> TlsMaterial | str:
        try:
            return read_files(self._files)
        except ConfigError as exc:
            return str(exc)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        # A file system that does not answer must not keep the process from ending.
        return await trio.to_thread.run_sync(function, limiter=self._limiter, abandon_on_cancel=True)
