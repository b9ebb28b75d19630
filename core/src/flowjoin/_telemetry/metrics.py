"""The registry of metrics: everything that moves is counted, under one naming rule, with closed label sets.

A metric is ``flowjoin_<component>_<noun>_<unit>``, with ``_total`` for a counter. Most figures live in the books of
the part they count and are read when somebody asks (``watch``), so that nothing is counted twice; a plugin's counters
are made here. prometheus_client's own process-wide registry is not used: two pipelines in one process (tests) do
not meet.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

__all__ = ["Count", "Distribution", "Metrics", "counter_family", "gauge_family"]

FigureT = TypeVar("FigureT")

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


class Distribution:
    """How often a figure was at most so large."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Take what separates the buckets.

        Raises:
            ValueError: the bounds do not rise.
        """
        self._bounds = tuple(bounds)
        if list(self._bounds) != sorted(set(self._bounds)) or not self._bounds:
            raise ValueError(f"the bounds of a histogram rise, and there is one at least, not {self._bounds}")
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, figure: float) -> None:
        """Add one."""
        self._counts[bisect_left(self._bounds, figure)] += 1
        self._sum += figure

    def buckets(self) -> list[tuple[str, float]]:
        """Bound and how many were not above it, as Prometheus wants them."""
        texts = [*map(str, map(float, self._bounds)), "+Inf"]
        return list(zip(texts, itertools.accumulate(self._counts), strict=True))

    @property
    def sum(self) -> float:
        return self._sum


_Labels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Series(Generic[FigureT]):
    """Figures of one name, by labels.

    Attributes:
        also: a name that others have for it; empty without one.
    """

    documentation: str
    also: str
    figures: dict[_Labels, FigureT] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        return [label for label, _ in next(iter(self.figures))]


class Metrics:
    """Counters, gauges and histograms, and the functions that read other parts' books."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._counts: dict[str, _Series[Count]] = {}
        self._gauges: dict[str, _Series[Callable[[], float]]] = {}
        self._distributions: dict[str, _Series[Distribution]] = {}
        self._watched: list[Callable[[], Iterable[Metric]]] = []
        self.registry.register(self)

    def counter(self, component: str, noun: str, documentation: str, *, also: str = "", **labels: str) -> Count:
        """The counter ``flowjoin_<component>_<noun>_total`` with these labels; the same one each time.

        Args:
            also: a whole name under which the figure is given too, as a gauge.

        Raises:
            ValueError: a name breaks the naming rule, or the labels are not those of its other counters.
        """
        series, key = _series(self._counts, component, noun, documentation, also, labels)
        return series.figures.setdefault(key, Count())

    def gauge(
        self, component: str, noun: str, documentation: str, read: Callable[[], float], *, also: str = "", **labels: str
    ) -> None:
        """The gauge ``flowjoin_<component>_<noun>``, read when it is asked for; the last reader given counts.

        Raises:
            ValueError: as ``counter``.
        """
        series, key = _series(self._gauges, component, noun, documentation, also, labels)
        series.figures[key] = read

    def histogram(
        self,
        component: str,
        noun: str,
        documentation: str,
        bounds: Sequence[float],
        *,
        also: str = "",
        **labels: str,
    ) -> Distribution:
        """The histogram ``flowjoin_<component>_<noun>``; the same one each time.

        Raises:
            ValueError: as ``counter``; or the bounds do not rise.
        """
        series, key = _series(self._distributions, component, noun, documentation, also, labels)
        return series.figures.setdefault(key, Distribution(bounds))

    def watch(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Ask this function for metrics whenever metrics are asked for."""
        self._watched.append(read)

    def expose(self) -> bytes:
        """Everything, in Prometheus's text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks its collectors for."""
        for name, counts in self._counts.items():
            figures = {key: count.value for key, count in counts.figures.items()}
            yield _filled(CounterMetricFamily(name, counts.documentation, labels=counts.labels), figures)
            if counts.also:
                yield _filled(GaugeMetricFamily(counts.also, counts.documentation, labels=counts.labels), figures)
        for name, gauges in self._gauges.items():
            figures = {key: read() for key, read in gauges.figures.items()}
            for each in filter(None, (name, gauges.also)):
                yield _filled(GaugeMetricFamily(each, gauges.documentation, labels=gauges.labels), figures)
        for name, distributions in self._distributions.items():
            for each in filter(None, (name, distributions.also)):
                family = HistogramMetricFamily(each, distributions.documentation, labels=distributions.labels)
                for key, found in distributions.figures.items():
                    family.add_metric([value for _, value in key], found.buckets(), found.sum)
                yield family
        for read_books in self._watched:
            yield from read_books()


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily, figures: Mapping[_Labels, float]
) -> CounterMetricFamily | GaugeMetricFamily:
    for key, figure in figures.items():
        family.add_metric([value for _, value in key], figure)
    return family


def _series(
    known: dict[str, _Series[FigureT]],
    component: str,
    noun: str,
    documentation: str,
    also: str,
    labels: Mapping[str, str],
) -> tuple[_Series[FigureT], _Labels]:
    name = _name(component, noun)
    if also and not _NAME.fullmatch(also):
        raise ValueError(f"{also!r} is no metric's name")
    series = known.setdefault(name, _Series(documentation, also))
    key = tuple(sorted(labels.items()))
    if any([label for label, _ in other] != [label for label, _ in key] for other in series.figures):
        raise ValueError(f"{name} has other labels elsewhere than {sorted(labels)}")
    return series, key


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
