"""A PluginContext for tests: it keeps what a plugin logs and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from flowjoin.api import ConfigError, ElementRegistry
from flowjoin.wire.registry import default_registry

__all__ = ["LogLine", "RecordingContext", "RecordingCounter", "RecordingLogger"]

ProtocolT = TypeVar("ProtocolT")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that was logged."""

    level: str
    event: str
    facts: Mapping[str, object]


class RecordingLogger:
    """Keeps every line."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []

    def debug(self, event: str, **facts: object) -> None:
        self.lines.append(LogLine("debug", event, facts))

    def info(self, event: str, **facts: object) -> None:
        self.lines.append(LogLine("info", event, facts))

    def warning(self, event: str, **facts: object) -> None:
        self.lines.append(LogLine("warning", event, facts))

    def error(self, event: str, **facts: object) -> None:
        self.lines.append(LogLine("error", event, facts))


@dataclass(slots=True)
class RecordingCounter:
    """A number that only grows.

    Attributes:
        value: the sum of all increments.
    """

    value: float = 0

    def inc(self, amount: float = 1) -> None:
        if amount < 0:
            raise ValueError(f"a counter only grows, not by {amount}")
        self.value += amount


@dataclass(slots=True, kw_only=True)
class RecordingContext:
    """What the core would give, made of values a test chooses.

    Attributes:
        lookups: what ``lookup`` gives for each protocol.
        counters: by name, as the plugin made them.
        impairments: what the plugin said of itself, in order; an empty text says that it works again.
        steps: how often it said that it gets on.
    """

    name: str = "under_test"
    log: RecordingLogger = field(default_factory=RecordingLogger)
    state_directory: Path | None = None
    instance_id: str = "5f0c9a0e6d1e4b7c8a51f3f1a2b0c4d7"
    cluster_uuid: str = "27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e02"
    compatibility: str = "antrea-2.7"
    registry: ElementRegistry = field(default_factory=default_registry)
    lookups: Mapping[type[object], object] = field(default_factory=dict)
    counters: dict[str, RecordingCounter] = field(default_factory=dict)
    wants_pod_labels: bool = False
    impairments: list[str] = field(default_factory=list)
    steps: int = 0

    def impaired(self, problem: str) -> None:
        """Keep it."""
        self.impairments.append(problem)

    def progressed(self) -> None:
        """Count it."""
        self.steps += 1

    def counter(self, name: str, documentation: str) -> RecordingCounter:
        """The counter of that name; made at the first call."""
        if not documentation:
            raise ValueError(f"counter {name} says nothing about itself")
        return self.counters.setdefault(name, RecordingCounter())

    def lookup(self, protocol: Callable[..., ProtocolT]) -> ProtocolT:
        """What the test gave for the protocol."""
        wanted = cast(type[ProtocolT], protocol)
        try:
            return cast(ProtocolT, self.lookups[wanted])
        except KeyError:
            raise ConfigError(f"nothing configured under lookups: provides {wanted.__name__}") from None

    @property
    def events(self) -> list[str]:
        """Names of the events logged, in order."""
        return [line.event for line in self.log.lines]
