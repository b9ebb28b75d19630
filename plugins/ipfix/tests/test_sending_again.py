"""Rows that the collector's system took and the collector did not; collectors that are slow or take nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing
from ipfix_exporting import Start, exporter_ready, facts_of, numbers, opened

from flowjoin.api import Duration, Octets, RetryableExportError
from flowjoin.testing import RecordingContext, numbered_flows
from flowjoin.wire import SequenceGap
from flowjoin_ipfix import IpfixConfig
from flowjoin_ipfix._exporter import open_ipfix

LONG = Duration(600)  # for which no machine is too busy to start a collector


async def test_rows_the_collectors_system_took_and_it_never_read_are_sent_again(spawn: Any) -> None:
    collector = spawn()
    context = RecordingContext(name="ipfix")
    async with opened(IpfixConfig(address=collector.address, resend_interval=LONG), context) as exporter:
        await exporter.export(numbered_flows(10))
        collector.kill()
        collector.restart()  # what it had read is forgotten, as at any collector that keeps flows in memory
        await exporter_ready(exporter, numbered_flows(5, first=10))
        assert len(collector.delivered()) == 15
    assert context.counters["rows_resent"].value == 10
    assert context.counters["rows_delivered"].value == 25
    assert facts_of(context, "rows_sent_again") == {"rows": 10}


async def test_rows_older_than_the_interval_are_not_sent_again(
    start: Start, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1.0
    collector = await start()
    context = RecordingContext(name="ipfix")
    config = IpfixConfig(address=collector.address, resend_interval=Duration(20))
    async with opened(config, context) as exporter:
        await exporter.export(numbered_flows(3))
        mock_clock.jump(21)
        await exporter.export(numbered_flows(4, first=3))
        async with collector.down(nursery):
            await trio.testing.wait_all_tasks_blocked()
        await exporter_ready(exporter, numbered_flows(5, first=7))
        await collector.count()
    first, second = collector.sessions
    assert [record["sourceTransportPort"] for record in first.records] == numbers(0, 7)
    assert [record["sourceTransportPort"] for record in second.records] == numbers(3, 9)
    assert second.kinds["SequenceGap"] == 0


async def test_what_does_not_fit_into_the_resend_buffer_is_told(start: Start) -> None:
    collector = await start()
    context = RecordingContext(name="ipfix")
    config = IpfixConfig(address=collector.address, resend_buffer=Octets(1000))
    async with opened(config, context) as exporter:
        await exporter.export(numbered_flows(4))
    assert context.counters["rows_not_kept"].value == 4
    assert facts_of(context, "resend_buffer_full") == {"octets": 1000}


async def test_a_collector_that_closed_is_noticed_before_rows_count_as_delivered(
    start: Start, nursery: trio.Nursery
) -> None:
    """It closes after it has accepted, without reading: its system acknowledges all the same."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"

    async def accept_and_close(stream: trio.SocketStream) -> None:
        await stream.aclose()

    await nursery.start(trio.serve_listeners, accept_and_close, listeners)
    async with opened(IpfixConfig(address=address)) as exporter:

        async def export_some() -> None:
            for _ in range(3):  # at latest when the connection's end has come in
                await exporter.export(numbered_flows(200))
                await trio.testing.wait_all_tasks_blocked(0.01)

        with pytest.raises(RetryableExportError, match=r"closed the connection|connection broke"):
            await export_some()
    nursery.cancel_scope.cancel()


async def test_a_slow_collector_gets_everything_once(start: Start) -> None:
    collector = await start()
    collector.reading = trio.Event()
    rows = 40_000  # more than both systems' buffers hold
    async with opened(IpfixConfig(address=collector.address)) as exporter, trio.open_nursery() as exporting:
        done = trio.Event()

        async def export() -> None:
            for first in range(0, rows, 4000):
                await exporter.export(numbered_flows(4000, first=first))
            done.set()

        exporting.start_soon(export)
        with trio.move_on_after(0.5):
            await done.wait()
        assert not done.is_set()
        collector.reading.set()
        await done.wait()
        assert await collector.count() == rows
    [session] = collector.sessions
    assert not any(isinstance(event, SequenceGap) for event in session.events)


async def test_a_collector_that_takes_nothing_is_left(start: Start) -> None:
    collector = await start()
    collector.reading = trio.Event()
    config = IpfixConfig(address=collector.address, send_timeout=Duration(0.3))
    async with opened(config) as exporter:

        async def export_much() -> None:
            for first in range(0, 200_000, 4000):
                await exporter.export(numbered_flows(4000, first=first))

        with pytest.raises(RetryableExportError, match=r"took nothing for 0\.3 s"):
            await export_much()
        collector.reading.set()
        await exporter_ready(exporter, numbered_flows(1))


async def test_a_connection_that_nobody_accepts_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async def never(*_: Any, **__: Any) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(trio, "open_tcp_stream", never)
    async with open_ipfix(IpfixConfig(address="192.0.2.1"), RecordingContext()) as exporter:
        with pytest.raises(RetryableExportError, match="no connection within 10 s"):
            await exporter.export(numbered_flows(1))


async def test_books_balance_when_the_collector_dies_again_and_again(spawn: Any) -> None:
    """kill -9 between and during batches: what the collectors read of each life, the buffer fills up."""
    collector = spawn()
    seen: Counter[str] = Counter()
    context = RecordingContext()
    async with opened(IpfixConfig(address=collector.address, resend_interval=LONG), context) as exporter:
        for life in range(3):
            await exporter_ready(exporter, numbered_flows(500, first=500 * life))
            seen["rows"] += 500
            collector.kill()
            collector.restart()
        await exporter_ready(exporter, numbered_flows(1, first=1500))
        # All of it happened within resendInterval: the last collector has every row.
        assert len(collector.delivered()) == seen["rows"] + 1


@pytest.mark.slow
async def test_nothing_is_lost_when_the_collector_is_killed_while_rows_are_on_their_way(spawn: Any) -> None:
    collector = spawn()
    context = RecordingContext()
    config = IpfixConfig(address=collector.address, resend_interval=LONG)
    batches, rows = 12, 400
    report, done = trio.open_memory_channel[int](batches)

    async with opened(config, context) as exporter, trio.open_nursery() as exporting:

        async def export_all() -> None:
            async with report:
                for number in range(batches):
                    await exporter_ready(exporter, numbered_flows(rows, first=rows * number))
                    await report.send(number)

        exporting.start_soon(export_all)
        async for number in done:
            if number in (2, 5, 8):
                collector.kill()  # wherever the next batch is now
                await trio.sleep(0.02)  # it meets a refusal, too
                await trio.to_thread.run_sync(collector.restart)
        assert int(collector.say("distinct")) == batches * rows
    delivered = context.counters["rows_delivered"].value - context.counters["rows_resent"].value
    assert delivered == batches * rows
    assert context.counters["rows_resent"].value >= 3 * 3 * rows
