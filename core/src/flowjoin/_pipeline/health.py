"""Who works and who does not: one row per component, for people, probes and metrics."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flowjoin._model.errors import said_by
from flowjoin._pipeline.backoff import Backoff
from flowjoin._pipeline.patience import Patience

__all__ = ["Component", "ComponentHealth", "HealthTable", "State"]


class State(enum.Enum):
    """What a component is doing."""

    STARTING = "starting"
    OK = "ok"
    DEGRADED = "degraded"  # failed and is tried again, or works in part
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentHealth:
    """A snapshot.

    Attributes:
        component: ``exporters/audit``: the list it is configured in, and its name.
        problem: what went wrong last, while it is degraded.
        failures: how often it failed since the start.
        hangs: of those, how often it got nowhere.
    """

    component: str
    state: State
    problem: str = ""
    failures: int = 0
    hangs: int = 0


class Component:
    """One plugin instance as the supervisor sees it: its state, and how long to wait for it and after a failure."""

    def __init__(self, kind: str, name: str, backoff: Backoff, patience: Patience) -> None:
        self.kind = kind
        self.name = name
        self.backoff = backoff
        self.patience = patience
        self._on_hang: Callable[[str], None] = _nobody_asks
        self._state = State.STARTING
        self._problem = ""
        self._impairment = ""
        self._failures = self._hangs = 0

    @property
    def is_degraded(self) -> bool:
        return self._state is State.DEGRADED

    def opened(self) -> None:
        """It was opened; what it is worth will show."""
        self._state = State.OK
        self._problem = ""

    def recovered(self) -> None:
        """It works; the next failure waits for a short time again."""
        self.opened()
        self.backoff.reset()

    def impair(self, problem: str) -> None:
        """It says itself that it works only in part; an empty problem, that it works again."""
        self._impairment = problem

    def failed(self, cause: BaseException) -> None:
        """It does not work."""
        self._impairment = ""
        self._state = State.DEGRADED
        self._problem = f"{type(cause).__name__}: {said_by(cause)}"
        self._failures += 1

    @contextmanager
    def watched(self, on_hang: Callable[[str], None]) -> Iterator[None]:
        """Around its life; ``on_hang`` is told what got nowhere."""
        self._on_hang = on_hang
        try:
            yield
        finally:
            self._on_hang = _nobody_asks
            self.patience.end()

    def look(self, elapsed: float) -> None:
        """So many seconds have gone by: does it hang?"""
        doing = self.patience.look(elapsed)
        if doing:
            self._hangs += 1
            self._on_hang(doing)

    def ended(self) -> None:
        """It is over and will not be tried again."""
        self._impairment = ""
        self._state = State.ENDED

    def health(self) -> ComponentHealth:
        """A snapshot."""
        return ComponentHealth(
            component=f"{self.kind}/{self.name}",
            state=State.DEGRADED if self._impairment else self._state,
            problem=self._problem or self._impairment,
            failures=self._failures,
            hangs=self._hangs,
        )


def _nobody_asks(_doing: str) -> None:
    raise AssertionError("what nobody waits for cannot hang")


class HealthTable:
    """Every component of a pipeline."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._components: list[Component] = []

    @property
    def components(self) -> tuple[Component, ...]:
        """Every row, in the order of their making."""
        return tuple(self._components)

    def add(self, kind: str, name: str) -> Component:
        """A new row, in the place of one of that name that is over."""
        self._components = [row for row in self._components if (row.kind, row.name) != (kind, name)]
        component = Component(kind, name, Backoff(self._random), Patience())
        self._components.append(component)
        return component

    def impair(self, kind: str, name: str, problem: str) -> None:
        """Tell the rows of that name what its plugin says of itself."""
        for row in self._components:
            if (row.kind, row.name) == (kind, name):
                row.impair(problem)

    def progressed(self, kind: str, name: str) -> None:
        """The plugin of that name gets on; may be called in any thread."""
        for row in self._components:
            if (row.kind, row.name) == (kind, name):
                row.patience.progressed()

    def look(self, elapsed: float) -> None:
        """So many seconds have gone by: which of them hang?"""
        for component in self._components:
            component.look(elapsed)

    def remove(self, name: str) -> None:
        """An exporter was taken out: forget its rows."""
        gone = ("exporters", "spools")
        self._components = [row for row in self._components if row.name != name or row.kind not in gone]

    def snapshot(self) -> tuple[ComponentHealth, ...]:
        """Every row, in the order of their making."""
        return tuple(component.health() for component in self._components)
