"""What goes up and down, under our names and those that dashboards of Antrea's agent have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flowjoin.api import PluginContext

__all__ = ["Figures"]

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Figures:
    """The gauges and the histogram of one source."""

    def __init__(self, context: PluginContext, *, held: Callable[[], int], denied: Callable[[], int]) -> None:
        self._in_table = 0
        self._table_size = 0
        context.gauge(
            "table_connections",
            "Connections in the table at the last poll.",
            lambda: self._in_table,
            also="antrea_agent_conntrack_total_connection_count",
        )
        context.gauge(
            "table_size",
            "Connections that the table can hold; 0 where it is not told.",
            lambda: self._table_size,
            also="antrea_agent_conntrack_max_connection_count",
        )
        context.gauge(
            "connections",
            "Connections that are kept.",
            held,
            also="antrea_agent_conntrack_antrea_connection_count",
        )
        context.gauge(
            "denied_connections",
            "Denied connections that are kept.",
            denied,
            also="antrea_agent_denied_connection_count",
        )
        self._poll_seconds = context.histogram(
            "poll_duration_seconds",
            "How long it took to read the table and to compare it.",
            _SECONDS,
            also="antrea_agent_conntrack_poll_cycle_duration_seconds",
        )

    def polled(self, connections: int, *, table_size: int, seconds: float) -> None:
        """The table was read whole."""
        self._in_table = connections
        self._table_size = table_size
        self._poll_seconds.observe(seconds)
