"""What tests with real sockets share."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
from running_flowjoin import Program, Run

from flowjoin._collector.config import CollectorConfig, CollectorLimits
from flowjoin._config.endpoint import Endpoint
from flowjoin._kernel.interface import IngestResult
from flowjoin._model.transport_session import TransportSession

PATIENCE = 60.0  # seconds until a test that waits in vain fails


@dataclass
class RecordingLog:
    """A Logger that keeps what it was told."""

    changed: Callable[[], object]
    entries: list[tuple[str, str, dict[str, object]]] = field(default_factory=list)

    def _add(self, level: str, event: str, facts: dict[str, object]) -> None:
        self.entries.append((level, event, facts))
        self.changed()

    def debug(self, event: str, **facts: object) -> None:
        self._add("debug", event, facts)

    def info(self, event: str, **facts: object) -> None:
        self._add("info", event, facts)

    def warning(self, event: str, **facts: object) -> None:
        self._add("warning", event, facts)

    def error(self, event: str, **facts: object) -> None:
        self._add("error", event, facts)

    def of(self, event: str) -> list[tuple[str, dict[str, object]]]:
        return [(level, facts) for level, name, facts in self.entries if name == event]


class RecordingIntake:
    """Stands where the kernel stands, and lets a test wait for what it expects."""

    def __init__(self) -> None:
        self._changed = trio.lowlevel.ParkingLot()
        self.log = RecordingLog(self._changed.unpark_all)
        self.messages: list[bytes] = []
        self.sessions: list[TransportSession] = []
        self.calls: list[int] = []
        self.closed: list[TransportSession] = []
        self.is_faulty: Callable[[bytes], bool] = lambda _message: False

    def ingest(
        self, messages: Sequence[bytes | memoryview], sessions: Sequence[TransportSession], now: float
    ) -> IngestResult:
        assert len(messages) == len(sessions) > 0
        assert now <= trio.current_time()
        self.calls.append(len(messages))
        self.messages.extend(map(bytes, messages))
        self.sessions.extend(sessions)
        self._changed.unpark_all()
        faulty = [
            session for message, session in zip(messages, sessions, strict=True) if self.is_faulty(bytes(message))
        ]
        return IngestResult(faulty=tuple(faulty))

    def close_session(self, session: TransportSession) -> None:
        self.closed.append(session)
        self._changed.unpark_all()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on what came; looked at after each call."""
        with trio.fail_after(PATIENCE):
            while not condition():
                await self._changed.park()

    async def wait_for_messages(self, count: int) -> None:
        await self.wait_until(lambda: len(self.messages) >= count)

    @property
    def arguments(self) -> dict[str, Any]:
        """For ``open_collector``."""
        return {"ingest": self.ingest, "close_session": self.close_session, "log": self.log}


@pytest.fixture
def intake() -> RecordingIntake:
    return RecordingIntake()


@pytest.fixture
def make_message() -> Callable[..., bytes]:
    """An IPFIX Message with one Data Set of that many octets (RFC 7011 section 3)."""

    def make(number: int = 0, *, payload: int = 8) -> bytes:
        data = struct.pack(">HH", 256, 4 + payload) + bytes(payload)
        return struct.pack(">HHIII", 10, 16 + len(data), 1_700_000_000, number, 1) + data

    return make


@pytest.fixture
def configure() -> Callable[..., CollectorConfig]:
    def make(protocol: Any, host: str = "127.0.0.1", port: int = 0, **limits: Any) -> CollectorConfig:
        limits.setdefault("receive_buffer_octets", 1024 * 1024)
        return CollectorConfig(
            protocol=protocol, address=Endpoint(host=host, port=port), limits=CollectorLimits(**limits)
        )

    return make


@pytest.fixture
def run() -> Iterator[Run]:
    programs: list[Program] = []

    def start(*arguments: str, path: Path | None = None, code: str | None = None) -> Program:
        programs.append(Program(*arguments, path=path, code=code))
        return programs[-1]

    yield start
    for program in programs:
        if program.process.poll() is None:
            program.process.kill()
        program.process.communicate()
