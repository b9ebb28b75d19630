from __future__ import annotations

import errno
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import cast

import pytest
import trio
from conntrack_entries import ESTABLISHED, connection

from flowjoin.api import Duration, FlowBatch
from flowjoin.testing import RecordingContext
from flowjoin_conntrack._config import ConntrackConfig
from flowjoin_conntrack._dumper import NetlinkReceiver, Portion
from flowjoin_conntrack._entry import Connection
from flowjoin_conntrack._events import EventSource
from flowjoin_conntrack._netlink import MessageKind, Reading
from flowjoin_conntrack._open import open_source

DATAGRAM = bytes.fromhex((Path(__file__).parent / "dump.hex").read_text().split()[0])
CONFIG = ConntrackConfig(events=True, idle_timeout=Duration(60.0), node="n")


class Kernel:
    """A table and what is told of it, as a test writes them."""

    has_counters = True

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.dumps: list[float] = []
        self._send, self._receive = trio.open_memory_channel[Reading | None](1000)

    def tell(self, kind: MessageKind, *connections: Connection) -> None:
        rows = b"".join(one.pack() for one in connections)
        count = len(connections)
        self._send.send_nowait(Reading(rows, bytes([kind]) * count, count, False, False))

    def lose(self) -> None:
        self._send.send_nowait(None)

    async def dump(self) -> AsyncGenerator[Portion, None]:
        self.dumps.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        yield Portion(b"".join(one.pack() for one in self.connections), len(self.connections))

    async def max_connections(self) -> int:
        return 0

    async def count(self) -> int:
        return 0

    async def readings(self) -> AsyncGenerator[Reading | None, None]:
        async for reading in self._receive:
            yield reading

    async def wait_emptied(self) -> None:
        await trio.lowlevel.checkpoint()
        while self._receive.statistics().current_buffer_used or not self._receive.statistics().tasks_waiting_receive:
            await trio.lowlevel.checkpoint()


async def next_rows(batches: AsyncIterator[FlowBatch]) -> list[dict[str, object]]:
    with trio.fail_after(1000):
        return [dict(row) for row in (await anext(batches)).to_dicts()]


async def test_a_connection_shorter_than_a_poll_is_told_at_its_end(autojump_clock) -> None:
    kernel, context = Kernel(), RecordingContext()
    async with (
        open_source(CONFIG, context, kernel, cast(EventSource, kernel)) as batches,
        aclosing(batches),
    ):
        began = trio.current_time()
        kernel.tell(MessageKind.NEW, connection(start=0))
        kernel.tell(MessageKind.DESTROYED, connection(packets=12, octets=900, stop=1_000_000_002_000_000_000))
        (row,) = await next_rows(batches)
        assert (row["packetDeltaCount"], row["octetDeltaCount"], row["flowEndReason"]) == (12, 900, 3)
        assert trio.current_time() - began < 5
    assert context.counters["events"].value == 2


async def test_with_events_the_table_is_read_every_minute(autojump_clock) -> None:
    kernel = Kernel()
    async with open_source(CONFIG, RecordingContext(), kernel, cast(EventSource, kernel)) as batches, aclosing(batches):
        await trio.sleep(190)
    assert [round(at - kernel.dumps[0]) for at in kernel.dumps] == [0, 60, 120, 180]


async def test_where_events_were_lost_the_table_is_read_at_once_and_not_without_a_pause(autojump_clock) -> None:
    kernel, context = Kernel(), RecordingContext()
    async with open_source(CONFIG, context, kernel, cast(EventSource, kernel)) as batches, aclosing(batches):
        kernel.tell(MessageKind.NEW, connection(packets=3))
        await trio.sleep(10)
        for _ in range(50):
            kernel.lose()
            await trio.sleep(0.1)
        (row,) = await next_rows(batches)  # the read told that it had gone: its end was lost
        assert (row["packetDeltaCount"], row["flowEndReason"]) == (3, 3)
    assert context.counters["lost_events"].value == 50
    soon = [at - kernel.dumps[0] for at in kernel.dumps[1:] if at - kernel.dumps[0] < 20]
    assert soon[0] == pytest.approx(10, abs=0.2)
    assert len(soon) <= 7
    assert {line.event for line in context.log.lines if line.level == "warning"} == {"events_lost"}


async def test_thousands_of_events_at_once_hold_nobody_up(autojump_clock) -> None:
    kernel = Kernel()
    async with open_source(CONFIG, RecordingContext(), kernel, cast(EventSource, kernel)) as batches, aclosing(batches):
        many = [connection(connection_id=number, packets=1) for number in range(1000)]
        kernel.tell(MessageKind.DESTROYED, *many)
        steps = 0

        async def count() -> None:
            nonlocal steps
            while True:
                await trio.lowlevel.checkpoint()
                steps += 1

        rows: list[object] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            while len(rows) < 1000:
                rows += await next_rows(batches)
            nursery.cancel_scope.cancel()
        assert steps > 10


class Pipe:
    """Gives datagrams and failures in order, then would block."""

    def __init__(self, *answers: bytes | OSError) -> None:
        self._answers = list(answers)

    def recv_into(self, buffer: memoryview) -> int:
        if not self._answers:
            raise BlockingIOError
        answer = self._answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        buffer[: len(answer)] = answer
        return len(answer)


async def test_what_came_before_something_was_lost_is_given_first() -> None:
    lost = OSError(errno.ENOBUFS, "No buffer space available")
    receiver = NetlinkReceiver(cast(socket.socket, Pipe(DATAGRAM, DATAGRAM, lost, DATAGRAM)))
    assert bytes(await receiver.some()) == DATAGRAM * 2
    with pytest.raises(OSError, match="No buffer space"):
        await receiver.some()
    assert bytes(await receiver.some()) == DATAGRAM


async def test_lost_events_are_said_in_their_place_and_the_socket_is_read_on() -> None:
    source = EventSource(
        cast(socket.socket, Pipe(DATAGRAM, OSError(errno.ENOBUFS, "lost"), DATAGRAM, OSError(errno.EBADF, "closed"))),
        frozenset(),
    )
    told: list[int | None] = []

    async def listen() -> None:
        async with aclosing(source.readings()) as readings:
            async for reading in readings:
                told.append(None if reading is None else reading.entries)

    with pytest.raises(OSError, match="closed"):
        await listen()
    assert told == [7, None, 7]


async def test_a_connection_that_the_kernel_told_twice_is_one(autojump_clock) -> None:
    kernel = Kernel()
    one = connection(packets=0, tcp_state=ESTABLISHED)
    kernel.connections = [one]
    async with open_source(CONFIG, RecordingContext(), kernel, cast(EventSource, kernel)) as batches, aclosing(batches):
        kernel.tell(MessageKind.NEW, connection(start=0))  # of before the first read
        kernel.tell(MessageKind.DESTROYED, connection(packets=4))
        assert [row["packetDeltaCount"] for row in await next_rows(batches)] == [4]


async def test_an_end_whose_counters_were_told_and_not_yet_read_is_told_with_them_at_the_end(autojump_clock) -> None:
    kernel = Kernel()
    async with (
        open_source(CONFIG, RecordingContext(), kernel, cast(EventSource, kernel)) as batches,
        aclosing(batches),
    ):
        await trio.testing.wait_all_tasks_blocked()
        for port in range(500):
            kernel.tell(MessageKind.NEW, connection(source_port=port))
        for port in range(500):
            kernel.tell(MessageKind.DESTROYED, connection(source_port=port, packets=3))
        batches.finish()
        rows = [dict(row) async for batch in batches for row in batch.to_dicts()]
    assert [(row["packetDeltaCount"], row["flowEndReason"]) for row in rows] == [(3, 3)] * 500


async def test_who_waits_until_a_socket_is_empty_waits_for_whoever_takes_of_it(autojump_clock) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        ours.setblocking(False)
        theirs.send(DATAGRAM)
        source = EventSource(ours, frozenset())
        taken = 0

        async def take() -> None:
            nonlocal taken
            async for _ in source.readings():
                await trio.sleep(1)
                taken += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            await source.wait_emptied()
            assert taken == 1
            await source.wait_emptied()
            nursery.cancel_scope.cancel()
