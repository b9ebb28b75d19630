"""A ``CertificateStore`` in memory, with a hand on it: who else writes, and what fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from flowjoin.api import CertificateObject, StoredCertificate


class MemoryStore:
    def __init__(self) -> None:
        self.objects: dict[CertificateObject, StoredCertificate] = {}
        self.written: list[CertificateObject] = []
        self.before_put: Callable[[CertificateObject], None] = lambda _name: None
        self._serial = 0
        self._changed = trio.Event()

    def set(self, name: CertificateObject, data: Mapping[str, bytes]) -> None:
        self._serial += 1
        self.objects[name] = StoredCertificate(data=dict(data), version=str(self._serial))
        self._changed.set()

    def touch(self) -> None:
        """Tell who waits that something may have changed."""
        self._changed.set()

    async def get(self, name: CertificateObject) -> StoredCertificate | None:
        await trio.lowlevel.checkpoint()
        return self.objects.get(name)

    async def put(self, name: CertificateObject, data: Mapping[str, bytes], replaces: str | None) -> bool:
        await trio.lowlevel.checkpoint()
        self.before_put(name)
        there = self.objects.get(name)
        if (None if there is None else there.version) != replaces:
            return False
        self.written.append(name)
        self.set(name, data)
        return True

    async def wait_change(self) -> None:
        await self._changed.wait()
        self._changed = trio.Event()

    def take_written(self) -> list[CertificateObject]:
        written, self.written = self.written, []
        return written
