"""The registry of metrics: everything that moves is counted, under one naming rule, with closed label sets.

A metric is ``flowjoin_<component>_<noun>_<unit>``, with ``_total`` for a counter. Most figures live in the books of
the part they count and are read when somebody asks (``watch``), so that nothing is counted twice; a plugin's counters
are made here. prometheus_client's own process-wide registry is not used: two pipelines in one process (tests) do
not meet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["Count", "Metrics", "counter_family", "gauge_family"]

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


class Count:
    """A number that only grows."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value = 0.0

    @property
    def value(self) -> float:
        return self._value

    def inc(self, amount: float = 1) -> None:
        """Add to it.

        Raises:
            ValueError: the amount is negative.
        """
        if amount < 0:
            raise ValueError(f"a counter only grows, it cannot take {amount}")
        self._value += amount


class Metrics:
    """Counters, and the functions that read other parts' books."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._counts: dict[str, tuple[str, dict[tuple[tuple[str, str], ...], Count]]] = {}
        self._watched: list[Callable[[], Iterable[Metric]]] = []
        self.registry.register(self)

    def counter(self, component: str, noun: str, documentation: str, **labels: str) -> Count:
        """The counter ``flowjoin_<component>_<noun>_total`` with these labels; the same one each time.

        Raises:
            ValueError: a name breaks the naming rule, or the labels are not those of its other counters.
        """
        name = _name(component, noun)
        _, counts = self._counts.setdefault(name, (documentation, {}))
        key = tuple(sorted(labels.items()))
        if any([label for label, _ in other] != [label for label, _ in key] for other in counts):
            raise ValueError(f"{name} has other labels elsewhere than {sorted(labels)}")
        return counts.setdefault(key, Count())

    def watch(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Ask this function for metrics whenever metrics are asked for."""
        self._watched.append(read)

    def expose(self) -> bytes:
        """Everything, in Prometheus's text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks its collectors for."""
        for name, (documentation, counts) in self._counts.items():
            labels = [label for label, _ in next(iter(counts))]
            family = CounterMetricFamily(name, documentation, labels=labels)
            for key, count in counts.items():
                family.add_metric([value for _, value in key], count.value)
            yield family
        for read in self._watched:
            yield from read()


def counter_family(
    component: str, noun: str, documentation: str, samples: float | Mapping[str, float], label: str = "name"
) -> CounterMetricFamily:
    """Counters of one name: one figure, or one for each value of a label."""
    name = _name(component, noun)
    if not isinstance(samples, Mapping):
        return CounterMetricFamily(name, documentation, value=samples)
    family = CounterMetricFamily(name, documentation, labels=[label])
    for value, sample in samples.items():
        family.add_metric([value], sample)
    return family


def gauge_family(
    component: str, noun: str, documentation: str, samples: float | Mapping[str, float], label: str = "name"
) -> GaugeMetricFamily:
    """As ``counter_family``, for what goes up and down."""
    name = _name(component, noun)
    if not isinstance(samples, Mapping):
        return GaugeMetricFamily(name, documentation, value=samples)
    family = GaugeMetricFamily(name, documentation, labels=[label])
    for value, sample in samples.items():
        family.add_metric([value], sample)
    return family


def _name(component: str, noun: str) -> str:
    for part in (component, noun):
        if not _NAME.fullmatch(part):
            raise ValueError(f"{part!r} is no part of a metric's name: lower_snake_case belongs there")
    return f"flowjoin_{component}_{noun}"
