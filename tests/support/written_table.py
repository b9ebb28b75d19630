"""A connection tracking table that a test writes, and the source that reads it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

import trio

from flowjoin.api import Duration, FlowBatch
from flowjoin_conntrack._config import ConntrackConfig
from flowjoin_conntrack._dumper import Portion
from flowjoin_conntrack._entry import Connection

CONFIG = ConntrackConfig(
    poll_interval=Duration(5.0), active_timeout=Duration(5.0), idle_timeout=Duration(15.0), node="n"
)


class Table:
    """A connection tracking table that a test writes."""

    has_counters = True

    def __init__(self, *connections: Connection) -> None:
        self.connections = list(connections)
        self.error: OSError | None = None
        self.size = 262144
        self.held = 0
        self.dumps = 0

    async def dump(self) -> AsyncGenerator[Portion, None]:
        self.dumps += 1
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        yield Portion(b"".join(one.pack() for one in self.connections), len(self.connections))

    async def max_connections(self) -> int:
        return self.size

    async def count(self) -> int:
        return self.held


async def next_row(batches: AsyncIterator[FlowBatch]) -> dict[str, object]:
    with trio.fail_after(1000):
        (row,) = (await anext(batches)).to_dicts()
    return dict(row)
