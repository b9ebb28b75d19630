"""Everything the kernel counts, while it counts it; ``KernelStatistics`` is its frozen snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["Tally", "add_bounded"]

_MAXIMUM_NAMES: Final = 256  # names come from peers' Templates: beyond it all count as one
_OTHER: Final = "other"


class Tally:
    """Mutable counters of records and flows, shared by the kernel's parts."""

    __slots__ = (
        "counters_clamped",
        "elements_absent",
        "elements_dropped",
        "flows_created",
        "flows_evicted",
        "flows_exported_last",
        "flows_given_up",
        "flows_restored",
        "http_vals_replaced",
        "records_created",
        "records_merged",
        "records_older",
        "records_received",
        "records_rejected",
        "rows",
        "times_clamped",
    )

    def __init__(self) -> None:
        self.records_received = 0
        self.records_created = 0
        self.records_merged = 0
        self.records_older = 0
        self.records_rejected: dict[str, int] = {}
        self.flows_created = 0
        self.flows_exported_last = 0
        self.flows_given_up = 0
        self.flows_restored = 0
        self.flows_evicted = 0
        self.rows = 0
        self.counters_clamped = 0
        self.times_clamped = 0
        self.elements_dropped: dict[str, int] = {}
        self.elements_absent: dict[str, int] = {}
        self.http_vals_replaced = 0

    def reject(self, cause: str, records: int = 1) -> None:
        """Count records that no flow took."""
        self.records_rejected[cause] = self.records_rejected.get(cause, 0) + records


def add_bounded(counts: dict[str, int], names: Iterable[str], amount: int) -> None:
    """Count names from a peer's Template."""
    for name in names:
        if name not in counts and len(counts) >= _MAXIMUM_NAMES:
            counts[_OTHER] = counts.get(_OTHER, 0) + amount
            continue
        counts[name] = counts.get(name, 0) + amount
