"""Small stand-ins for what a pipeline is wired to: batches, exporters that misbehave on purpose, a logger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import trio

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin, FlowSchema
from flowjoin.wire.registry import default_registry

REGISTRY = default_registry()


def schema_of(*names: str, origin: FlowOrigin = FlowOrigin.PLAIN, family: int = 4) -> FlowSchema:
    return FlowSchema(
        origin=origin,
        family=AddressFamily(family),
        elements=tuple(REGISTRY.by_name(name) for name in names),
        registry=REGISTRY,
    )


SCHEMA = schema_of("octetDeltaCount", "interfaceName")
OTHER_SCHEMA = schema_of("octetDeltaCount", "interfaceName", family=6)


def batch_of(*numbers: int, schema: FlowSchema = SCHEMA, is_first_export: bool = False) -> FlowBatch:
    """A batch whose rows are told apart by a number."""
    return FlowBatch.from_columns(
        schema,
        {"octetDeltaCount": numbers, "interfaceName": [f"row {number}" for number in numbers]},
        is_first_export=is_first_export,
    )


def numbers_of(batch: FlowBatch) -> list[int]:
    return [int(number) for number in batch.column("octetDeltaCount")]


class MemoryLog:
    """Keeps every line."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def _write(self, level: str, event: str, facts: dict[str, object]) -> None:
        self.lines.append((level, event, facts))

    def debug(self, event: str, **facts: object) -> None:
        self._write("debug", event, facts)

    def info(self, event: str, **facts: object) -> None:
        self._write("info", event, facts)

    def warning(self, event: str, **facts: object) -> None:
        self._write("warning", event, facts)

    def error(self, event: str, **facts: object) -> None:
        self._write("error", event, facts)

    def bind(self, **_facts: object) -> MemoryLog:
        return self

    def events(self, *levels: str) -> list[str]:
        return [event for level, event, _ in self.lines if not levels or level in levels]

    def facts(self, event: str) -> list[dict[str, object]]:
        return [facts for _, name, facts in self.lines if name == event]


class MemoryExporter:
    """Accepts everything, or does first what its script says: an exception to raise, a function to await, None."""

    def __init__(self, script: Iterable[Exception | Callable[[FlowBatch], Awaitable[object]] | None] = ()) -> None:
        self.script = iter(script)
        self.calls: list[tuple[float, str, list[int]]] = []  # when, which batch, which rows
        self.accepted: list[FlowBatch] = []
        self.opened = 0
        self.closed = 0

    async def export(self, batch: FlowBatch) -> None:
        self.calls.append((trio.current_time(), batch.id, numbers_of(batch)))
        match next(self.script, None):
            case None:
                pass
            case Exception() as exc:
                raise exc
            case act:
                await act(batch)
        self.accepted.append(batch)

    @property
    def rows(self) -> list[int]:
        return [number for batch in self.accepted for number in numbers_of(batch)]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        self.opened += 1
        try:
            yield self
        finally:
            self.closed += 1


Opener = Callable[[], AbstractAsyncContextManager[Any]]


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope before the n-th step that any task takes."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self._scope = scope
        self._left = step
        self.has_fired = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self.has_fired = True
            self._scope.cancel()


@contextmanager
def cancelled_at_step(step: int) -> Iterator[CancelAtStep]:
    """A cancel scope around the block that is cancelled at the n-th step from here on."""
    with trio.CancelScope() as scope:
        instrument = CancelAtStep(scope, step)
        trio.lowlevel.add_instrument(instrument)
        try:
            yield instrument
        finally:
            trio.lowlevel.remove_instrument(instrument)
