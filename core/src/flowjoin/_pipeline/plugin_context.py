"""What the core gives to a plugin's ``open``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._pipeline.lookups import Lookups
from flowjoin._telemetry.metrics import Metrics
from flowjoin.api._types import Counter, Histogram, Logger

__all__ = ["InstanceContext"]

ProtocolT = TypeVar("ProtocolT")

# A plugin of such a name must not write into the core's figures.
_OWN_COMPONENTS: Final = frozenset({"collector", "component", "enricher", "kernel", "lane", "source", "telemetry"})


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceContext:
    """A PluginContext of one plugin instance.

    Attributes:
        plugin: the ``type`` in the configuration; the component of its metrics' names.
        lookups: those it may ask.
        asks_pod_labels: whether the configuration in force wants Pods' labels.
        tell_impaired: tells the table of health.
        tell_progress: tells the table of health.
    """

    plugin: str
    name: str
    log: Logger
    state_directory: Path | None
    instance_id: str
    cluster_uuid: str
    compatibility: str
    registry: ElementRegistry
    metrics: Metrics
    lookups: Lookups
    asks_pod_labels: Callable[[], bool]
    tell_impaired: Callable[[str], None]
    tell_progress: Callable[[], None]

    @property
    def wants_pod_labels(self) -> bool:
        """Whether ``recordContents.podLabels`` is on now."""
        return self.asks_pod_labels()

    def impaired(self, problem: str) -> None:
        """Say that it works only in part; an empty problem, that it works again."""
        self.tell_impaired(problem)

    def progressed(self) -> None:
        """Say that what is under way gets on, though it takes long; may be called in any thread."""
        self.tell_progress()

    def counter(self, name: str, documentation: str, *, also: str = "") -> Counter:
        """A counter ``flowjoin_<plugin>_<name>_total`` labelled with the instance's name."""
        return self.metrics.counter(self._component, name, documentation, also=also, name=self.name)

    def gauge(self, name: str, documentation: str, read: Callable[[], float], *, also: str = "") -> None:
        """A figure ``flowjoin_<plugin>_<name>`` that is read when metrics are asked for."""
        self.metrics.gauge(self._component, name, documentation, read, also=also, name=self.name)

    def histogram(self, name: str, documentation: str, bounds: Sequence[float], *, also: str = "") -> Histogram:
        """A histogram ``flowjoin_<plugin>_<name>``."""
        return self.metrics.histogram(self._component, name, documentation, bounds, also=also, name=self.name)

    @property
    def _component(self) -> str:
        component = re.sub("[^a-z0-9]+", "_", self.plugin.lower()).strip("_")
        return f"{component}_plugin" if component in _OWN_COMPONENTS else component

    def lookup(self, protocol: Callable[..., ProtocolT]) -> ProtocolT:
        """What provides a look-up protocol."""
        return self.lookups.get(cast(type[ProtocolT], protocol))
