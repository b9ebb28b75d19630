"""What a plugin hands over, and the protocols the data path calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.information_element import Value

__all__ = [
    "API_VERSION",
    "AskClusterUuid",
    "Batching",
    "Check",
    "Counter",
    "Enricher",
    "EnricherType",
    "Exporter",
    "ExporterType",
    "Histogram",
    "Logger",
    "LookupType",
    "PluginContext",
    "Remark",
    "SourceType",
    "SupportsLastBatches",
]

API_VERSION = 1

ConfigT = TypeVar("ConfigT")
ProtocolT = TypeVar("ProtocolT")


class Logger(Protocol):
    """A structured logger: ``log.info("file_rotated", path=…)``; what repeats is thinned out by the core."""

    def debug(self, event: str, **facts: object) -> object: ...
    def info(self, event: str, **facts: object) -> object: ...
    def warning(self, event: str, **facts: object) -> object: ...
    def error(self, event: str, **facts: object) -> object: ...


class Counter(Protocol):
    """A number that only grows."""

    def inc(self, amount: float = 1) -> object: ...


class Histogram(Protocol):
    """Counts how often a figure was at most so large."""

    def observe(self, figure: float) -> object: ...


class PluginContext(Protocol):
    """What the core gives to a plugin's ``open``."""

    @property
    def name(self) -> str:
        """The instance's name in the configuration."""
        ...

    @property
    def log(self) -> Logger:
        """Bound to the instance's name."""
        ...

    @property
    def state_directory(self) -> Path | None:
        """A directory of the instance's own that outlives restarts; None without a state directory."""
        ...

    @property
    def instance_id(self) -> str:
        """Names this installation of flowjoin, for ever where it has a state directory."""
        ...

    @property
    def cluster_uuid(self) -> str:
        """The cluster's UUID, canonical text."""
        ...

    @property
    def compatibility(self) -> str:
        """``antrea-2.7`` or ``antrea-2.3``."""
        ...

    @property
    def registry(self) -> ElementRegistry:
        """Every Information Element this program knows."""
        ...

    @property
    def wants_pod_labels(self) -> bool:
        """Whether ``recordContents.podLabels`` is on now; a reload may change it."""
        ...

    def impaired(self, problem: str) -> None:
        """Say in a sentence for the operator that the plugin works only in part: its health is degraded.

        An empty sentence says that it works again. What makes it of no use is raised instead.
        """
        ...

    def progressed(self) -> None:
        """Say that what is under way gets on, though it takes long: patience with it begins anew.

        May be called in any thread.
        """
        ...

    def counter(self, name: str, documentation: str, *, also: str = "") -> Counter:
        """A counter ``flowjoin_<plugin>_<name>_total`` labelled with the instance's name.

        Args:
            also: a whole name that others' dashboards have for it; it is given under that too, as a gauge.
        """
        ...

    def gauge(self, name: str, documentation: str, read: Callable[[], float], *, also: str = "") -> None:
        """A figure ``flowjoin_<plugin>_<name>`` that goes up and down, read whenever metrics are asked for.

        Args:
            read: does not wait and does not fail; the reader of the instance that was opened last counts.
            also: as for a counter.
        """
        ...

    def histogram(self, name: str, documentation: str, bounds: Sequence[float], *, also: str = "") -> Histogram:
        """A histogram ``flowjoin_<plugin>_<name>`` with buckets up to these bounds, which rise, and one beyond."""
        ...

    def lookup(self, protocol: Callable[..., ProtocolT]) -> ProtocolT:
        """What provides a look-up protocol; the first configured provider wins.

        Args:
            protocol: the class, as in ``context.lookup(PodLookup)``. Declared as what would make a ``PodLookup``,
                because type checkers accept no protocol where ``type[...]`` is asked for.

        Raises:
            ConfigError: nothing configured under ``lookups:`` provides it.
        """
        ...


class Exporter(Protocol):
    """A way out, opened."""

    async def export(self, batch: FlowBatch) -> None:
        """Deliver the whole batch; return when the destination has accepted it.

        One call at a time per instance. The batch is neither changed nor kept.

        Raises:
            RetryableExportError: the destination cannot take it now.
            PermanentExportError: it will never take some rows.
        """
        ...


class Enricher(Protocol):
    """Adds elements, fills empty ones; never changes a given value, never drops a row."""

    def enrich(self, batch: FlowBatch) -> Mapping[str, Sequence[Value]]:
        """Columns for elements it declared to add or to fill; no I/O."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """When a lane closes a batch: whichever comes first.

    Attributes:
        records: rows.
        octets: estimated size in memory.
        interval: seconds since the batch's first row; 0 delivers what is there.
    """

    records: int = 4096
    octets: int = 4 * 1024 * 1024
    interval: float = 0.0


def _default_batching(_config: Any) -> Batching:  # any plugin's configuration fits
    return Batching()


def _no_longer(_config: Any) -> float:  # any plugin's configuration fits
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What an operator should know of a configuration that can be used.

    Attributes:
        problem: one sentence.
        path: of the key; empty for the whole entry.
    """

    problem: str
    path: str = ""


Check: TypeAlias = Callable[[Any, ElementRegistry], "Iterable[Remark] | None"]
"""Given the instance's configuration and every element, says what is known before anything is opened.

Raises ConfigError, with the key as ``path``, for what cannot be used: an unknown element, a file that is not there.
Reads files that the configuration names, and asks nobody anything. Called by ``flowjoin check``, at start and before a
reload.
"""


def _accept(_config: Any, _registry: ElementRegistry) -> None:  # any plugin's configuration fits
    pass


@dataclass(frozen=True, slots=True)
class ExporterType:
    """An exporter plugin.

    Attributes:
        name: the ``type`` written in the configuration.
        config: a frozen dataclass; its fields are the keys (snake_case here, lowerCamelCase there).
        open: gives an async context manager that yields the Exporter. Leaving it flushes within the
            grace time; under cancellation it closes anyway.
        api_version: the ``API_VERSION`` it was written for.
        batching: how large its batches should be.
        check: says what is known before anything is opened.
        patience: seconds for which opening, ``export`` or closing may honestly go on without a call of
            ``context.progressed()``, where that is longer than ``limits.hang``; inf: no limit. After that it is
            cancelled, and the exporter opened again.
    """

    name: str
    config: type[Any]
    open: Callable[[Any, PluginContext], AbstractAsyncContextManager[Exporter]]
    api_version: int
    batching: Callable[[Any], Batching] = _default_batching
    check: Check = _accept
    patience: Callable[[Any], float] = _no_longer


AskClusterUuid: TypeAlias = Callable[[Any, Logger], Awaitable["str | None"]]
"""Given the instance's configuration and logger, gives the cluster's UUID; None where it is not to tell.

Awaited at start, once, before anything is opened, for 30 s at most. Raises ConfigError or PluginError when it cannot:
the program does not start then, unless the cluster told it before.
"""


@dataclass(frozen=True, slots=True)
class EnricherType:
    """An enricher plugin.

    Attributes:
        adds: names of elements that become columns of every schema.
        fills: names of elements it gives a value where the record had the default.
        open: yields the Enricher; owns the task that refreshes its tables.
        cluster_uuid: tells which cluster this is, where the plugin can.
        patience: as for an ExporterType, with opening and closing.
        check: as for an ExporterType.
    """

    name: str
    config: type[Any]
    adds: tuple[str, ...]
    fills: tuple[str, ...]
    open: Callable[[Any, PluginContext], AbstractAsyncContextManager[Enricher]]
    api_version: int
    cluster_uuid: AskClusterUuid | None = None
    patience: Callable[[Any], float] = _no_longer
    check: Check = _accept


@dataclass(frozen=True, slots=True)
class SourceType:
    """A source plugin; its batches go straight to enrichers and lanes.

    Attributes:
        patience: as for an ExporterType, with opening and closing; the next batch may take for ever.
        check: as for an ExporterType.
    """

    name: str
    config: type[Any]
    open: Callable[[Any, PluginContext], AbstractAsyncContextManager[AsyncIterator[FlowBatch]]]
    api_version: int
    patience: Callable[[Any], float] = _no_longer
    check: Check = _accept


@runtime_checkable
class SupportsLastBatches(Protocol):
    """A source's iterator that has something left to tell when the program ends; others are cancelled then."""

    def finish(self) -> None:
        """The program ends: give what is left, and end, within two fifths of ``shutdownGracePeriod``.

        Does not wait. What has not been given by then is cancelled with the source.
        """
        ...


@dataclass(frozen=True, slots=True)
class LookupType:
    """A provider of look-up protocols.

    Attributes:
        provides: the protocols the opened object implements.
        cluster_uuid: as for an EnricherType.
        patience: as for an EnricherType.
        check: as for an ExporterType.
    """

    name: str
    config: type[Any]
    provides: tuple[type[Any], ...]
    open: Callable[[Any, PluginContext], AbstractAsyncContextManager[object]]
    api_version: int
    cluster_uuid: AskClusterUuid | None = None
    patience: Callable[[Any], float] = _no_longer
    check: Check = _accept
