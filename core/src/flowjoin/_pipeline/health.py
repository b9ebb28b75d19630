"""Who works and who does not: one row per component, for people, probes and metrics."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from flowjoin._model.errors import said_by
from flowjoin._pipeline.backoff import Backoff

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
    """

    component: str
    state: State
    problem: str = ""
    failures: int = 0


class Component:
    """One plugin instance as the supervisor sees it: its state, and how long to wait after a failure."""

    def __init__(self, kind: str, name: str, backoff: Backoff) -> None:
        self.kind = kind
        self.name = name
        self.backoff = backoff
        self._state = State.STARTING
        self._problem = ""
        self._impairment = ""
        self._failures = 0

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
        )


class HealthTable:
    """Every component of a pipeline."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._components: list[Component] = []

    def add(self, kind: str, name: str) -> Component:
        """A new row, in the place of one of that name that is over."""
        self._components = [row for row in self._components if (row.kind, row.name) != (kind, name)]
        component = Component(kind, name, Backoff(self._random))
        self._components.append(component)
        return component

    def impair(self, kind: str, name: str, problem: str) -> None:
        """Tell the rows of that name what its plugin says of itself."""
        for row in self._components:
            if (row.kind, row.name) == (kind, name):
                row.impair(problem)

    def remove(self, name: str) -> None:
        """An exporter was taken out: forget its rows."""
        gone = ("exporters", "spools")
        self._components = [row for row in self._components if row.name != name or row.kind not in gone]

    def snapshot(self) -> tuple[ComponentHealth, ...]:
        """Every row, in the order of their making."""
        return tuple(component.health() for component in self._components)
