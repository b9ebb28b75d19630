from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest
import trio
from conntrack_entries import TIME_WAIT, connection

from flowjoin.api import ConfigError, Duration, FlowBatch
from flowjoin.testing import RecordingContext
from flowjoin_conntrack._config import ConntrackConfig
from flowjoin_conntrack._dumper import Portion
from flowjoin_conntrack._entry import Connection
from flowjoin_conntrack._source import open_source

CONFIG = ConntrackConfig(
    poll_interval=Duration(5.0), active_timeout=Duration(5.0), idle_timeout=Duration(15.0), node="n"
)


class Table:
    """A connection tracking table that a test writes."""

    has_counters = True

    def __init__(self, *connections: Connection) -> None:
        self.connections = list(connections)
        self.error: OSError | None = None
        self.dumps = 0

    async def dump(self) -> AsyncGenerator[Portion, None]:
        self.dumps += 1
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        yield Portion(b"".join(one.pack() for one in self.connections), len(self.connections))

    async def max_connections(self) -> int:
        return 0


async def next_row(batches: AsyncIterator[FlowBatch]) -> dict[str, object]:
    with trio.fail_after(1000):
        (row,) = (await anext(batches)).to_dicts()
    return dict(row)


async def test_what_is_in_the_table_comes_as_batches(autojump_clock) -> None:
    table = Table(connection(packets=3))
    context = RecordingContext()
    async with open_source(CONFIG, context, table) as batches, aclosing(batches):
        began = trio.current_time()
        row = await next_row(batches)
        assert (row["packetDeltaCount"], row["flowEndReason"]) == (3, 2)
        assert trio.current_time() - began == pytest.approx(5, abs=0.2)
        table.connections = [connection(packets=9, tcp_state=TIME_WAIT)]
        row = await next_row(batches)
        assert (row["packetDeltaCount"], row["flowEndReason"], row["tcpState"]) == (6, 3, "TIME_WAIT")
    assert context.counters["polls"].value >= 2
    assert context.counters["entries"].value >= 2


async def test_a_poll_that_fails_is_counted_and_takes_nothing_away(autojump_clock) -> None:
    table = Table(connection(packets=3))
    context = RecordingContext()
    async with open_source(CONFIG, context, table) as batches, aclosing(batches):
        table.error = OSError(4, "the table changed while it was read")
        row = await next_row(batches)
        assert row["flowEndReason"] == 2  # it has not vanished
        await trio.sleep(12)  # two more polls
        table.error = None
        table.connections = [connection(packets=4)]
        row = await next_row(batches)  # and no row of nothing before: nobody knew whether it was still
        assert (row["packetDeltaCount"], row["flowEndReason"]) == (1, 2)
    assert context.counters["failed_polls"].value >= 2
    assert {line.event for line in context.log.lines if line.level == "warning"} == {"poll_failed"}


async def test_who_may_not_read_the_table_is_told_what_is_missing() -> None:
    table = Table()
    table.error = PermissionError(1, "Operation not permitted")
    with pytest.raises(ConfigError, match="run with CAP_NET_ADMIN"):
        async with open_source(CONFIG, RecordingContext(), table):
            raise AssertionError("it opened")


async def test_what_goes_to_the_gateways_interface_is_left_out(autojump_clock, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: list[frozenset[str]] = [frozenset(), frozenset({"10.10.0.1"})]
    monkeypatch.setattr("flowjoin_conntrack._source.addresses_of", lambda _name: addresses.pop(0))
    table = Table(connection("10.10.0.1", "10.10.0.9"))
    context = RecordingContext()
    config = dataclasses.replace(CONFIG, gateway_interface="antrea-gw0")
    async with open_source(config, context, table) as batches, aclosing(batches):
        await next_row(batches)  # a gateway without an address is nobody's, and that is said
        assert context.events == ["gateway_without_address"]
        table.connections = [connection("10.10.0.9", "10.10.0.1"), connection("10.10.0.9", "10.10.0.8", packets=1)]
        addresses += [frozenset({"10.10.0.1"})] * 100
        seen: set[object] = set()
        with trio.fail_after(1000):
            while "10.10.0.8" not in seen:
                seen.update((await anext(batches)).column("destinationIPv4Address"))
    assert seen == {"10.10.0.9", "10.10.0.8"}


@pytest.mark.parametrize("after", range(12))
async def test_it_ends_wherever_it_is_cancelled(autojump_clock, after: int) -> None:
    table = Table(connection(packets=3))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                for _ in range(after):
                    await trio.sleep(1)
                scope.cancel()

            nursery.start_soon(cancel)
            async with open_source(CONFIG, RecordingContext(), table) as batches, aclosing(batches):
                async for _ in batches:
                    table.connections = [connection(packets=3 + table.dumps)]
    assert scope.cancelled_caught
