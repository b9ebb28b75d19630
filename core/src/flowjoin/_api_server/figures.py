"""What the HTTP API shows, as the pipeline gives it."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter, FlowKey

__all__ = ["Compatibility", "ComponentState", "Feed", "Figures", "LogLevel", "Phase"]

Compatibility: TypeAlias = Literal["antrea-2.7", "antrea-2.3"]

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


class Phase(enum.Enum):
    """Where the run is."""

    STARTING = "starting"
    READY = "ready"  # Messages are taken in
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentState:
    """One component.

    Attributes:
        name: ``exporters/audit``: the list it is configured in, and its name.
        state: ``starting``, ``ok``, ``degraded`` or ``ended``.
        problem: what went wrong last, while it is degraded.
        failures: how often it failed since the start.
    """

    name: str
    state: str
    problem: str = ""
    failures: int = 0


class Feed(Protocol):
    """What one watcher of exported flows has not read yet."""

    async def next(self, seconds: float) -> tuple[FlowBatch | None, int]:
        """The oldest batch, or None when none comes for so long; and how many rows were dropped meanwhile."""
        ...


class Figures(Protocol):
    """Read when somebody asks; every call is short."""

    @property
    def compatibility(self) -> Compatibility:
        """Whose JSON keys are written."""
        ...

    @property
    def phase(self) -> Phase:
        """Where the run is."""
        ...

    def components(self) -> Sequence[ComponentState]:
        """Every component, in the order of their making."""
        ...

    def exposition(self) -> bytes:
        """Every metric, in Prometheus's text format."""
        ...

    def record_metrics(self) -> Mapping[str, int | bool]:
        """Antrea's counters, zeroes included."""
        ...

    def lookup(self, key: FlowKey) -> FlowBatch | None:
        """The flow as it stands."""
        ...

    def scan(self, flow_filter: FlowFilter, cursor: int, limit: int) -> tuple[list[FlowBatch], int | None]:
        """As the kernel's ``scan``."""
        ...

    def watch(self) -> AbstractContextManager[Feed]:
        """A feed of what is exported from now on."""
        ...

    @property
    def log_level(self) -> tuple[LogLevel, int]:
        """The level of the log, and the verbosity that Antrea would have."""
        ...

    def set_log_level(self, level: LogLevel, verbosity: int) -> None:
        """Write otherwise from now on, until the next change or the end."""
        ...

    def count_request(self, path: str, status: int) -> None:
        """A request was answered."""
        ...

    def count_cut(self, reason: str) -> None:
        """A connection was closed on its client: ``silent`` to make room, ``slow`` in reading."""
        ...
