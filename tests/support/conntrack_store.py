"""A store of connections as tests drive it."""

from __future__ import annotations

from typing import Any

from flowjoin_conntrack._entry import Connection
from flowjoin_conntrack._exports import EndReason, Export, Timeouts
from flowjoin_conntrack._store import ConnectionStore
from flowjoin_conntrack._told import ToldTotals

TIMEOUTS = Timeouts(active=5.0, idle=15.0, stale=300.0)
SECOND = 10**9


class Bench:
    """A store whose polls and times are said in one word."""

    def __init__(
        self, classify: Any = lambda _row: "known", timeouts: Timeouts = TIMEOUTS, told: ToldTotals | None = None
    ) -> None:
        self.store: ConnectionStore[str] = ConnectionStore(timeouts, classify, told)

    def restarted(self, classify: Any = lambda _row: "known") -> Bench:
        """Another one, which knows what this one told."""
        return Bench(classify, told=ToldTotals(b"".join(self.store.told())))

    def poll(self, now: float, *seen: Connection) -> None:
        for _ in self.store.begin_poll(now, int(now * SECOND)):
            pass
        for _ in self.store.see(b"".join(one.pack() for one in seen)):
            pass
        list(self.store.end_poll())

    def due(self, now: float) -> list[tuple[EndReason, int]]:
        """Reason and packets since the last export."""
        return [(one.reason, delta(one)) for one in self.store.expire(now, 100)]


def delta(export: Export[str]) -> int:
    return Connection.unpack(export.row).packets - export.before.packets
