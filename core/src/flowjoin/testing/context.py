"""A PluginContext for tests: it keeps what a plugin logs and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from flowjoin.api import ConfigError, ElementRegistry
from flowjoin.wire.registry import default_registry

__all__ = ["LogLine", "RecordingContext", "RecordingCounter", "RecordingHistogram", "RecordingLogger"]

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


@dataclass(slots=True)
class RecordingHistogram:
    """Keeps every figure."""

    figures: list[float] = field(default_factory=list)

    def observe(self, figure: float) -> None:
        self.figures.append(figure)


@dataclass(slots=True, kw_only=True)
class RecordingContext:
    """What the core would give, made of values a test chooses.

    Attributes:
        lookups: what ``lookup`` gives for each protocol.
        counters: by name, as the plugin made them.
        gauges: what reads them, by name.
        histograms: by name.
        others_names: what others call a counter, gauge or histogram, by its own name.
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
    gauges: dict[str, Callable[[], float]] = field(default_factory=dict)
    histograms: dict[str, RecordingHistogram] = field(default_factory=dict)
    others_names: dict[str, str] = field(default_factory=dict)
    wants_pod_labels: bool = False
    impairments: list[str] = field(default_factory=list)
    steps: int = 0

    def impaired(self, problem: str) -> None:
        """Keep it."""
        self.impairments.append(problem)

    def progressed(self) -> None:
        """Count it."""
        self.steps += 1

    def counter(self, name: str, documentation: str, *, also: str = "") -> RecordingCounter:
        """The counter of that name; made at the first call."""
        self._note("counter", name, documentation, also)
        return self.counters.setdefault(name, RecordingCounter())

    def gauge(self, name: str, documentation: str, read: Callable[[], float], *, also: str = "") -> None:
        """Keep what reads it."""
        self._note("gauge", name, documentation, also)
        self.gauges[name] = read

    def histogram(
        self, name: str, documentation: str, bounds: Sequence[float], *, also: str = ""
    ) -> RecordingHistogram:
        """The histogram of that name; made at the first call."""
        self._note("histogram", name, documentation, also)
        if list(bounds) != sorted(set(bounds)) or not bounds:
            raise ValueError(f"the bounds of histogram {name} do not rise")
        return self.histograms.setdefault(name, RecordingHistogram())

    def _note(self, kind: str, name: str, documentation: str, also: str) -> None:
        if not documentation:
            raise ValueError(f"{kind} {name} says nothing about itself")
        if also:
            self.others_names[name] = also

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
