"""A certificate authority of our own, shared by all replicas: made, published and renewed while we run.

One sync goes authority, client, publication, server, in this order; each decision is in ``renewal``. When another
replica has written meanwhile, what it wrote is read and taken: so all end with one authority. The server's certificate
lives in memory alone, and is made anew whenever the authority is, and after the clock was set.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import trio

from flowjoin._certificates.directory import CertificateDirectory
from flowjoin._certificates.files import ServerTls
from flowjoin._certificates.material import TlsMaterial, examine
from flowjoin._certificates.profiles import BACKDATED, VALIDITY, Pair, make_authority, make_client, make_server
from flowjoin._certificates.renewal import RENEWED_BEFORE, authority_problem, client_problem, name_of, pair_of
from flowjoin._certificates.server_context import server_context
from flowjoin.api._cluster import CertificateObject, CertificateStore, StoredCertificate
from flowjoin.api._types import Logger

__all__ = ["DirectoryStore", "open_authority"]

T = TypeVar("T")

SYNC_SECONDS: Final = 3600.0
_LEAST_SECONDS: Final = 1.0  # from one sync to the next: whoever undoes what we write does not make us race
_CONFLICT_SECONDS: Final = 0.2
_MAX_CONFLICTS: Final = 20
_FIRST_RETRY_SECONDS: Final = 1.0
_LAST_RETRY_SECONDS: Final = 60.0


class DirectoryStore:
    """The asynchronous form of a directory; nobody else writes there."""

    def __init__(self, directory: CertificateDirectory) -> None:
        """Nothing is read or made yet."""
        self._directory = directory

    async def get(self, name: CertificateObject) -> StoredCertificate | None:
        """As ``CertificateStore``."""
        return await trio.to_thread.run_sync(self._directory.get, name)

    async def put(self, name: CertificateObject, data: Mapping[str, bytes], replaces: str | None) -> bool:
        """As ``CertificateStore``."""
        return await trio.to_thread.run_sync(self._directory.put, name, data, replaces)

    async def wait_change(self) -> None:
        """Never: what is changed by hand is seen with the next sync."""
        await trio.sleep_forever()


@asynccontextmanager
async def open_authority(
    store: CertificateStore,
    *,
    names: Sequence[str],
    log: Logger,
    report: Callable[[Exception | None], None],
    begin: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    wall: Callable[[], float] = time.time,
) -> AsyncIterator[Authority]:
    """Keep certificates in order until the block is left.

    Args:
        store: where they are kept and published.
        names: DNS names and addresses of the server.
        log: for what was made anew, and what failed.
        report: told after each sync what is wrong: None, nothing.
        begin: waited for before the first sync.
        wall: seconds since the Unix epoch.
    """
    authority = Authority(store, names, log, report, wall, begin)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(authority.run, name="certificates")
        yield authority
        nursery.cancel_scope.cancel()


class Authority:
    """Gives the server's TLS; a ``TlsSource``."""

    def __init__(
        self,
        store: CertificateStore,
        names: Sequence[str],
        log: Logger,
        report: Callable[[Exception | None], None],
        wall: Callable[[], float],
        begin: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        """Nothing is read before ``run``; the arguments are those of ``open_authority``."""
        self._store = store
        self._names = tuple(names)
        self._log = log
        self._report = report
        self._wall = wall
        self._begin = begin
        self._current: ServerTls | None = None
        self._used: bytes | None = None  # the authority's certificate that the server's one is of
        self._made_at = datetime.datetime.fromtimestamp(0, datetime.UTC)
        self._is_ready = trio.Event()
        self._limiter = trio.CapacityLimiter(1)

    @property
    def current(self) -> ServerTls | None:
        """What the next handshake is made with; None until the first sync."""
        return self._current

    async def wait_ready(self) -> None:
        """Wait for the first sync that succeeds."""
        await self._is_ready.wait()

    async def run(self) -> None:
        """Sync now, after each change and every hour, until cancelled."""
        retry = _FIRST_RETRY_SECONDS
        await self._begin()
        while True:
            next_at = trio.current_time() + _LEAST_SECONDS
            try:
                await self.sync()
            except Exception as exc:  # noqa: BLE001 - the store may be a plugin's, which may fail in any way
                self._report(exc)
                self._log.error("certificates_failed", problem=f"{type(exc).__name__}: {exc}", again_seconds=retry)
                await trio.sleep(retry)
                retry = min(2 * retry, _LAST_RETRY_SECONDS)
                continue
            retry = _FIRST_RETRY_SECONDS
            self._report(None)
            with trio.move_on_after(SYNC_SECONDS):
                try:
                    await self._store.wait_change()
                except Exception as exc:  # noqa: BLE001 - as above
                    self._log.debug("certificates_unwatched", problem=f"{type(exc).__name__}: {exc}")
                    await trio.sleep(_LAST_RETRY_SECONDS)
            await trio.sleep_until(next_at)

    async def sync(self) -> None:
        """Make anew what must be.

        Raises:
            Exception: whatever the store fails with.
        """
        for _ in range(_MAX_CONFLICTS):
            if await self._try_sync():
                return
            await trio.sleep(_CONFLICT_SECONDS)  # another replica was faster: its value is taken
        raise RuntimeError(f"others have written the certificates {_MAX_CONFLICTS} times meanwhile")

    async def _try_sync(self) -> bool:
        now = datetime.datetime.fromtimestamp(self._wall(), datetime.UTC)
        stored = await self._store.get(CertificateObject.AUTHORITY)
        authority = pair_of(None if stored is None else stored.data)
        problem = authority_problem(authority, now)
        if problem is not None or authority is None:
            authority = await self._in_thread(partial(make_authority, name_of("ca", now), now))
            if not await self._write(CertificateObject.AUTHORITY, stored, authority, problem):
                return False
        stored = await self._store.get(CertificateObject.CLIENT)
        client = pair_of(None if stored is None else stored.data)
        problem = client_problem(client, authority, now)
        if problem is not None:
            client = await self._in_thread(partial(make_client, authority, name_of("client-certificate", now), now))
            if not await self._write(CertificateObject.CLIENT, stored, client, problem):
                return False
        stored = await self._store.get(CertificateObject.AUTHORITY_CERTIFICATE)
        if stored is None or stored.data.get("ca.crt") != authority.certificate:
            data = {"ca.crt": authority.certificate}
            replaces = None if stored is None else stored.version
            if not await self._store.put(CertificateObject.AUTHORITY_CERTIFICATE, data, replaces):
                return False
            self._log.info("certificate_published", object=CertificateObject.AUTHORITY_CERTIFICATE.value)
        if authority.certificate != self._used or not _is_valid(self._made_at, now):
            self._current = await self._in_thread(partial(_server_tls, authority, self._names, now))
            self._used, self._made_at = authority.certificate, now
            self._log.info("certificate_replaced", names=list(self._names), expires=self._current.expires_text)
            for path, remark in self._current.remarks:
                self._log.warning("certificate_remark", path=path, problem=remark)
            self._is_ready.set()
        return True

    async def _write(
        self, name: CertificateObject, stored: StoredCertificate | None, pair: Pair, problem: str | None
    ) -> bool:
        data = {"tls.crt": pair.certificate, "tls.key": pair.key}
        if not await self._store.put(name, data, None if stored is None else stored.version):
            return False
        self._log.info("certificate_issued", object=name.value, reason=problem)
        return True

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function, limiter=self._limiter, abandon_on_cancel=True)


def _is_valid(made_at: datetime.datetime, now: datetime.datetime) -> bool:
    """Whether what was made then is good now and for a while: clocks are set."""
    return made_at - BACKDATED <= now <= made_at + VALIDITY - RENEWED_BEFORE


def _server_tls(authority: Pair, names: Sequence[str], now: datetime.datetime) -> ServerTls:
    pair = make_server(authority, name_of("server-certificate", now), now, names=names)
    material = TlsMaterial(certificate=pair.certificate, key=pair.key, client_ca=authority.certificate)
    examined = examine(material, now)
    remarks = tuple((f"core/certificates.{part}", problem) for part, problem in examined.remarks)
    return ServerTls(context=server_context(material), expires=examined.expires, remarks=remarks)
