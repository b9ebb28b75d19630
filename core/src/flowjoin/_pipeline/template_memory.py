"""Keeps the Templates of UDP exporters on disk, so that a restart reads their data at once.

One file, ``templates``, a line for each Template, written whole and renamed. A line that cannot be read is left out:
the exporter sends its Template again in any case.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import trio

from flowjoin._kernel.interface import RemembersTemplates
from flowjoin._model.transport_session import TransportSession
from flowjoin._pipeline.spool.threads import InThread, in_thread
from flowjoin._pipeline.state_directory import write_durably
from flowjoin.api._types import Logger
from flowjoin.wire.remembered import RememberedTemplate

__all__ = ["TemplateMemory", "templates_from", "templates_to"]

_FILE: Final = "templates"
_INTERVAL_SECONDS: Final = 60.0
_MAX_OCTETS: Final = 256 * 1024 * 1024


class TemplateMemory:
    """Reads the file at the start, writes it at an interval and at the end."""

    def __init__(
        self,
        directory: Path,
        kernel: RemembersTemplates,
        *,
        log: Logger,
        clock: Callable[[], float],
        wall: Callable[[], float],
        run: InThread = in_thread,
    ) -> None:
        """Connect the parts; nothing is read."""
        self._path = directory / _FILE
        self._kernel = kernel
        self._log = log
        self._clock = clock
        self._wall = wall
        self._run = run
        self._limiter = trio.CapacityLimiter(1)

    def restore(self) -> None:
        """Give the kernel what an earlier run left."""
        try:
            if not self._path.exists():
                return
            with self._path.open("rb") as file:
                found = templates_from(file.read(_MAX_OCTETS).splitlines(keepends=True), self._wall())
        except OSError as exc:
            self._log.warning("templates_not_restored", problem=str(exc))
            return
        count = self._kernel.remember_templates(found, self._clock())
        if count:
            self._log.info("templates_restored", templates=count)

    async def keep(self) -> None:
        """Write the file at an interval, until cancelled."""
        while True:
            await trio.sleep(_INTERVAL_SECONDS)
            await self.save()

    async def save(self) -> None:
        """Write the file."""
        lines = templates_to(self._kernel.remembered_templates(self._clock()), self._wall())
        try:
            await self._run(lambda: write_durably(self._path, b"".join(lines)), limiter=self._limiter)
        except OSError as exc:
            self._log.warning("templates_not_kept", problem=os.strerror(exc.errno) if exc.errno else str(exc))


def templates_to(templates: Iterable[RememberedTemplate], wall: float) -> list[bytes]:
    """A line for each."""
    lines: list[bytes] = []
    for each in templates:
        session = each.session
        facts = {
            "peer": [session.peer, session.peer_port],
            "local": [session.local, session.local_port],
            "domain": each.observation_domain_id,
            "version": each.version,
            "options": each.is_options,
            "record": each.record.hex(),
            "seen": round(wall - each.age, 3),
        }
        text = json.dumps(facts, separators=(",", ":")).encode()
        lines.append(b"%08x %s\n" % (zlib.crc32(text), text))
    return lines


def templates_from(lines: Sequence[bytes], wall: float) -> list[RememberedTemplate]:
    """What undamaged lines say."""
    found: list[RememberedTemplate] = []
    for line in lines:
        text = line[9:].rstrip(b"\n")
        if line[:9] != b"%08x " % zlib.crc32(text):
            continue
        try:
            facts = json.loads(text)
            session = TransportSession(
                protocol="udp",
                peer=str(facts["peer"][0]),
                peer_port=int(facts["peer"][1]),
                local=str(facts["local"][0]),
                local_port=int(facts["local"][1]),
            )
            found.append(
                RememberedTemplate(
                    session=session,
                    observation_domain_id=int(facts["domain"]),
                    version=int(facts["version"]),
                    is_options=bool(facts["options"]),
                    record=bytes.fromhex(facts["record"]),
                    age=max(0.0, wall - float(facts["seen"])),
                )
            )
        except (ValueError, KeyError, TypeError, IndexError):
            continue  # of another version of flowjoin
    return found
