from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import trio

from flowjoin._collector.capture import CapturedMessage, CaptureItem, SessionEnded
from flowjoin._kernel.interface import IngestResult
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason
from flowjoin._model.transport_session import TransportSession
from flowjoin._pipeline.replay import Replay, ReplayClock

UDP = TransportSession(protocol="udp", peer="192.0.2.1", peer_port=1)
TCP = TransportSession(protocol="tcp", peer="192.0.2.1", peer_port=1, serial=1)
FILE = TransportSession(protocol="file")


class FakeKernel:
    """Each Message makes a flow that is due ``patience`` seconds later; writes down what it is told."""

    def __init__(self, patience: float = 5.0) -> None:
        self.patience = patience
        self.due: list[float] = []
        self.calls: list[tuple[str, float]] = []
        self.closed: list[TransportSession] = []
        self.result = IngestResult()

    def ingest(
        self, messages: Sequence[bytes | memoryview], sessions: Sequence[TransportSession], now: float
    ) -> IngestResult:
        assert len(messages) == len(sessions) == 1
        self.calls.append(("ingest", now))
        self.due.append(now + self.patience)
        return self.result

    def next_expiry(self) -> float | None:
        return min(self.due, default=None)

    def tick(self, now: float) -> Sequence[TransportSession]:
        self.calls.append(("tick", now))
        return ()

    def close_session(self, session: TransportSession) -> None:
        self.closed.append(session)

    async def expire(self, now: float) -> None:
        await trio.lowlevel.checkpoint()
        gone = [due for due in self.due if due <= now]
        self.due = [due for due in self.due if due > now]
        self.calls.append((f"expire {len(gone)}", now))


def replay_of(kernel: FakeKernel) -> Replay:
    return Replay(kernel, kernel.ingest, kernel.expire)


def messages(*times: float, session: TransportSession = UDP) -> list[CaptureItem]:
    return [CapturedMessage(time, session, memoryview(b"")) for time in times]


async def test_what_is_due_leaves_before_the_next_message_and_all_at_the_end() -> None:
    kernel = FakeKernel(patience=1.5)
    assert await replay_of(kernel).run(iter(messages(10.5, 11.25, 20.0))) is None
    assert kernel.calls == [
        ("ingest", 10.5),
        ("tick", 11.0),
        ("expire 0", 11.0),
        ("ingest", 11.25),
        ("tick", 12.0),
        ("expire 1", 12.0),
        ("tick", 13.0),
        ("expire 1", 13.0),
        ("tick", 20.0),
        ("expire 0", 20.0),
        ("ingest", 20.0),
        ("expire 1", 22.0),
    ]


async def test_a_year_in_which_nothing_is_due_is_one_step() -> None:
    kernel = FakeKernel()
    year = 365 * 86_400.0
    await replay_of(kernel).run(iter(messages(0.0, year)))
    assert len(kernel.calls) == 2 + 2 + 2 + 1


async def test_rows_that_cannot_wait_leave_at_once() -> None:
    kernel = FakeKernel(patience=0.0)
    kernel.result = IngestResult(is_due=True)
    await replay_of(kernel).run(iter(messages(10.5)))
    assert kernel.calls == [("ingest", 10.5), ("expire 1", 10.5)]


async def test_a_stream_that_cannot_be_trusted_is_not_listened_to_further() -> None:
    kernel = FakeKernel()
    kernel.result = IngestResult(faulty=(TCP,))
    replay = replay_of(kernel)
    ended: list[CaptureItem] = [SessionEnded(2.0, TCP, None)]
    await replay.run(iter(messages(1.0, 1.0, session=TCP) + ended))
    assert [call for call in kernel.calls if call[0] == "ingest"] == [("ingest", 1.0)]
    assert (kernel.closed, replay.streams_refused) == ([TCP, TCP], 1)


async def test_a_file_with_a_malformed_message_is_read_on() -> None:
    kernel = FakeKernel()
    kernel.result = IngestResult(faulty=(FILE,))
    replay = replay_of(kernel)
    await replay.run(iter(messages(1.0, 1.0, session=FILE)))
    assert [call for call in kernel.calls if call[0] == "ingest"] == [("ingest", 1.0)] * 2
    assert (kernel.closed, replay.streams_refused) == ([], 0)


async def test_a_session_that_ended_is_closed() -> None:
    kernel = FakeKernel()
    ended: list[CaptureItem] = [SessionEnded(1.0, TCP, None)]
    await replay_of(kernel).run(iter(messages(0.0, session=TCP) + ended))
    assert kernel.closed == [TCP]


async def test_what_came_before_the_end_of_a_file_cut_short_is_used() -> None:
    error = DecodeError(Reason.FILE_TRUNCATED, offset=1)

    def items() -> Iterator[CaptureItem]:
        yield from messages(1.0)
        raise error

    kernel = FakeKernel()
    assert await replay_of(kernel).run(items()) is error
    assert kernel.calls == [("ingest", 1.0), ("expire 1", 6.0)]


async def test_a_file_that_cannot_be_read_is_no_end_of_it() -> None:
    def items() -> Iterator[CaptureItem]:
        yield from messages(1.0)
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        await replay_of(FakeKernel()).run(items())


async def test_progress_is_told_in_steps() -> None:
    told: list[int] = []
    await replay_of(FakeKernel()).run(iter(messages(*[1.0] * 600)), tell=told.append)
    assert told == [256, 256, 88]


async def test_an_empty_capture_does_nothing() -> None:
    kernel = FakeKernel()
    assert await replay_of(kernel).run(iter(())) is None
    assert kernel.calls == []


async def test_cancelled_it_stops_between_two_items() -> None:
    kernel = FakeKernel()

    async def expire(now: float) -> None:
        await kernel.expire(now)
        scope.cancel()
        await trio.lowlevel.checkpoint()

    with trio.CancelScope() as scope:
        await Replay(kernel, kernel.ingest, expire).run(iter(messages(0.0, 1.0, 2.0)))
    assert scope.cancelled_caught
    assert [call for call in kernel.calls if call[0] == "ingest"] == [("ingest", 0.0)]


def test_the_clock_never_runs_backwards() -> None:
    clock = ReplayClock()
    assert list(clock.ticks_until(10.9, lambda: None)) == []
    assert list(clock.ticks_until(12.1, lambda: None)) == [12.0]
    assert list(clock.ticks_until(11.0, lambda: None)) == []


def test_the_clock_stops_at_each_tick_at_which_something_is_due() -> None:
    due = [11.5, 11.7, 14.0, 99.0]
    clock = ReplayClock()
    list(clock.ticks_until(10.0, lambda: None))
    ticks = []
    for now in clock.ticks_until(20.0, lambda: min(due, default=None)):
        ticks.append(now)
        due[:] = [each for each in due if each > now]
    assert ticks == [12.0, 14.0, 20.0]


def test_something_overdue_is_looked_at_in_each_tick() -> None:
    clock = ReplayClock()
    list(clock.ticks_until(10.0, lambda: None))
    assert list(clock.ticks_until(13.0, lambda: 5.0)) == [11.0, 12.0, 13.0]
